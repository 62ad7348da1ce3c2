//! The assignment of revocation lists to CAs.
//!
//! In a handshake the library looks a list up by the name of its issuer, and verifies the list's signature
//! then. A list of that name which another key has signed would so be found too late: every certificate of
//! the CA would be refused. Here each list is verified when the files are read, and a wrong one is an error
//! of the files.

use std::collections::BTreeMap;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use stickycas_certificates::Certificate;
use x509_parser::asn1_rs::{Any, BitString, FromDer as _};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::X509Version;

use super::client_cas::ClientCas;
use super::folder::{CLIENT_CAS, CredentialsError, Files, REVOCATION_LISTS};
use super::verifier::TrustSet;

/// The largest number of sets: CAs and lists share names while some of them are renewed.
const MOST_SETS: usize = 16;

/// A revocation list, and which of the keys of its issuer has signed it.
struct List<'a> {
    der: &'a CertificateRevocationListDer<'static>,
    list: CertificateRevocationList<'a>,
    /// That of a CA; of another issuer what the list says of it, if it does.
    key: Vec<u8>,
}

/// Checks that every CA has a revocation list, unless it need not have one, and that each list is signed by
/// its CA. Returns those CAs that count with their lists, and when the first list expires, in seconds since
/// 1970; one that has expired still counts.
///
/// The library takes the first list of a name. So of keys that share a name each set has one, with its list:
/// whoever is trusted by any of the sets is trusted.
///
/// A list whose issuer is none of these CAs may be that of a CA between them and a client; only the client
/// shows its certificate, so its list is verified in the handshake.
///
/// # Errors
/// The list or CA that is wrong.
pub(super) fn check(
    files: &Files,
    cas: &ClientCas,
    lists: &[CertificateRevocationListDer<'static>],
    allow_missing: bool,
) -> Result<(Vec<TrustSet>, Option<u64>), CredentialsError> {
    let wrong = |what: String| files.wrong(REVOCATION_LISTS, &what);
    let wrong_ca = |what: String| files.wrong(CLIENT_CAS, &what);
    let cas = cas.all().map(|(der, counts)| Ok((Certificate::read(der)?.x509, der, counts)));
    let cas: Vec<_> = cas.collect::<Result<_, _>>().map_err(wrong_ca)?;
    let x509: Vec<_> = cas.iter().map(|(ca, ..)| ca).collect();
    let mut read: Vec<List<'_>> = Vec::new();
    for der in lists {
        let list = List::read(der, &x509).map_err(wrong)?;
        // Of several of one key only one would count.
        if read.iter().any(|other| other.may_be_of_same_key(&list)) {
            let issuer = list.list.issuer();
            return Err(wrong(format!(
                "there are two revocation lists of CA {issuer}: give the newest alone"
            )));
        }
        read.push(list);
    }
    let mut choices = Choices::default();
    for (ca, der, counts) in &cas {
        let (subject, key) = (ca.subject().as_raw(), ca.public_key().raw);
        let own = read.iter().find(|list| list.issuer() == subject && list.key == key);
        // Of one name either all keys have a list or none: a certificate may be below several of them.
        if own.is_none() && (!allow_missing || read.iter().any(|list| list.issuer() == subject)) {
            return Err(wrong(format!(
                "there is no revocation list of CA {} of {CLIENT_CAS} in it: add one, or serve with \
                 --allow-missing-revocation-list",
                ca.subject()
            )));
        }
        // A list counts on: other CAs may have signed the key of its CA too.
        choices.add(subject, key, Some(*der).filter(|_| *counts), own);
    }
    for list in read.iter().filter(|list| x509.iter().all(|ca| ca.subject().as_raw() != list.issuer())) {
        choices.add(list.issuer(), &list.key, None, Some(list));
    }
    let next = read.iter().filter_map(|list| list.list.next_update());
    let next = next.map(|next| next.timestamp().try_into().unwrap_or(0)).min();
    Ok((choices.sets().map_err(wrong_ca)?, next))
}

impl<'a> List<'a> {
    fn read(
        der: &'a CertificateRevocationListDer<'static>,
        cas: &[&X509Certificate<'_>],
    ) -> Result<Self, String> {
        let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        let (_, list) = CertificateRevocationList::from_der(der).map_err(|error| error.to_string())?;
        if let Some(lacking) = lacking(&list) {
            return Err(format!(
                "the revocation list of CA {} has no {lacking}, which RFC 5280 demands: issue it anew with one, as version 2",
                list.issuer()
            ));
        }
        let of_name = cas.iter().filter(|ca| ca.subject().as_raw() == list.issuer().as_raw());
        let mut of_name = of_name.peekable();
        let key = if of_name.peek().is_none() {
            key_id(&list)
        } else {
            let signer = of_name.find(|ca| is_signed_by(der, ca, &algorithms));
            let signer = signer.ok_or_else(|| {
                format!(
                    "the revocation list of CA {} is not signed by the key of that CA in {CLIENT_CAS}: give the list \
                     that this CA has issued",
                    list.issuer()
                )
            })?;
            signer.public_key().raw.to_vec()
        };
        Ok(Self { der, list, key })
    }

    fn issuer(&self) -> &[u8] {
        self.list.issuer().as_raw()
    }

    fn may_be_of_same_key(&self, other: &Self) -> bool {
        let keys = [&self.key, &other.key];
        self.issuer() == other.issuer() && (keys[0] == keys[1] || keys.iter().any(|key| key.is_empty()))
    }
}

/// The id by which a list names the key of its issuer.
fn key_id(list: &CertificateRevocationList<'_>) -> Vec<u8> {
    let mut ids = list.extensions().iter().filter_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(key) => key.key_identifier.as_ref(),
        _ => None,
    });
    ids.next().map_or_else(Vec::new, |id| id.0.to_vec())
}

/// The choices: the keys of each name, each with its CAs and its revocation lists.
#[derive(Default)]
struct Choices(BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, TrustSet>>);

impl Choices {
    fn add(
        &mut self,
        name: &[u8],
        key: &[u8],
        ca: Option<&CertificateDer<'static>>,
        list: Option<&List<'_>>,
    ) {
        let set = self.0.entry(name.to_vec()).or_default().entry(key.to_vec()).or_default();
        set.cas.extend(ca.cloned());
        // Of a CA whose certificate alone was renewed it is there already.
        set.revocation_lists = list.map(|list| list.der.clone()).into_iter().collect();
    }

    /// One of each name, in every way.
    fn sets(&self) -> Result<Vec<TrustSet>, String> {
        let mut sets = vec![TrustSet::default()];
        for keys in self.0.values() {
            if sets.len() * keys.len() > MOST_SETS {
                return Err(
                    "too many CAs share their names: take out those that are not used any more".to_owned()
                );
            }
            sets = sets.iter().flat_map(|set| keys.values().map(|key| set.and(key))).collect();
        }
        sets.retain(|set| !set.cas.is_empty());
        Ok(sets)
    }
}

/// The part that this list lacks and the library needs: the library would only say that it cannot parse the
/// list.
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

/// The form of all signed structures of X.509: content, algorithm, signature.
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
