//! The principal that a client's certificate names (SPEC section 10).
//!
//! The name stands in the one URI of the certificate's alternative names,
//! `spiffe://TRUST-DOMAIN/principal/NAME`. Common names and names of hosts say nothing here. Whether the
//! certificate can be trusted is another question: [`super::verifier`].

use rustls::pki_types::CertificateDer;
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::principal::Principal;

/// The contents of a certificate about a client, once its signatures are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientIdentity {
    /// The principal.
    pub(crate) principal: Principal,
    /// The serial number, in hexadecimal digits, for the audit log.
    pub(crate) serial: String,
}

/// The reason for which a certificate names no principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("it is no certificate")]
    Undecodable,
    #[error("it is not for clients: its extended key usage must have clientAuth")]
    NotForClients,
    #[error(
        "it is not for signatures, which TLS demands of a client: its key usage must have digitalSignature"
    )]
    NotForSignatures,
    #[error("it has {0} URIs among its alternative names: exactly one names the principal")]
    Uris(usize),
    #[error("its URI is not spiffe://{trust_domain}/principal/NAME, with a NAME of {PRINCIPAL_GRAMMAR}")]
    NoPrincipal { trust_domain: String },
}

impl ClientIdentity {
    /// Reads a certificate of this trust domain.
    ///
    /// # Errors
    /// If it names no principal of the trust domain, or is not for clients.
    pub(crate) fn read(certificate: &CertificateDer<'_>, trust_domain: &str) -> Result<Self, IdentityError> {
        let undecodable = || IdentityError::Undecodable;
        let (rest, certificate) = X509Certificate::from_der(certificate).map_err(|_| undecodable())?;
        if !rest.is_empty() {
            return Err(undecodable());
        }
        // Extensions that occur twice are errors too.
        let usage = certificate.extended_key_usage().map_err(|_| undecodable())?;
        if !usage.is_some_and(|usage| usage.value.client_auth) {
            return Err(IdentityError::NotForClients);
        }
        // Without the extension the key may be used for anything (RFC 5280, section 4.2.1.3; RFC 8446,
        // section 4.4.2.2).
        let usage = certificate.key_usage().map_err(|_| undecodable())?;
        if usage.is_some_and(|usage| !usage.value.digital_signature()) {
            return Err(IdentityError::NotForSignatures);
        }
        let names = certificate.subject_alternative_name().map_err(|_| undecodable())?;
        let names = names.map_or_else(Vec::new, |names| names.value.general_names.clone());
        let uris: Vec<&str> = names
            .iter()
            .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
            .collect();
        // A name that cannot be read might be a second URI.
        if names.iter().any(|name| matches!(name, GeneralName::Invalid(..))) {
            return Err(undecodable());
        }
        let [uri] = uris[..] else { return Err(IdentityError::Uris(uris.len())) };
        let no_principal = || IdentityError::NoPrincipal { trust_domain: trust_domain.to_owned() };
        let principal = principal_of_uri(uri, trust_domain).ok_or_else(no_principal)?;
        Ok(Self { principal, serial: format!("{:x}", certificate.serial) })
    }
}

/// The principal that this URI names in this trust domain, compared byte by byte.
fn principal_of_uri(uri: &str, trust_domain: &str) -> Option<Principal> {
    let path = uri.strip_prefix("spiffe://")?.strip_prefix(trust_domain)?;
    let name = path.strip_prefix("/principal/")?;
    is_principal_name(name.as_bytes()).then(|| Principal::new(name))
}

