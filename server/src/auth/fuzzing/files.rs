//! The files of a server's credentials: all of them good but one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use rcgen::CertificateParams;
use rustls::pki_types::CertificateDer;
use stickycas_proto::principal::is_principal_name;

use super::certificates::{DOMAIN, GOOD, SETUP, key, now};
use super::tokens::{KEY_SET, config};
use crate::auth::credentials::{CredentialSource, Credentials};
use crate::auth::folder::{
    ALL, CERTIFICATE, CLIENT_CAS, DENIED, FileReader, Files, KEY, REVOCATION_LISTS, ROLES, TOKEN_KEYS,
};
use crate::auth::principal::Principal;
use crate::auth::roles::Roles;
use crate::config::CredentialFolder;

static GOOD_FILES: LazyLock<BTreeMap<&'static str, Vec<u8>>> = LazyLock::new(|| {
    let key = key(4);
    let params = CertificateParams::new(["localhost".to_owned()]).expect("it is the name of a host");
    let own = params.self_signed(&key).expect("the parameters are good");
    BTreeMap::from([
        (CERTIFICATE, own.pem().into_bytes()),
        (KEY, key.serialize_pem().into_bytes()),
        (CLIENT_CAS, SETUP.ca.pem().into_bytes()),
        (REVOCATION_LISTS, SETUP.list.clone().into_bytes()),
        (DENIED, b"# nobody\n".to_vec()),
        (ROLES, b"coordinators = ['ann']\nobservers = []\nadmins = [\n'eve',\n]\n".to_vec()),
        (TOKEN_KEYS, KEY_SET.as_bytes().to_vec()),
    ])
});

/// The first byte says which file has the other bytes, and whether a CA may have no revocation list.
pub fn credentials(bytes: &[u8]) {
    let Some((which, content)) = bytes.split_first() else { return };
    let name = ALL[usize::from(which & 0x7f) % ALL.len()];
    let mut contents = GOOD_FILES.clone();
    contents.insert(name, content.to_vec());
    let folder = PathBuf::from("folder");
    let source = CredentialSource {
        files: FileReader::new(&folder),
        folder: CredentialFolder {
            path: folder.clone(),
            trust_domain: DOMAIN.to_owned(),
            allow_missing_revocation_list: which & 0x80 != 0,
        },
        tokens: Some(config()),
        cached_tokens: 8,
        roles: Roles::default(),
    };
    match source.parse(Files::of(folder, contents), None, now().as_secs()) {
        Ok(credentials) => check(&credentials, name, content),
        // The certificate and its key are told together.
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains(name) || name == KEY && error.contains(CERTIFICATE), "{name}: {error}");
        }
    }
}

/// Credentials that were taken do what the file says.
fn check(credentials: &Credentials, name: &str, content: &[u8]) {
    let good = CertificateDer::from(SETUP.good.as_slice());
    let identified = credentials.verifier.identify(&good, &[], now());
    match name {
        DENIED => {
            let text = std::str::from_utf8(content).expect("it was read as a text");
            let is_denied =
                text.lines().any(|line| line.split('#').next().is_some_and(|name| name.trim() == GOOD));
            assert_eq!(identified.is_err(), is_denied, "{text:?}");
        }
        // Other CAs and other lists: whatever they say, it is no other principal.
        CLIENT_CAS | REVOCATION_LISTS => {
            if let Ok(identity) = identified {
                assert_eq!(identity.principal.as_str(), GOOD);
            }
        }
        ROLES => {
            let roles = &credentials.roles;
            for name in roles.coordinators().chain(roles.observers()) {
                assert!(is_principal_name(name.as_bytes()), "{name:?}");
            }
            for name in roles.coordinators() {
                assert!(roles.rights(&Principal::new(name)).coordinator);
            }
        }
        _ => assert!(identified.is_ok(), "{name} says nothing about clients"),
    }
}

/// Every file as it should be, and some that nearly are.
#[must_use]
pub fn credentials_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (which, name) in (0..).zip(ALL) {
        let good = &GOOD_FILES[name];
        seeds.push([&[which], good.as_slice()].concat());
        seeds.push([&[which | 0x80], good.as_slice(), good].concat());
    }
    let place = |name| u8::try_from(ALL.iter().position(|each| *each == name).unwrap_or(0)).unwrap_or(0);
    let denied = b"bob\nann # since yesterday\n\n";
    seeds.push([&[place(DENIED)], denied.as_slice()].concat());
    seeds.push([&[place(ROLES)], b"admins = ['a b']".as_slice()].concat());
    seeds.push([&[place(REVOCATION_LISTS) | 0x80], b"".as_slice()].concat());
    seeds
}
