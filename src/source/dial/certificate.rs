//! The two things of an X.509 certificate that rustls does not tell: which hash signed it, and its public key's bytes.
//!
//! DER enters, slices of it or a hash leave. Total: bytes that are not a certificate give `None`.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const EXPLICIT_0: u8 = 0xA0;

/// The certificate's hash for channel binding (RFC 5929, tls-server-end-point): by the hash of its own signature, but
/// SHA-256 where that is MD5 or SHA-1. `None` where the signature names none that we know, as with Ed25519.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_hash(signature_algorithm(certificate)?)?;
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// The SubjectPublicKeyInfo.
pub(super) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let mut fields = contents(certificate)?;
    let mut tbs = next(&mut fields)?.body;
    let first = next(&mut tbs)?;
    if first.tag == EXPLICIT_0 {
        next(&mut tbs)?; // after the version, the serial number
    }
    for _signature_issuer_validity_subject in 0..4 {
        next(&mut tbs)?;
    }
    let key = next(&mut tbs)?;
    (key.tag == SEQUENCE).then_some(key.whole)
}

/// The AlgorithmIdentifier's contents: an OID, perhaps parameters.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let mut fields = contents(certificate)?;
    next(&mut fields)?; // tbsCertificate
    let algorithm = next(&mut fields)?;
    (algorithm.tag == SEQUENCE).then_some(algorithm.body)
}

fn signature_hash(mut algorithm: &[u8]) -> Option<&'static Algorithm> {
    const PKCS1: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01]; // 1.2.840.113549.1.1
    const ECDSA: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04]; // 1.2.840.10045.4
    let oid = next(&mut algorithm).filter(|oid| oid.tag == OID)?.body;
    if let Some(number) = oid.strip_prefix(PKCS1) {
        return match number {
            [4 | 5 | 11] => Some(&SHA256), // MD5, SHA-1, SHA-256
            [12] => Some(&SHA384),
            [13] => Some(&SHA512),
            [10] => pss_hash(algorithm),
            _ => None,
        };
    }
    match oid.strip_prefix(ECDSA)? {
        [1] | [3, 2] => Some(&SHA256), // SHA-1, SHA-256
        [3, 3] => Some(&SHA384),
        [3, 4] => Some(&SHA512),
        _ => None,
    }
}

/// RSASSA-PSS keeps its hash in the parameters (RFC 4055); left out, it is SHA-1.
fn pss_hash(parameters: &[u8]) -> Option<&'static Algorithm> {
    const SHA1: &[u8] = &[0x2B, 0x0E, 0x03, 0x02, 0x1A]; // 1.3.14.3.2.26
    const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02]; // 2.16.840.1.101.3.4.2
    let mut fields = contents(parameters)?;
    let mut hash = match next(&mut fields) {
        Some(field) if field.tag == EXPLICIT_0 => contents(field.body)?,
        Some(_) | None => return Some(&SHA256),
    };
    let oid = next(&mut hash)?.body;
    match oid.strip_prefix(SHA2) {
        Some([1]) => Some(&SHA256),
        Some([2]) => Some(&SHA384),
        Some([3]) => Some(&SHA512),
        Some(_) => None,
        None => (oid == SHA1).then_some(&SHA256),
    }
}

struct Element<'a> {
    tag: u8,
    body: &'a [u8],
    whole: &'a [u8],
}

fn contents(mut der: &[u8]) -> Option<&[u8]> {
    next(&mut der).filter(|element| element.tag == SEQUENCE).map(|element| element.body)
}

/// Takes one DER element off the front.
fn next<'a>(input: &mut &'a [u8]) -> Option<Element<'a>> {
    let all = *input;
    let (&tag, rest) = all.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7F => (usize::from(short), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(short & 0x7F))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (body, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some(Element { tag, body, whole: &all[..all.len() - rest.len()] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, PublicKeyData};

    fn signed_with(algorithm: &'static rcgen::SignatureAlgorithm) -> (Vec<u8>, KeyPair) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = CertificateParams::new(vec!["db".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.der().to_vec(), key)
    }

    #[test]
    fn the_hash_is_the_one_of_the_signature() {
        for (algorithm, hash) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(&SHA256)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(&SHA384)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let (der, _) = signed_with(algorithm);
            assert_eq!(end_point(&der), hash.map(|hash| digest(hash, &der).as_ref().to_vec()));
        }
    }

    #[test]
    fn an_old_hash_becomes_sha_256() {
        let rsa = |number| [&[OID, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, number][..], &[5, 0]].concat();
        for (number, hash) in [(4, &SHA256), (5, &SHA256), (11, &SHA256), (12, &SHA384), (13, &SHA512)] {
            assert_eq!(signature_hash(&rsa(number)), Some(hash));
        }
        assert_eq!(signature_hash(&rsa(14)), None);
    }

    #[test]
    fn rsa_pss_keeps_its_hash_in_the_parameters() {
        let pss = |parameters: &[u8]| {
            [&[OID, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 10][..], parameters].concat()
        };
        assert_eq!(signature_hash(&pss(&[SEQUENCE, 0])), Some(&SHA256));
        let sha512 = [
            &[SEQUENCE, 0x0F, EXPLICIT_0, 0x0D, SEQUENCE, 0x0B, OID, 9][..],
            &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 3],
        ]
        .concat();
        assert_eq!(signature_hash(&pss(&sha512)), Some(&SHA512));
    }

    #[test]
    fn the_public_key_is_found() {
        let (der, key) = signed_with(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(public_key(&der).unwrap(), key.subject_public_key_info());
    }

    #[test]
    fn a_certificate_cut_anywhere_gives_nothing() {
        let (der, _) = signed_with(&rcgen::PKCS_ECDSA_P256_SHA256);
        for length in 0..der.len() {
            assert_eq!(end_point(&der[..length]), None);
            assert_eq!(public_key(&der[..length]), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            end_point(&bytes);
            public_key(&bytes);
        }
    }
}
