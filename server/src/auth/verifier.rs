//! Whether a client's certificate can be trusted: its signatures up to a CA of ours, its time, its
//! revocation, and the principal that it names.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::certificate::ClientIdentity;
use super::principal::Principal;

/// Verifies the certificates of clients, in handshakes and again when what may be trusted has changed.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    /// Signatures, times and revocation, by the library: one for each set, and there is one at least.
    chains: Vec<Arc<dyn ClientCertVerifier>>,
    trust_domain: String,
    denied: Arc<BTreeSet<Principal>>,
    /// The number of verifications of chains.
    #[cfg(test)]
    pub(crate) verified: std::sync::atomic::AtomicUsize,
}

/// The CAs, revocation lists and denied principals by which certificates of clients are verified.
#[derive(Debug)]
pub(crate) struct Trust {
    /// Our CAs. A client that is trusted by one set is trusted.
    pub(crate) sets: Vec<TrustSet>,
    /// Whether a CA without a revocation list is trusted.
    pub(crate) allow_missing_revocation_list: bool,
    /// The trust domain to which all of these CAs are bound.
    pub(crate) trust_domain: String,
    /// Principals that are refused whatever they show.
    pub(crate) denied: Arc<BTreeSet<Principal>>,
}

/// CAs of different names, or of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustSet {
    /// Their certificates.
    pub(crate) cas: Vec<CertificateDer<'static>>,
    /// Their revocation lists, and those of CAs below them. One that has expired still counts.
    pub(crate) revocation_lists: Vec<CertificateRevocationListDer<'static>>,
}

impl TrustSet {
    pub(super) fn and(&self, other: &Self) -> Self {
        Self {
            cas: [&*self.cas, &*other.cas].concat(),
            revocation_lists: [&*self.revocation_lists, &*other.revocation_lists].concat(),
        }
    }