/// Whether this can be the name of a trust domain: 1 to 255 lower-case letters, digits, `.`, `_` or `-`, as
/// SPIFFE has it.
pub(crate) fn is_trust_domain(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    (1..=255).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};

    use super::*;

    const DOMAIN: &str = "example.org";

    fn read(names: &[SanType], usages: &[ExtendedKeyUsagePurpose]) -> Result<ClientIdentity, IdentityError> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.extended_key_usages = usages.to_vec();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientIdentity::read(certificate.der(), DOMAIN)
    }

    fn uri(uri: &str) -> SanType {
        SanType::URI(uri.try_into().unwrap())
    }

    fn read_uris(uris: &[&str]) -> Result<String, IdentityError> {
        let names: Vec<SanType> = uris.iter().map(|text| uri(text)).collect();
        let read = read(&names, &[ExtendedKeyUsagePurpose::ClientAuth])?;
        Ok(read.principal.as_str().to_owned())
    }

    #[test]
    fn the_one_uri_names_the_principal() {
        assert_eq!(read_uris(&["spiffe://example.org/principal/p-1"]), Ok("p-1".to_owned()));
        let host = SanType::DnsName("other.example.org".try_into().unwrap());
        let names = [host, uri("spiffe://example.org/principal/ann")];
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        assert_eq!(read(&names, &both).unwrap().principal.as_str(), "ann");
    }

    #[test]
    fn no_uri_and_several_uris_name_nobody() {
        let ann = "spiffe://example.org/principal/ann";
        assert_eq!(read_uris(&[]), Err(IdentityError::Uris(0)));
        assert_eq!(read_uris(&[ann, ann]), Err(IdentityError::Uris(2)));
        assert_eq!(read_uris(&[ann, "https://example.org"]), Err(IdentityError::Uris(2)));
    }

    #[test]
    fn other_uris_name_nobody() {
        let refused = || Err(IdentityError::NoPrincipal { trust_domain: DOMAIN.to_owned() });
        for uri in [
            "spiffe://example.com/principal/ann",
            "spiffe://example.org.evil.com/principal/ann",
            "spiffe://EXAMPLE.org/principal/ann",
            "SPIFFE://example.org/principal/ann",
            "https://example.org/principal/ann",
            "spiffe://example.org/process/ann",
            "spiffe://example.org/principal/",
            "spiffe://example.org/principal/..",
            "spiffe://example.org/principal/ann/",
            "spiffe://example.org/principal/a/b",
            "spiffe://example.org/principal/ann?x",
            "spiffe://example.org/principal/ann#x",
            "spiffe://example.org/principal/%61nn",
            "spiffe://example.org:443/principal/ann",
            "spiffe://user@example.org/principal/ann",
            "spiffe://example.org//principal/ann",
        ] {
            assert_eq!(read_uris(&[uri]), refused(), "{uri}");
        }
        assert_eq!(read_uris(&[&format!("spiffe://example.org/principal/{}", "x".repeat(129))]), refused());
    }

    #[test]
    fn a_certificate_must_be_for_clients() {
        let names = [uri("spiffe://example.org/principal/ann")];
        for usages in [&[][..], &[ExtendedKeyUsagePurpose::ServerAuth], &[ExtendedKeyUsagePurpose::Any]] {
            assert_eq!(read(&names, usages), Err(IdentityError::NotForClients), "{usages:?}");
        }
    }

    #[test]
    fn a_key_that_is_for_something_else_proves_nobody() {
        let read = |usages: &[KeyUsagePurpose]| {
            let mut params = CertificateParams::default();
            params.subject_alt_names = vec![uri("spiffe://example.org/principal/ann")];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            params.key_usages = usages.to_vec();
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            ClientIdentity::read(certificate.der(), DOMAIN).map(drop)
        };
        use KeyUsagePurpose::{ContentCommitment, DigitalSignature, KeyAgreement, KeyEncipherment};
        for usages in [&[][..], &[DigitalSignature], &[KeyEncipherment, DigitalSignature]] {
            assert_eq!(read(usages), Ok(()), "{usages:?}");
        }
        for usages in [&[KeyEncipherment][..], &[KeyAgreement], &[ContentCommitment, KeyEncipherment]] {
            assert_eq!(read(usages), Err(IdentityError::NotForSignatures), "{usages:?}");
        }
    }

    #[test]
    fn bytes_behind_a_certificate_are_refused() {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![uri("spiffe://example.org/principal/ann")];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let mut der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert!(ClientIdentity::read(&der.clone().into(), DOMAIN).is_ok());
        der.push(0);
        assert_eq!(ClientIdentity::read(&der.clone().into(), DOMAIN), Err(IdentityError::Undecodable));
        for length in [0, 1, der.len() / 2] {
            let cut = ClientIdentity::read(&der[..length].into(), DOMAIN);
            assert_eq!(cut, Err(IdentityError::Undecodable));
        }
    }

    #[test]
    fn trust_domains_have_a_closed_alphabet() {
        for name in ["example.org", "a", "my_domain-1"] {
            assert!(is_trust_domain(name), "{name}");
        }
        for name in ["", "Example.org", "a/b", "a:1", "a b", &"x".repeat(256)] {
            assert!(!is_trust_domain(name), "{name}");
        }
    }
}
