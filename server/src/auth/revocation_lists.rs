//! Which revocation lists go with which CAs.
//!
//! In a handshake the library looks a list up by the name of its issuer, and verifies the list's signature then. A list
//! of that name which another key has signed would so be found too late: every certificate of the CA would be refused.
//! Here each list is verified when the files are read, and a wrong one is an error of the files.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use x509_parser::asn1_rs::{Any, BitString, FromDer as _};
use x509_parser::certificate::X509Certificate;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::X509Version;

use super::folder::{CLIENT_CAS, CredentialsError, Files, REVOCATION_LISTS};

/// Checks that every CA has a revocation list, unless it need not have one, and that each list is signed by its CA.
/// Returns when the first list expires; one that has expired still counts.
///
/// A list whose issuer is none of these CAs may be that of a CA between them and a client; only the client shows its
/// certificate, so its list is verified in the handshake.
///
/// # Errors
/// Which list or CA is wrong.
pub(super) fn check(
    files: &Files,
    cas: &[CertificateDer<'_>],
    lists: &[CertificateRevocationListDer<'_>],
    allow_missing: bool,
) -> Result<Option<UnixTime>, CredentialsError> {
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let (mut issuers, mut next) = (Vec::new(), None::<UnixTime>);
    for der in lists {
        let (_, list) = CertificateRevocationList::from_der(der)
            .map_err(|error| files.wrong(REVOCATION_LISTS, &error))?;
        if let Some(lacking) = lacking(&list) {
            let what = format!(
                "the revocation list of CA {} has no {lacking}, which RFC 5280 demands: issue it anew with one, as version 2",
                list.issuer()
            );
            return Err(files.wrong(REVOCATION_LISTS, &what));
        }
        let issuer = list.issuer().as_raw().to_vec();
        // Of several only one would count.
        if issuers.iter().any(|(other, _)| *other == issuer) {
            let what =
                format!("there are two revocation lists of CA {}: give the newest alone", list.issuer());
            return Err(files.wrong(REVOCATION_LISTS, &what));
        }
        issuers.push((issuer, der));
        let due = list.next_update().map(|due| super::credentials::unix_time(due.timestamp()));
        next = next.into_iter().chain(due).min();
    }
    let mut subjects = Vec::new();
    for ca in cas {
        let (_, ca) = X509Certificate::from_der(ca).map_err(|error| files.wrong(CLIENT_CAS, &error))?;
        let subject = ca.subject().as_raw().to_vec();
        // A revocation list names its CA and not the key.
        if subjects.contains(&subject) {
            let what = format!("two CAs are named {}: give each a name of its own", ca.subject());
            return Err(files.wrong(CLIENT_CAS, &what));
        }
        let of_this = issuers.iter().find(|(issuer, _)| *issuer == subject);
        subjects.push(subject);
        match of_this {
            Some((_, list)) if !is_signed_by(list, &ca, &algorithms) => {
                let what = format!(
                    "the revocation list of CA {} is not signed by the key of that CA in {CLIENT_CAS}: give the list that this CA has issued",
                    ca.subject()
                );
                return Err(files.wrong(REVOCATION_LISTS, &what));
            }
            None if !allow_missing => {
                let what = format!(
                    "there is no revocation list of CA {} of {CLIENT_CAS} in it: add one, or serve with \
                     --allow-missing-revocation-list",
                    ca.subject()
                );
                return Err(files.wrong(REVOCATION_LISTS, &what));
            }
            Some(_) | None => {}
        }
    }
    Ok(next)
}

/// What the library wants of a list and this one does not have: it would only say that it cannot parse it.
fn lacking(list: &CertificateRevocationList<'_>) -> Option<&'static str> {
    // Lists of the first version can have no extensions.
    if list.version() != Some(X509Version::V2) || list.extensions().is_empty() {
        Some("number (extension cRLNumber)")
    } else if list.next_update().is_none() {
        Some("time by which the next one comes (nextUpdate)")
    } else {
        None
    }
}

/// Whether a revocation list is signed by the key of this CA, with an algorithm that handshakes take too.
fn is_signed_by(list: &[u8], ca: &X509Certificate<'_>, algorithms: &WebPkiSupportedAlgorithms) -> bool {
    let key = ca.public_key();
    let (Some(signed), Some(key_algorithm)) = (Signed::read(list), first_inside(key.raw)) else {
        return false;
    };
    let fitting = algorithms.all.iter().filter(|each| {
        each.signature_alg_id().as_ref() == signed.algorithm
            && each.public_key_alg_id().as_ref() == key_algorithm
    });
    let key = &key.subject_public_key.data;
    fitting.into_iter().any(|each| each.verify_signature(key, signed.content, &signed.signature).is_ok())
}

/// What all signed structures of X.509 are: content, algorithm, signature.
struct Signed<'a> {
    content: &'a [u8],
    /// Without its tag and its length, as libraries compare it.
    algorithm: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Signed<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        let inside = Any::from_der(der).ok()?.1.data;
        let (rest, _content) = Any::from_der(inside).ok()?;
        let content = &inside[..inside.len() - rest.len()];
        let (rest, algorithm) = Any::from_der(rest).ok()?;
        let (_, signature) = BitString::from_der(rest).ok()?;
        Some(Self { content, algorithm: algorithm.data, signature: signature.data.into_owned() })
    }
}

/// The first element inside this one, without its tag and its length.
fn first_inside(der: &[u8]) -> Option<&[u8]> {
    let inside = Any::from_der(der).ok()?.1.data;
    Some(Any::from_der(inside).ok()?.1.data)
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
        KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SerialNumber,
        SignatureAlgorithm,
    };
    use time::{Duration, OffsetDateTime};

    use super::*;

    type Ca = CertifiedIssuer<'static, KeyPair>;

    fn ca(algorithm: &'static SignatureAlgorithm) -> Ca {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "one name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ca::self_signed(params, KeyPair::generate_for(algorithm).unwrap()).unwrap()
    }

    fn list(ca: &Ca) -> Vec<u8> {
        let now = OffsetDateTime::now_utc();
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::DAY,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(ca).unwrap().der().to_vec()
    }

    fn is_signed(list: &[u8], ca: &Ca) -> bool {
        let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        is_signed_by(list, &X509Certificate::from_der(ca.der()).unwrap().1, &algorithms)
    }

    #[test]
    fn a_list_is_signed_by_its_ca_and_by_no_other_key() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let (ours, other) = (ca(algorithm), ca(algorithm));
            assert!(is_signed(&list(&ours), &ours), "{algorithm:?}");
            assert!(!is_signed(&list(&other), &ours), "{algorithm:?}");
        }
        assert!(!is_signed(&list(&ca(&PKCS_ED25519)), &ca(&PKCS_ECDSA_P256_SHA256)));
    }

    /// An element of DER.
    fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        assert!(content.len() < 128, "its length is one byte");
        [&[tag, u8::try_from(content.len()).unwrap()][..], &content].concat()
    }

    #[test]
    fn what_a_list_lacks_is_named() {
        let algorithm = der(0x30, &[b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"]);
        let name = der(0x30, &[&der(0x31, &[&der(0x30, &[b"\x06\x03\x55\x04\x03\x0c\x01x"])])]);
        let (time, version) = (der(0x17, &[b"260101000000Z"]), [2, 1, 1]);
        let number = der(0x30, &[b"\x06\x03\x55\x1d\x14\x04\x03\x02\x01\x01"]);
        let number = der(0xa0, &[&der(0x30, &[&number])]);
        let lacks = |content: &[&[u8]]| {
            let list = der(0x30, &[&der(0x30, content), &algorithm, b"\x03\x02\x00\x00"]);
            lacking(&CertificateRevocationList::from_der(&list).unwrap().1)
        };
        // As `openssl ca -gencrl` makes it without `crl_extensions`.
        let first = lacks(&[&algorithm, &name, &time, &time]);
        assert!(first.unwrap().contains("cRLNumber"));
        assert_eq!(lacks(&[&version, &algorithm, &name, &time, &time]), first);
        let without_end = lacks(&[&version, &algorithm, &name, &time, &number]);
        assert!(without_end.unwrap().contains("nextUpdate"));
        assert_eq!(lacks(&[&version, &algorithm, &name, &time, &time, &number]), None);
    }

    #[test]
    fn a_changed_list_is_signed_by_nobody() {
        let ours = ca(&PKCS_ECDSA_P256_SHA256);
        let whole = list(&ours);
        assert!(is_signed(&whole, &ours));
        for place in (0..whole.len()).step_by(7) {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            // Others are refused because they are no list.
            if CertificateRevocationList::from_der(&changed).is_ok() {
                assert!(!is_signed(&changed, &ours), "byte {place}");
            }
        }
        for length in [0, 1, whole.len() / 2] {
            assert!(!is_signed(&whole[..length], &ours));
        }
    }
}
