//! The folder of files by which a server proves who it is and knows who others are.
//!
//! They are read together and replaced together: a connection is verified with the certificate, the CAs, the
//! revocation lists and the denied principals of one [`Credentials`], never with a mixture. Names of files are those that
//! cert-manager and Kubernetes use, where these have one.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use super::principal::Principal;
use super::verifier::{ClientVerifier, Trust};

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

/// What a server serves TLS with: read once, replaced as a whole.
pub(crate) struct Credentials {
    /// For handshakes in which the client shows a certificate.
    pub(crate) tls: Arc<ServerConfig>,
    /// Verifies the certificates of clients, in handshakes and afterwards.
    pub(crate) verifier: Arc<ClientVerifier>,
    /// What was read, file by file.
    contents: Vec<Vec<u8>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
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

impl Credentials {
    /// Reads the files of this folder.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn read(folder: &CredentialFolder) -> Result<Self, CredentialsError> {
        let mut files = Files { folder: &folder.path, contents: Vec::new() };
        let certificates: Vec<CertificateDer<'static>> = files.pem_items(CERTIFICATE, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(files.read(KEY)?);
        let key = key.map_err(|error| files.wrong(KEY, &error))?;
        let trust = files.trust(folder)?;
        let verifier = ClientVerifier::new(trust).map_err(|error| files.wrong(CLIENT_CAS, &error))?;
        let verifier = Arc::new(verifier);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has ciphers of TLS 1.3")
            .with_client_cert_verifier(verifier.clone());
        let mut tls = builder
            .with_single_cert(certificates, key)
            .map_err(|error| files.wrong(CERTIFICATE, &format!("it does not fit {KEY}: {error}")))?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        // A session that is resumed would skip the verification of the client's certificate.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        tls.max_early_data_size = 0;
        Ok(Self { tls: Arc::new(tls), verifier, contents: files.contents })
    }

    /// Whether the files held the same when these were read.
    pub(crate) fn has_same_files(&self, other: &Self) -> bool {
        self.contents == other.contents
    }
}

/// Reads the files of a folder, and keeps what they hold.
struct Files<'a> {
    folder: &'a Path,
    contents: Vec<Vec<u8>>,
}

impl Files<'_> {
    fn trust(&mut self, folder: &CredentialFolder) -> Result<Trust, CredentialsError> {
        let cas: Vec<CertificateDer<'static>> = self.pem_items(CLIENT_CAS, "certificate")?;
        let lists: Vec<CertificateRevocationListDer<'static>> =
            if folder.allow_missing_revocation_list && !self.folder.join(REVOCATION_LISTS).exists() {
                self.contents.push(Vec::new());
                Vec::new()
            } else {
                self.pem_items(REVOCATION_LISTS, "revocation list")?
            };
        self.check_revocation_lists(&cas, &lists, folder.allow_missing_revocation_list)?;
        Ok(Trust {
            cas,
            revocation_lists: lists,
            allow_missing_revocation_list: folder.allow_missing_revocation_list,
            trust_domain: folder.trust_domain.clone(),
            denied: self.denied()?,
        })
    }

    /// Every CA has a revocation list, unless it need not have one. A list that has expired is told and still counts.
    fn check_revocation_lists(
        &self,
        cas: &[CertificateDer<'_>],
        lists: &[CertificateRevocationListDer<'_>],
        allow_missing: bool,
    ) -> Result<(), CredentialsError> {
        let mut issuers = Vec::new();
        for list in lists {
            let (_, list) = CertificateRevocationList::from_der(list)
                .map_err(|error| self.wrong(REVOCATION_LISTS, &error))?;
            issuers.push(list.issuer().as_raw().to_vec());
            if list.next_update().is_some_and(|due| due.timestamp() < seconds_since_1970()) {
                let (path, issuer) = (self.folder.join(REVOCATION_LISTS), list.issuer().to_string());
                tracing::error!(path = %path.display(), issuer, "this revocation list has expired: give a newer one");
            }
        }
        for ca in cas {
            let (_, ca) = X509Certificate::from_der(ca).map_err(|error| self.wrong(CLIENT_CAS, &error))?;
            if !allow_missing && !issuers.iter().any(|issuer| issuer == ca.subject().as_raw()) {
                let what = format!(
                    "there is no revocation list of CA {} in it: add one, or serve with \
                     --allow-missing-revocation-list",
                    ca.subject()
                );
                return Err(self.wrong(REVOCATION_LISTS, &what));
            }
        }
        Ok(())
    }

    fn denied(&mut self) -> Result<BTreeSet<Principal>, CredentialsError> {
        if !self.folder.join(DENIED).exists() {
            self.contents.push(Vec::new());
            return Ok(BTreeSet::new());
        }
        let text = self.read(DENIED)?.to_vec();
        let text = String::from_utf8(text).map_err(|error| self.wrong(DENIED, &error))?;
        let mut denied = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let name = line.split('#').next().unwrap_or_default().trim();
            if name.is_empty() {
                continue;
            }
            if !is_principal_name(name.as_bytes()) {
                let what =
                    format!("line {number}: {name:?} is no name of a principal: give {PRINCIPAL_GRAMMAR}");
                return Err(self.wrong(DENIED, &what));
            }
            denied.insert(Principal::new(name));
        }
        Ok(denied)
    }

    /// All items of one kind in a file; there is at least one.
    fn pem_items<T: PemObject>(&mut self, name: &str, kind: &str) -> Result<Vec<T>, CredentialsError> {
        let items: Result<Vec<T>, pem::Error> = T::pem_slice_iter(self.read(name)?).collect();
        let items = items.map_err(|error| self.wrong(name, &error))?;
        if items.is_empty() {
            return Err(self.wrong(name, &format!("there is no {kind} in PEM in it")));
        }
        Ok(items)
    }

    fn read(&mut self, name: &str) -> Result<&[u8], CredentialsError> {
        let path = self.folder.join(name);
        let bytes = fs::read(&path).map_err(|error| CredentialsError::Io { path, error })?;
        Ok(self.contents.push_mut(bytes))
    }

    fn wrong(&self, name: &str, what: &impl fmt::Display) -> CredentialsError {
        CredentialsError::Content { path: self.folder.join(name), what: what.to_string() }
    }
}

fn seconds_since_1970() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
