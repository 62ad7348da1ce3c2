//! Files of credentials that must be refused, and CAs that take the place of others.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber,
};
use rustls::pki_types::UnixTime;
use time::{Duration, OffsetDateTime};

use super::*;
use crate::auth::folder::ALL;

/// All moments are counted from this one, in seconds.
const NOW: u64 = 1_800_000_000;
const DAY: i64 = 24 * 3600;

type Ca = CertifiedIssuer<'static, KeyPair>;

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(NOW.cast_signed()).unwrap() + Duration::seconds(seconds)
}

/// Valid for a day before and after.
fn ca_with_key(name: &str, key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Ca {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = (at(-DAY), at(DAY));
    change(&mut params);
    Ca::self_signed(params, key).unwrap()
}

fn ca(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Ca {
    ca_with_key(name, KeyPair::generate().unwrap(), change)
}

fn leaf(change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (at(-9 * DAY), at(9 * DAY));
    change(&mut params);
    params
}

/// A certificate of ann.
fn ann(ca: &Ca, serial: u64) -> CertificateDer<'static> {
    let params = leaf(|params| {
        let uri = "spiffe://example.org/principal/ann".try_into().unwrap();
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(SerialNumber::from(serial));
    });
    params.signed_by(&KeyPair::generate().unwrap(), ca).unwrap().der().clone()
}

/// The revocation list of a CA, in PEM.
fn list(ca: &Ca, revoked: &[u64]) -> String {
    let revoked = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: at(-DAY),
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: at(-DAY),
        next_update: at(DAY),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(ca).unwrap().pem().unwrap()
}

/// Files of a server; the CAs of its clients, each with a list that revokes certificate 7.
struct Content(BTreeMap<&'static str, Vec<u8>>);

impl Content {
    fn of(cas: &[&Ca]) -> Self {
        let key = KeyPair::generate().unwrap();
        let own = leaf(|_| ()).self_signed(&key).unwrap();
        let lists: Vec<String> = cas.iter().map(|ca| list(ca, &[7])).collect();
        Self(BTreeMap::new())
            .with(CERTIFICATE, own.pem())
            .with(KEY, key.serialize_pem())
            .with(CLIENT_CAS, cas.iter().map(|ca| ca.pem()).collect::<String>())
            .with(REVOCATION_LISTS, lists.concat())
    }

    fn with(mut self, name: &'static str, content: impl Into<Vec<u8>>) -> Self {
        self.0.insert(name, content.into());
        self
    }

    fn read(&self, old: Option<&Credentials>, after: i64) -> Result<Credentials, String> {
        self.read_with(old, after, false)
    }

    fn read_with(&self, old: Option<&Credentials>, after: i64, lax: bool) -> Result<Credentials, String> {
        let now = NOW.checked_add_signed(after).unwrap();
        source(lax).parse(self.files(), old, now).map_err(|error| error.to_string())
    }

    fn files(&self) -> Files {
        Files::of(Path::new("folder").to_owned(), self.0.clone())
    }
}

fn source(lax: bool) -> CredentialSource {
    let path = Path::new("folder");
    CredentialSource {
        folder: CredentialFolder {
            path: path.to_owned(),
            trust_domain: "example.org".to_owned(),
            allow_missing_revocation_list: lax,
        },
        files: FileReader::new(path),
        tokens: None,
        cached_tokens: 8,
        roles: Roles::default(),
    }
}

/// With CAs of which one ends, and files afterwards that cannot be used.
#[test]
fn a_ca_ends_also_while_the_files_cannot_be_used() {
    let (ending, lasting) = (ca("ending", |params| params.not_after = at(10)), ca("lasting", |_| ()));
    let content = Content::of(&[&ending, &lasting]);
    let old = content.read(None, 0).unwrap();
    let [of_ending, of_lasting] = [&ending, &lasting].map(|ca| ann(ca, 1));
    let wrong = || Ok(Content::of(&[&ending, &lasting]).with(CLIENT_CAS, "half").files());
    let (none, error) = source(false).changed(&old, wrong(), NOW + 5);
    assert!(none.is_none() && error.is_err());
    knows(&old, &of_ending, 20).unwrap();
    let hangs = || Err(CredentialsError::NotYet { path: "folder".into(), what: "not read".to_owned() });
    for files in [wrong(), hangs()] {
        let (next, error) = source(false).changed(&old, files, NOW + 20);
        let next = next.unwrap();
        assert!(error.is_err() && knows(&next, &of_ending, 20).is_err());
        knows(&next, &of_lasting, 20).unwrap();
    }
}

/// The clock of a machine may be behind when it starts.
#[test]
fn what_is_not_valid_yet_may_be_at_the_next_start() {
    let good = ca("good", |_| ());
    let read = |content: Content| source(false).parse(content.files(), None, NOW).unwrap_err();
    let own = |change: fn(&mut CertificateParams)| {
        let key = KeyPair::generate().unwrap();
        let own = leaf(change).self_signed(&key).unwrap();
        read(Content::of(&[&good]).with(CERTIFICATE, own.pem()).with(KEY, key.serialize_pem()))
    };
    let client_ca = |change: fn(&mut CertificateParams)| read(Content::of(&[&ca("bad", change)]));
    let early: fn(&mut CertificateParams) = |params| params.not_before = at(1);
    let late: fn(&mut CertificateParams) = |params| params.not_after = at(-1);
    for (error, is_final) in
        [(own(early), false), (own(late), true), (client_ca(early), false), (client_ca(late), true)]
    {
        assert_eq!(error.is_final(), is_final, "{error}");
    }
}

/// Whether these credentials know the client, some seconds later.
fn knows(credentials: &Credentials, certificate: &CertificateDer<'_>, after: i64) -> Result<(), String> {
    let now = NOW.checked_add_signed(after).unwrap();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
    credentials.verifier.identify(certificate, &[], now).map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_client_ca_that_can_be_none_is_refused() {
    let good = ca("good", |_| ());
    for (what, is_refused_beside_a_good_one, bad) in [
        ("is no CA", true, ca("bad", |params| params.is_ca = IsCa::ExplicitNoCa)),
        ("is no CA", true, ca("bad", |params| params.is_ca = IsCa::NoCa)),
        ("has no keyCertSign", true, ca("bad", |params| params.key_usages = vec![KeyUsagePurpose::CrlSign])),
        ("has expired, on ", false, ca("bad", |params| params.not_after = at(-1))),
        ("is not valid before ", false, ca("bad", |params| params.not_before = at(1))),
    ] {
        let alone = Content::of(&[&bad]).read(None, 0).unwrap_err();
        assert!(alone.contains("client-ca.crt: ") && alone.contains(what), "{alone}");
        let client = ann(&bad, 1);
        match Content::of(&[&bad, &good]).read(None, 0) {
            Err(both) => assert!(is_refused_beside_a_good_one && both.contains(what), "{both}"),
            Ok(both) => {
                assert!(!is_refused_beside_a_good_one && knows(&both, &client, 0).is_err(), "{what}");
                knows(&both, &ann(&good, 1), 0).unwrap();
                let warnings = both.warnings(NOW);
                assert!(warnings.len() == 1 && warnings[0].contains(what), "{warnings:?}");
            }
        }
    }
}

#[test]
fn a_client_ca_counts_between_its_two_moments() {
    let (old, new) =
        (ca("old", |params| params.not_after = at(100)), ca("new", |params| params.not_before = at(50)));
    let content = Content::of(&[&old, &new]);
    let clients = [ann(&old, 1), ann(&new, 1)];
    let mut in_force = content.read(None, 0).unwrap();
    for (after, expected) in [
        (0, [true, false]),
        (49, [true, false]),
        (50, [true, true]),
        (100, [true, true]),
        (101, [false, true]),
    ] {
        let now = NOW.checked_add_signed(after).unwrap();
        // What is in force is left alone until that moment.
        let changes = expected != [0, 1].map(|which: usize| knows(&in_force, &clients[which], after).is_ok());
        assert_eq!(!in_force.client_cas.are_same_at(now), changes, "after {after} s");
        in_force = content.read(Some(&in_force), after).unwrap();
        let known = [0, 1].map(|which: usize| knows(&in_force, &clients[which], after).is_ok());
        assert_eq!(known, expected, "after {after} s");
    }
    // A clock that was put back.
    assert!(!in_force.client_cas.are_same_at(NOW));
    assert_eq!(in_force.client_cas.not_after(), NOW + 100, "the alarm stays until it is taken out");
}

#[test]
fn what_ends_while_it_is_in_force_counts_on_with_a_warning() {
    let last = ca("last", |_| ());
    let content = Content::of(&[&last]);
    let in_force = content.read(None, 0).unwrap();
    assert_eq!(in_force.warnings(NOW), [""; 0]);
    let after = 10 * DAY;
    let now = NOW.checked_add_signed(after).unwrap();
    assert!(in_force.client_cas.are_same_at(now), "there is no other");
    let warnings = in_force.warnings(now);
    for (warning, name) in warnings.iter().zip([CERTIFICATE, CLIENT_CAS, REVOCATION_LISTS]) {
        assert!(warning.contains(name) && warning.contains("has expired"), "{warnings:?}");
    }
    assert_eq!(warnings.len(), 3);
    // Other files can be replaced all the same, and nothing else: a new file, and a start, is held to the
    // clock.
    let denied = content.with(DENIED, "bob\n");
    let next = denied.read(Some(&in_force), after).unwrap();
    assert!(next.verifier.check_denied(&Principal::new("bob")).is_err());
    knows(&next, &ann(&last, 1), DAY + 1).expect("the CA has ended, and the certificate not");
    assert!(denied.read(None, after).unwrap_err().contains("has expired"));
    let renewed = denied.with(CLIENT_CAS, ca("last", |_| ()).pem());
    assert!(renewed.read(Some(&next), after).unwrap_err().contains("client-ca.crt: "));
}

#[test]
fn a_server_that_nobody_could_trust_does_not_start() {
    let ours = ca("ours", |_| ());
    let key = KeyPair::generate().unwrap();
    let signed = |change: &dyn Fn(&mut CertificateParams)| leaf(change).self_signed(&key).unwrap().pem();
    let read = |certificates: String| {
        let content = Content::of(&[&ours]).with(CERTIFICATE, certificates).with(KEY, key.serialize_pem());
        content.read(None, 0).map(|credentials| credentials.not_after)
    };
    let good = signed(&|_| ());
    let until = |days: u64| NOW + days * DAY.cast_unsigned();
    assert_eq!(read(good.clone()), Ok(until(9)));
    let sooner = signed(&|params| params.not_after = at(DAY));
    assert_eq!(read(format!("{good}{sooner}")), Ok(until(1)), "the alarm looks at all of them");
    let (expired, early) =
        (signed(&|params| params.not_after = at(-1)), signed(&|params| params.not_before = at(1)));
    for bad in [expired.clone(), format!("{good}{expired}"), early] {
        let refused = read(bad).unwrap_err();
        assert!(refused.contains("tls.crt: "), "{refused}");
    }
}

#[test]
fn a_ca_may_be_renewed_with_its_name() {
    let (old, new, other) = (ca("ours", |_| ()), ca("ours", |_| ()), ca("other", |_| ()));
    let both = Content::of(&[&old, &new, &other]).read(None, 0).unwrap();
    for ca in [&old, &new, &other] {
        knows(&both, &ann(ca, 1), 0).unwrap();
        // Each is asked for its own list, whatever the others say.
        let refused = knows(&both, &ann(ca, 7), 0).unwrap_err();
        assert!(refused.contains("Revoked"), "{refused}");
    }
    let refused = knows(&both, &ann(&ca("ours", |_| ()), 1), 0).unwrap_err();
    assert!(refused.contains("BadSignature"), "{refused}");
    // A certificate alone that was renewed, of one key.
    let later = ca_with_key("ours", KeyPair::try_from(old.key().serialize_der()).unwrap(), |params| {
        params.not_after = at(9 * DAY);
    });
    let content = Content::of(&[&old, &later]).with(REVOCATION_LISTS, list(&old, &[7]));
    let renewed = content.read(None, 2 * DAY).unwrap();
    knows(&renewed, &ann(&old, 1), 2 * DAY).unwrap();
    knows(&renewed, &ann(&later, 7), 2 * DAY).unwrap_err();
}

#[test]
fn each_key_of_a_name_needs_its_list() {
    let (old, new) = (ca("ours", |_| ()), ca("ours", |_| ()));
    let lists = |lists: &[String]| {
        let content = Content::of(&[&old, &new]).with(REVOCATION_LISTS, lists.concat());
        [false, true].map(|lax| content.read_with(None, 0, lax).map(drop).unwrap_err())
    };
    for refused in lists(&[list(&old, &[])]) {
        assert!(refused.contains("client-ca.crl: there is no revocation list of CA CN="), "{refused}");
    }
    for refused in lists(&[list(&old, &[]), list(&new, &[]), list(&new, &[7])]) {
        assert!(refused.contains("client-ca.crl: there are two revocation lists of CA CN="), "{refused}");
    }
    for refused in lists(&[list(&old, &[]), list(&new, &[]), list(&ca("ours", |_| ()), &[])]) {
        assert!(refused.contains("is not signed by the key of that CA"), "{refused}");
    }
    let many: Vec<Ca> = (0..40).map(|number| ca(&format!("ours {}", number / 4), |_| ())).collect();
    let refused = Content::of(&many.iter().collect::<Vec<_>>()).read(None, 0).unwrap_err();
    assert!(refused.contains("too many CAs share their names"), "{refused}");
}

/// Two lists of an issuer that only clients show: of two keys either may be the right one, of one key the
/// newest alone.
#[test]
fn a_ca_below_ours_may_be_renewed_with_its_name() {
    let ours = ca("ours", |_| ());
    let below = || {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "below");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (at(-DAY), at(DAY));
        Ca::signed_by(params, KeyPair::generate().unwrap(), &ours).unwrap()
    };
    let (old, new) = (below(), below());
    let lists = [list(&ours, &[]), list(&old, &[7]), list(&new, &[8])].concat();
    let both = Content::of(&[&ours]).with(REVOCATION_LISTS, lists.clone()).read(None, 0).unwrap();
    let knows = |ca: &Ca, serial| {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW));
        let identified = both.verifier.identify(&ann(ca, serial), &[ca.der().clone()], now);
        identified.map(drop).map_err(|error| error.to_string())
    };
    knows(&old, 8).unwrap();
    knows(&new, 7).unwrap();
    for (ca, serial) in [(&old, 7), (&new, 8)] {
        let refused = knows(ca, serial).unwrap_err();
        assert!(refused.contains("Revoked"), "{refused}");
    }
    let again = format!("{lists}{}", list(&old, &[]));
    let refused = Content::of(&[&ours]).with(REVOCATION_LISTS, again).read(None, 0).unwrap_err();
    assert!(refused.contains("there are two revocation lists of CA CN="), "{refused}");
}

