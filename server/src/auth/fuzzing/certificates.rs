//! Certificates: as they come, described and issued, and good ones that were changed.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationList, CertificateRevocationListParams,
    CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use stickycas_proto::principal::is_principal_name;
use time::OffsetDateTime;

use super::changed;
use crate::auth::certificate::ClientIdentity;
use crate::auth::principal::Principal;
use crate::auth::verifier::{ClientVerifier, Trust, TrustSet};

pub(super) const DOMAIN: &str = "example.org";
/// The principal of the good certificate.
pub(super) const GOOD: &str = "ann";
const DENIED: &str = "bob";
const REVOKED: u64 = 7;
/// In seconds since 1970, as all times here.
const NOW: i64 = 1_800_000_000;
const DAY: i64 = 24 * 3600;

type Ca = CertifiedIssuer<'static, KeyPair>;

pub(super) struct Setup {
    pub(super) ca: Ca,
    /// Another CA that has taken the name of ours.
    other: Ca,
    /// The revocation list of our CA, in PEM.
    pub(super) list: String,
    verifier: ClientVerifier,
    /// A good certificate.
    pub(super) good: Vec<u8>,
}

pub(super) static SETUP: LazyLock<Setup> = LazyLock::new(|| {
    let ca = ca(1);
    let list = revocation_list(&ca);
    let trust = Trust {
        sets: vec![TrustSet { cas: vec![ca.der().clone()], revocation_lists: vec![list.der().clone()] }],
        allow_missing_revocation_list: false,
        trust_domain: DOMAIN.to_owned(),
        denied: Arc::new(BTreeSet::from([Principal::new(DENIED)])),
    };
    let verifier = ClientVerifier::new(trust).expect("the CA is good");
    let good = issued(&ca, &Description::good()).to_vec();
    let list = list.pem().expect("it was encoded before");
    Setup { ca, other: self::ca(2), list, verifier, good }
});

/// The key of Ed25519 with this number: always the same, so that what was found can be repeated.
pub(super) fn key(number: u8) -> KeyPair {
    const PKCS8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let der = PrivatePkcs8KeyDer::from([PKCS8, &[number; 32]].concat());
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).expect("every 32 bytes are a key")
}

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).expect("it is a moment of this century")
}

pub(super) fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW.unsigned_abs()))
}

