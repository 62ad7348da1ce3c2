//! The folder of files by which a server proves who it is and knows who others are.
//!
//! The files are read together: twice, until two readings agree, so that what is read while somebody replaces files is no
//! mixture of old and new ones. Names of files are those that cert-manager and Kubernetes use, where these have one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};

/// The server's certificate, and behind it those between it and its CA.
pub(crate) const CERTIFICATE: &str = "tls.crt";
/// The key of the certificate.
pub(crate) const KEY: &str = "tls.key";
/// The CAs of clients. Several: while one takes the place of another.
pub(crate) const CLIENT_CAS: &str = "client-ca.crt";
/// The revocation lists of these CAs.
pub(crate) const REVOCATION_LISTS: &str = "client-ca.crl";
/// Principals that are refused whatever they show, one in a line; `#` begins a comment. Need not exist.
pub(crate) const DENIED: &str = "denied";
/// The roles of principals, beside those of the settings. Need not exist.
pub(crate) const ROLES: &str = "roles.toml";
/// The public keys of tokens, if there is a listener for tokens.
pub(crate) const TOKEN_KEYS: &str = "token-keys.json";

pub(super) const ALL: [&str; 7] = [CERTIFICATE, KEY, CLIENT_CAS, REVOCATION_LISTS, DENIED, ROLES, TOKEN_KEYS];

/// Where the credentials of a server with TLS are, and whom they concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFolder {
    /// The folder.
    pub path: PathBuf,
    /// The trust domain to which the CAs in it are bound.
    pub trust_domain: String,
    /// Whether a CA without a revocation list is trusted.
    pub allow_missing_revocation_list: bool,
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// What the files of a folder held at one moment.
#[derive(PartialEq, Eq)]
pub(super) struct Files {
    folder: PathBuf,
    contents: BTreeMap<&'static str, Vec<u8>>,
}

impl Files {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read that exists.
    pub(super) fn read(folder: &Path) -> Result<Self, CredentialsError> {
        /// Files that change all the time are as good as any others.
        const READINGS: usize = 5;
        let mut files = Self::read_once(folder)?;
        for _ in 1..READINGS {
            let again = Self::read_once(folder)?;
            if again == files {
                break;
            }
            files = again;
        }
        Ok(files)
    }

    fn read_once(folder: &Path) -> Result<Self, CredentialsError> {
        let mut contents = BTreeMap::new();
        for name in ALL {
            let path = folder.join(name);
            match fs::read(&path) {
                Ok(bytes) => drop(contents.insert(name, bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(CredentialsError::Io { path, error }),
            }
        }
        Ok(Self { folder: folder.to_owned(), contents })
    }

    /// Files with these contents, for [`crate::fuzzing`].
    #[cfg(feature = "fuzzing")]
    pub(super) fn of(folder: PathBuf, contents: BTreeMap<&'static str, Vec<u8>>) -> Self {
        Self { folder, contents }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The bytes of a file that must exist.
    pub(super) fn get(&self, name: &str) -> Result<&[u8], CredentialsError> {
        let absent = || self.wrong(name, &"there is no such file");
        self.optional(name).ok_or_else(absent)
    }

    /// The bytes of a file that need not exist.
    pub(super) fn optional(&self, name: &str) -> Option<&[u8]> {
        self.contents.get(name).map(Vec::as_slice)
    }

    /// The text of a file that need not exist.
    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&str>, CredentialsError> {
        let text = self.optional(name).map(std::str::from_utf8).transpose();
        text.map_err(|error| self.wrong(name, &error))
    }

    /// All items of one kind in a file; there is at least one.
    pub(super) fn pem_items<T: PemObject>(&self, name: &str, kind: &str) -> Result<Vec<T>, CredentialsError> {
        let items: Result<Vec<T>, pem::Error> = T::pem_slice_iter(self.get(name)?).collect();
        let items = items.map_err(|error| self.wrong(name, &error))?;
        if items.is_empty() {
            return Err(self.wrong(name, &format!("there is no {kind} in PEM in it")));
        }
        Ok(items)
    }

    /// The error that a file does not hold what it should.
    pub(super) fn wrong(&self, name: &str, what: &impl fmt::Display) -> CredentialsError {
        CredentialsError::Content { path: self.path(name), what: what.to_string() }
    }
}
