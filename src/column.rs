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
    pub const INT8: u32 = 20;
    pub const TEXT: u32 = 25;
    pub const JSON: u32 = 114;
    pub const FLOAT8: u32 = 701;
    pub const NUMERIC: u32 = 1700;
    pub const JSONB: u32 = 3802;
    pub const TEXT_ARRAY: u32 = 1009;
    /// hstore has an OID of its own in every database; no server gives this one away.
    pub const HSTORE: u32 = u32::MAX;
    pub const HSTORE_ARRAY: u32 = u32::MAX - 1;

    /// A built-in type without a modifier.
    pub fn of(oid: u32) -> Type {
        Type { oid, modifier: -1 }
    }

    /// The OID that stands for a type that is not built in, by the name that the WAL gives it: of a domain, the type below it.
    pub fn named(schema: &str, name: &str) -> Option<u32> {
        match (schema, name) {
            ("pg_catalog", name) => match name.strip_prefix('_') {
                Some(of) => BUILT_IN.iter().find(|(known, ..)| *known == of).map(|(_, _, array)| *array),
                None => BUILT_IN.iter().find(|(known, ..)| *known == name).map(|(_, oid, _)| *oid),
            },
            (_, "hstore") => Some(Type::HSTORE),
            (_, "_hstore") => Some(Type::HSTORE_ARRAY),
            // An array of a type that is not built in, by PostgreSQL's own habit of naming it.
            (_, name) if name.starts_with('_') => Some(Type::TEXT_ARRAY),
            _ => None,
        }
    }

    /// The type of an array's elements.
    pub fn element(self) -> Option<Type> {
        if self.oid == Type::HSTORE_ARRAY {
            return Some(Type::of(Type::HSTORE));
        }
        let found = BUILT_IN.iter().find(|(_, _, array)| *array == self.oid);
        found.map(|(_, oid, _)| Type { oid: *oid, modifier: self.modifier })
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

/// Built-in types: name, OID, and OID of an array of them (pg_type.dat).
const BUILT_IN: [(&str, u32, u32); 37] = [
    ("bool", 16, 1000),
    ("bytea", 17, 1001),
    ("name", 19, 1003),
    ("int8", 20, 1016),
    ("int2", 21, 1005),
    ("int4", 23, 1007),
    ("text", 25, 1009),
    ("oid", 26, 1028),
    ("json", 114, 199),
    ("xml", 142, 143),
    ("point", 600, 1017),
    ("cidr", 650, 651),
    ("float4", 700, 1021),
    ("float8", 701, 1022),
    ("macaddr8", 774, 775),
    ("money", 790, 791),
    ("macaddr", 829, 1040),
    ("inet", 869, 1041),
    ("bpchar", 1042, 1014),
    ("varchar", 1043, 1015),
    ("date", 1082, 1182),
    ("time", 1083, 1183),
    ("timestamp", 1114, 1115),
    ("timestamptz", 1184, 1185),
    ("interval", 1186, 1187),
    ("timetz", 1266, 1270),
    ("bit", 1560, 1561),
    ("varbit", 1562, 1563),
    ("numeric", 1700, 1231),
    ("uuid", 2950, 2951),
    ("jsonb", 3802, 3807),
    ("int4range", 3904, 3905),
    ("numrange", 3906, 3907),
    ("tsrange", 3908, 3909),
    ("tstzrange", 3910, 3911),
    ("daterange", 3912, 3913),
    ("int8range", 3926, 3927),
];

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

    #[test]
    fn types_are_found_by_the_names_in_the_wal() {
        for (schema, name, expected) in [
            ("pg_catalog", "int4", Some(23)),
            ("pg_catalog", "_int4", Some(1007)),
            ("public", "hstore", Some(Type::HSTORE)),
            ("public", "_hstore", Some(Type::HSTORE_ARRAY)),
            ("public", "_citext", Some(Type::TEXT_ARRAY)),
            ("public", "citext", None),
            ("public", "int4", None),
            ("pg_catalog", "nothing", None),
        ] {
            assert_eq!(Type::named(schema, name), expected, "{schema}.{name}");
        }
        assert_eq!(Type { oid: 1231, modifier: 7 }.element(), Some(Type { oid: Type::NUMERIC, modifier: 7 }));
        assert_eq!(Type::of(Type::HSTORE_ARRAY).element(), Some(Type::of(Type::HSTORE)));
        assert_eq!(Type::of(3905).element(), Some(Type::of(3904)));
        assert_eq!(Type::of(Type::TEXT).element(), None);
    }
}