fn ca(number: u8) -> Ca {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "ours");
    params.serial_number = Some(SerialNumber::from(u64::from(number)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = (at(NOW - 9 * DAY), at(NOW + 9 * DAY));
    Ca::self_signed(params, key(number)).expect("the parameters are good")
}

fn revocation_list(ca: &Ca) -> CertificateRevocationList {
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(REVOKED),
        revocation_time: at(NOW - DAY),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: at(NOW - DAY),
        next_update: at(NOW + DAY),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(ca).expect("the parameters are good")
}

// The unusual properties of a described certificate.
const NOT_FOR_CLIENTS: u8 = 1;
const FOR_SERVERS: u8 = 1 << 1;
const OF_OTHER_CA: u8 = 1 << 2;
const IS_REVOKED: u8 = 1 << 3;
const NOT_VALID_YET: u8 = 1 << 4;
const HAS_EXPIRED: u8 = 1 << 5;

/// A certificate that a CA issues.
struct Description {
    flags: u8,
    names: Vec<SanType>,
}

impl Description {
    fn good() -> Self {
        let uri = format!("spiffe://{DOMAIN}/principal/{GOOD}");
        Self { flags: 0, names: vec![SanType::URI(uri.try_into().expect("it is ASCII"))] }
    }

    /// The first byte has the flags; then come names in lines, of a kind that the first letter says.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (flags, names) = bytes.split_first()?;
        let names = std::str::from_utf8(names).ok()?;
        let names = names.lines().filter_map(|line| {
            let name = || line.get(1..)?.try_into().ok();
            match line.as_bytes().first()? {
                b'u' => name().map(SanType::URI),
                b'd' => name().map(SanType::DnsName),
                b'm' => name().map(SanType::Rfc822Name),
                _ => Some(SanType::IpAddress([127, 0, 0, 1].into())),
            }
        });
        Some(Self { flags: *flags, names: names.collect() })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The principal that must be identified by it.
    fn principal(&self) -> Option<&str> {
        const REFUSED: u8 = NOT_FOR_CLIENTS | OF_OTHER_CA | IS_REVOKED | NOT_VALID_YET | HAS_EXPIRED;
        let mut uris = self.names.iter().filter_map(|name| match name {
            SanType::URI(uri) => Some(uri.as_str()),
            _ => None,
        });
        let uri = uris.next().filter(|_| uris.next().is_none())?;
        let name = uri.strip_prefix(&format!("spiffe://{DOMAIN}/principal/"))?;
        (!self.has(REFUSED) && is_principal_name(name.as_bytes()) && name != DENIED).then_some(name)
    }
}

fn issued(ca: &Ca, description: &Description) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.subject_alt_names.clone_from(&description.names);
    params.serial_number = Some(SerialNumber::from(if description.has(IS_REVOKED) { REVOKED } else { 8 }));
    if !description.has(NOT_FOR_CLIENTS) {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    if description.has(FOR_SERVERS) {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.not_before = at(if description.has(NOT_VALID_YET) { NOW + 1 } else { NOW - DAY });
    params.not_after = at(if description.has(HAS_EXPIRED) { NOW - 1 } else { NOW + DAY });
    params.signed_by(&key(3), ca).expect("the parameters are good").der().clone()
}

/// The first byte is the kind of the others: a certificate; the description of one that is then issued; or
/// changes of a good one.
pub fn certificate(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let Setup { ca, other, verifier, good, .. } = &*SETUP;
    let identified = |certificate: &CertificateDer<'_>| {
        let identity = verifier.identify(certificate, &[], now());
        identity.map(|identity| identity.principal.as_str().to_owned())
    };
    match kind % 3 {
        0 => {
            let certificate = CertificateDer::from(rest);
            if let Ok(ClientIdentity { principal, .. }) = ClientIdentity::read(&certificate, DOMAIN) {
                let uri = format!("spiffe://{DOMAIN}/principal/{}", principal.as_str());
                assert!(is_principal_name(principal.as_str().as_bytes()), "{uri}");
                let uri = uri.as_bytes();
                assert!(rest.windows(uri.len()).any(|window| window == uri), "{principal:?} is not in it");
            }
            if let Ok(principal) = identified(&certificate) {
                assert_eq!(principal, GOOD, "the CA has issued no other");
            }
        }
        1 => {
            let Some(description) = Description::read(rest) else { return };
            let issuer = if description.has(OF_OTHER_CA) { other } else { ca };
            let certificate = issued(issuer, &description);
            assert_eq!(identified(&certificate).ok().as_deref(), description.principal());
        }
        _ => {
            let changed = CertificateDer::from(changed(good, rest));
            let _ = ClientIdentity::read(&changed, DOMAIN);
            if identified(&changed).is_ok() {
                assert_eq!(&*changed, &**good, "it has changed, and its signature is good");
            }
        }
    }
}

/// Certificates of every kind, good and nearly good ones.
#[must_use]
pub fn certificate_seeds() -> Vec<Vec<u8>> {
    let good = format!("uspiffe://{DOMAIN}/principal/{GOOD}");
    let mut seeds =
        vec![[&[0], &*SETUP.good].concat(), [&[0], &**SETUP.ca.der()].concat(), vec![2], vec![2, 0, 40, 1]];
    for flag in 0..8 {
        seeds.push([&[1, 1_u8.checked_shl(flag).unwrap_or(0)], good.as_bytes()].concat());
    }
    let names = [
        good.clone(),
        format!("{good}\n{good}"),
        format!("dother.{DOMAIN}\n{good}\nmann@{DOMAIN}\ni"),
        format!("uspiffe://{DOMAIN}/principal/{DENIED}"),
        format!("uspiffe://{DOMAIN}/process/{GOOD}"),
        format!("d{DOMAIN}"),
        String::new(),
    ];
    for names in names {
        seeds.push([&[1, 0], names.as_bytes()].concat());
        let description = Description::read(&[&[0], names.as_bytes()].concat()).expect("it is one");
        seeds.push([&[0], &*issued(&SETUP.ca, &description)].concat());
    }
    seeds
}