    fn verifier(self, allow_missing_list: bool) -> Result<Arc<dyn ClientCertVerifier>, TrustError> {
        let mut roots = RootCertStore::empty();
        for ca in self.cas {
            roots.add(ca).map_err(|error| TrustError::Ca(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
            .with_crls(self.revocation_lists)
            // Clients are not told the CAs that we trust.
            .clear_root_hint_subjects();
        let builder = if allow_missing_list { builder.allow_unknown_revocation_status() } else { builder };
        builder.build().map_err(|error| match error {
            VerifierBuilderError::InvalidCrl(_) => TrustError::RevocationList(error.to_string()),
            other => TrustError::Ca(other.to_string()),
        })
    }
}

/// The reason for which no client can be verified.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("a client CA cannot be used: {0}")]
    Ca(String),
    #[error("a revocation list cannot be used: {0}")]
    RevocationList(String),
}

/// The principal is denied by the server's configuration.
#[derive(Debug, thiserror::Error)]
#[error("principal {0} is denied")]
struct Denied(String);

impl ClientVerifier {
    /// A verifier with this trust.
    ///
    /// # Errors
    /// If a CA or a revocation list cannot be used.
    pub(crate) fn new(trust: Trust) -> Result<Self, TrustError> {
        let allow_missing = trust.allow_missing_revocation_list;
        let chains = trust.sets.into_iter().map(|set| set.verifier(allow_missing));
        let chains: Vec<_> = chains.collect::<Result<_, _>>()?;
        if chains.is_empty() {
            return Err(TrustError::Ca("there is none".to_owned()));
        }
        Ok(Self {
            chains,
            trust_domain: trust.trust_domain,
            denied: trust.denied,
            #[cfg(test)]
            verified: Default::default(),
        })
    }

    /// The client that shows this certificate, with the certificates between it and a CA of ours.
    ///
    /// # Errors
    /// The reason for which it is not trusted. TLS tells the client by an alert.
    pub(crate) fn identify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientIdentity, Error> {
        let bytes: usize = intermediates.iter().map(|each| each.len()).sum();
        if intermediates.len() > MAX_INTERMEDIATES || certificate.len() + bytes > MAX_CHAIN_BYTES {
            return Err(other(ChainTooLong));
        }
        #[cfg(test)]
        self.verified.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.verify_chain(certificate, intermediates, now)?;
        self.read_allowed(certificate)
    }

    fn verify_chain(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let mut refused = None;
        for chain in &self.chains {
            match chain.verify_client_cert(certificate, intermediates, now) {
                Ok(_) => return Ok(()),
                // The error of a set that knows the issuer, if one does.
                Err(error) if refused.is_none() || !is_of_another_key(&error) => refused = Some(error),
                Err(_) => {}
            }
        }
        Err(refused.expect("there is a set at least"))
    }

    /// The client whose certificate this verifier has verified a moment ago, in the handshake.
    ///
    /// # Errors
    /// If the certificate names no principal, or one that is denied.
    pub(crate) fn read_allowed(&self, certificate: &CertificateDer<'_>) -> Result<ClientIdentity, Error> {
        let identity = ClientIdentity::read(certificate, &self.trust_domain).map_err(other)?;
        self.check_denied(&identity.principal)?;
        Ok(identity)
    }

    /// Checks that this principal is not denied.
    ///
    /// # Errors
    /// If it is.
    pub(crate) fn check_denied(&self, principal: &Principal) -> Result<(), Error> {
        if self.denied.contains(principal) {
            return Err(other(Denied(principal.as_str().to_owned())));
        }
        Ok(())
    }
}

/// Whether the certificate, or the revocation list of its issuer, is signed by another key than that of this
/// name.
fn is_of_another_key(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(CertificateError::BadSignature | CertificateError::UnknownIssuer)
            | Error::InvalidCertRevocationList(_)
    )
}

/// Certificates that a client shows are kept as long as its connection is open, whether they are needed or
/// not.
const MAX_INTERMEDIATES: usize = 4;
const MAX_CHAIN_BYTES: usize = 16 * 1024;

#[derive(Debug, thiserror::Error)]
#[error(
    "more than {MAX_INTERMEDIATES} certificates besides the client's own, or more than {MAX_CHAIN_BYTES} bytes of them"
)]
struct ChainTooLong;

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains[0].root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.identify(certificate, intermediates, now).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains[0].verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains[0].verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains[0].supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
        ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
        SerialNumber,
    };
    use time::OffsetDateTime;

    use super::*;

    const DOMAIN: &str = "example.org";
    const DAY: Duration = Duration::from_secs(24 * 3600);

    type Ca = CertifiedIssuer<'static, KeyPair>;

    fn ca(name: &str) -> Ca {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ca::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// What a certificate of ann looks like.
    fn ann() -> CertificateParams {
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://{DOMAIN}/principal/ann");
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(SerialNumber::from(7));
        params
    }

    fn issue(ca: &Ca, params: &CertificateParams) -> CertificateDer<'static> {
        params.signed_by(&KeyPair::generate().unwrap(), ca).unwrap().der().clone()
    }

    fn list(ca: &Ca, serials: &[u64], next_update: OffsetDateTime) -> CertificateRevocationListDer<'static> {
        let now = OffsetDateTime::now_utc();
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now - DAY,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now - 2 * DAY,
            next_update,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(ca).unwrap().der().clone()
    }

    fn set(cas: &[&Ca], list: CertificateRevocationListDer<'static>) -> TrustSet {
        TrustSet { cas: cas.iter().map(|ca| ca.der().clone()).collect(), revocation_lists: vec![list] }
    }

    fn trust(ca: &Ca) -> Trust {
        Trust {
            sets: vec![set(&[ca], list(ca, &[], OffsetDateTime::now_utc() + DAY))],
            allow_missing_revocation_list: false,
            trust_domain: DOMAIN.to_owned(),
            denied: Arc::default(),
        }
    }

    /// The principal, or the reason in words.
    fn identify(trust: Trust, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<String, String> {
        let verifier = ClientVerifier::new(trust).unwrap();
        let identity = verifier.identify(certificate, &[], now).map_err(|error| error.to_string())?;
        Ok(identity.principal.as_str().to_owned())
    }

    fn now_plus(seconds: i64) -> UnixTime {
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap();
        UnixTime::since_unix_epoch(Duration::from_secs((now + seconds).try_into().unwrap()))
    }

    #[test]
    fn a_certificate_of_our_ca_identifies_its_principal() {
        let ca = ca("ours");
        let certificate = issue(&ca, &ann());
        assert_eq!(identify(trust(&ca), &certificate, now_plus(0)), Ok("ann".to_owned()));
    }

    #[test]
    fn certificates_of_others_identify_nobody() {
        let (ours, others) = (ca("ours"), ca("others"));
        let refused =
            |certificate: &CertificateDer<'_>| identify(trust(&ours), certificate, now_plus(0)).unwrap_err();
        assert!(refused(&issue(&others, &ann())).contains("UnknownIssuer"));
        // Another CA that has taken the name of ours.
        assert!(refused(&issue(&ca("ours"), &ann())).contains("BadSignature"));
        let alone = ann().self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert!(refused(alone.der()).contains("UnknownIssuer"));
        let mut other_domain = ann();
        let uri = "spiffe://example.com/principal/ann".try_into().unwrap();
        other_domain.subject_alt_names = vec![SanType::URI(uri)];
        assert!(refused(&issue(&ours, &other_domain)).contains("NoPrincipal"));
        let mut for_servers = ann();
        for_servers.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        assert!(refused(&issue(&ours, &for_servers)).contains("does not allow extended key usage"));
        let mut for_nothing = ann();
        for_nothing.extended_key_usages.clear();
        assert!(refused(&issue(&ours, &for_nothing)).contains("NotForClients"));
    }

    #[test]
    fn certificates_that_nobody_needs_are_few() {
        let ours = ca("ours");
        let verifier = ClientVerifier::new(trust(&ours)).unwrap();
        let (ann, other) = (issue(&ours, &ann()), ca("others").der().clone());
        let identify = |count| verifier.identify(&ann, &vec![other.clone(); count], now_plus(0));
        identify(MAX_INTERMEDIATES).unwrap();
        assert!(identify(MAX_INTERMEDIATES + 1).unwrap_err().to_string().contains("ChainTooLong"));
        let long = CertificateDer::from(vec![0; MAX_CHAIN_BYTES]);
        assert!(
            verifier.identify(&ann, &[long], now_plus(0)).unwrap_err().to_string().contains("ChainTooLong")
        );
    }

    #[test]
    fn a_certificate_counts_between_its_two_moments() {
        let ca = ca("ours");
        let mut params = ann();
        let now = OffsetDateTime::from_unix_timestamp(OffsetDateTime::now_utc().unix_timestamp()).unwrap();
        (params.not_before, params.not_after) =
            (now + Duration::from_secs(100), now + Duration::from_secs(200));
        let certificate = issue(&ca, &params);
        let at = |seconds: i64| {
            let moment = u64::try_from(now.unix_timestamp() + seconds).unwrap();
            identify(trust(&ca), &certificate, UnixTime::since_unix_epoch(Duration::from_secs(moment)))
        };
        assert!(at(99).unwrap_err().contains("not valid yet"), "{:?}", at(99));
        assert!(at(100).is_ok() && at(200).is_ok());
        assert!(at(201).unwrap_err().contains("expired"), "{:?}", at(201));
    }

    #[test]
    fn who_is_revoked_or_denied_is_refused() {
        let ca = ca("ours");
        let certificate = issue(&ca, &ann());
        let tomorrow = OffsetDateTime::now_utc() + DAY;
        let revoked = |serials: &[u64], next_update| Trust {
            sets: vec![set(&[&ca], list(&ca, serials, next_update))],
            ..trust(&ca)
        };
        assert!(identify(revoked(&[8], tomorrow), &certificate, now_plus(0)).is_ok());
        assert!(
            identify(revoked(&[7], tomorrow), &certificate, now_plus(0)).unwrap_err().contains("Revoked")
        );
        // A list that has expired still counts.
        let yesterday = OffsetDateTime::now_utc() - DAY;
        assert!(identify(revoked(&[8], yesterday), &certificate, now_plus(0)).is_ok());
        assert!(
            identify(revoked(&[7], yesterday), &certificate, now_plus(0)).unwrap_err().contains("Revoked")
        );
        let denied = Trust { denied: Arc::new(BTreeSet::from([Principal::new("ann")])), ..trust(&ca) };
        assert!(identify(denied, &certificate, now_plus(0)).unwrap_err().contains("Denied"));
    }

    #[test]
    fn a_ca_without_a_revocation_list_is_trusted_only_if_that_is_allowed() {
        let (first, second) = (ca("first"), ca("second"));
        let certificate = issue(&second, &ann());
        let tomorrow = OffsetDateTime::now_utc() + DAY;
        let both = |allow_missing_revocation_list| Trust {
            sets: vec![set(&[&first, &second], list(&first, &[], tomorrow))],
            allow_missing_revocation_list,
            ..trust(&first)
        };
        let refused = identify(both(false), &certificate, now_plus(0)).unwrap_err();
        assert!(refused.contains("UnknownRevocationStatus"), "{refused}");
        assert!(identify(both(true), &certificate, now_plus(0)).is_ok());
    }
}
