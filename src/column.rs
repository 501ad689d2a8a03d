//! A column's type as the WAL describes it, and how a value of it is written in JSON.

/// A type and its modifier: `timestamp(3)` is another one than `timestamp(6)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Type {
    /// Its OID in `pg_type`; 0 when it is not known.
    pub oid: u32,
    /// Its length or precision as PostgreSQL writes it; -1 when it has none.
    pub modifier: i32,
}

/// How a value is written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A string.
    Text,
    /// As it is, unless it is NaN or infinite.
    Number,
    /// `t` and `f`, or the words of JSON.
    Boolean,
    /// As it is.
    Json,
    /// Base64.
    Bytes,
}

#[allow(missing_docs)]
impl Type {
    pub const BOOL: u32 = 16;
    pub const BYTEA: u32 = 17;
    pub const TEXT: u32 = 25;
    pub const JSON: u32 = 114;
    pub const NUMERIC: u32 = 1700;
    pub const JSONB: u32 = 3802;

    /// A built-in type without a modifier.
    pub fn of(oid: u32) -> Type {
        Type { oid, modifier: -1 }
    }

    /// One number for both, to be stored.
    pub fn to_bits(self) -> i64 {
        i64::from(self.oid) << 32 | i64::from(self.modifier as u32)
    }

    /// The reverse of `to_bits`.
    pub fn from_bits(bits: i64) -> Type {
        Type { oid: (bits >> 32) as u32, modifier: bits as u32 as i32 }
    }

    /// How a value of it is written in JSON.
    pub fn form(self) -> Form {
        match self.oid {
            Type::BOOL => Form::Boolean,
            Type::BYTEA => Form::Bytes,
            // int8, int2, int4, oid, float4, float8, numeric
            20 | 21 | 23 | 26 | 700 | 701 | Type::NUMERIC => Form::Number,
            Type::JSON | Type::JSONB => Form::Json,
            _ => Form::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_stored_as_one_number() {
        for kind in [
            Type::default(),
            Type::of(1114),
            Type { oid: 1114, modifier: 3 },
            Type { oid: u32::MAX, modifier: i32::MIN },
        ] {
            assert_eq!(Type::from_bits(kind.to_bits()), kind);
        }
    }
}