#[test]
fn half_a_file_is_refused_wherever_it_ends() {
    let cas = [ca("one", |_| ()), ca("two", |_| ())];
    let content = Content::of(&[&cas[0], &cas[1]]);
    let content = content.with(DENIED, "# lost their keys\nann\nbob # since yesterday\neve\n");
    content.read(None, 0).unwrap();
    for name in ALL.into_iter().filter(|name| content.0.contains_key(name)) {
        let whole = content.0[name].clone();
        // Whole lines of names, or certificates, are a file of their own: that is known by how it was
        // written.
        let is_end = |end: usize| match name {
            DENIED => end == 0 || whole[end - 1] == b'\n',
            // A line of dashes alone is none.
            _ => {
                let last = whole[..end].trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap();
                last.starts_with(b"-----END ") && last.ends_with(b"-----")
            }
        };
        for end in (0..whole.len() - 1).filter(|end| !is_end(*end)) {
            let half = Content(content.0.clone()).with(name, &whole[..end]);
            let refused = half.read(None, 0).map(drop).expect_err(&format!("{name} to byte {end}"));
            assert!(refused.contains(name) || name == KEY, "{name}: {refused}");
        }
    }
}

#[test]
fn a_list_that_the_library_refuses_is_refused_by_the_name_of_its_file() {
    let ours = ca("ours", |_| ());
    let content = Content::of(&[&ours]);
    let der = rustls::pki_types::pem::PemObject::from_pem_slice(&content.0[REVOCATION_LISTS]).unwrap();
    let der: CertificateRevocationListDer<'_> = der;
    let longer = STANDARD.encode([&*der, &[0]].concat());
    let longer = format!("-----BEGIN X509 CRL-----\n{longer}\n-----END X509 CRL-----\n");
    let refused = content.with(REVOCATION_LISTS, longer).read(None, 0).unwrap_err();
    assert!(refused.contains("client-ca.crl: a revocation list cannot be used: "), "{refused}");
}
