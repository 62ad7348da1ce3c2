//! One generation of credentials: what a server serves TLS with, whom it trusts, and who may do what.
//!
//! It is read as a whole and replaced as a whole: a client is verified with the certificate, the CAs, the revocation
//! lists, the denied principals, the token keys and the roles of one [`Credentials`], never with a mixture.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::folder::{
    CERTIFICATE, CLIENT_CAS, CredentialFolder, CredentialsError, DENIED, Files, KEY, REVOCATION_LISTS, ROLES,
    TOKEN_KEYS,
};
use super::principal::Principal;
use super::revocation_lists;
use super::roles::Roles;
use super::token_keys::TokenKeys;
use super::tokens::Tokens;
use super::verifier::{ClientVerifier, Trust, TrustError};
use super::viewer_tokens::ViewerTokens;
use crate::config::TokenConfig;

/// What credentials are made of.
#[derive(Clone, Debug)]
pub(crate) struct CredentialSource {
    pub(crate) folder: CredentialFolder,
    /// Of the tokens that are taken. `None`: none are.
    pub(crate) tokens: Option<TokenConfig>,
    /// How many verified tokens are remembered.
    pub(crate) cached_tokens: usize,
    /// The roles that the settings grant.
    pub(crate) roles: Roles,
    /// Those of viewers of the page.
    pub(crate) viewers: Arc<ViewerTokens>,
}

/// See the module.
pub(crate) struct Credentials {
    /// For handshakes in which the client shows a certificate.
    pub(crate) tls: Arc<ServerConfig>,
    /// For handshakes in which it shows none, if tokens are taken.
    pub(crate) token_tls: Option<Arc<ServerConfig>>,
    /// For the page beyond loopback: HTTP/1.1, and the client shows no certificate.
    pub(crate) page_tls: Arc<ServerConfig>,
    /// Verifies the certificates of clients, in handshakes and afterwards.
    pub(crate) verifier: Arc<ClientVerifier>,
    /// Verifies tokens, if they are taken.
    pub(crate) tokens: Option<Tokens>,
    /// Verifies tokens of viewers of the page.
    pub(crate) viewers: Tokens,
    pub(crate) roles: Roles,
    /// The last moment at which the server's certificate is valid.
    pub(crate) not_after: UnixTime,
    /// When the first of the revocation lists expires, if one does.
    pub(crate) next_revocation_list: Option<UnixTime>,
    files: Files,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl CredentialSource {
    /// Reads the credentials.
    ///
    /// # Errors
    /// What is wrong with a file.
    pub(crate) fn read(&self) -> Result<Credentials, CredentialsError> {
        self.parse(Files::read(&self.folder.path)?)
    }

    /// Reads the credentials, unless the files hold the same as those of `old`.
    ///
    /// # Errors
    /// What is wrong with a file.
    pub(crate) fn read_changed(&self, old: &Credentials) -> Result<Option<Credentials>, CredentialsError> {
        let files = Files::read(&self.folder.path)?;
        if files == old.files { Ok(None) } else { self.parse(files).map(Some) }
    }

    pub(super) fn parse(&self, files: Files) -> Result<Credentials, CredentialsError> {
        let certificates: Vec<CertificateDer<'static>> = files.pem_items(CERTIFICATE, "certificate")?;
        let not_after = end_of(&certificates[0]).map_err(|error| files.wrong(CERTIFICATE, &error))?;
        let key = PrivateKeyDer::from_pem_slice(files.get(KEY)?);
        let key = key.map_err(|error| files.wrong(KEY, &error))?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let own = CertifiedKey::from_der(certificates, key, &provider)
            .map_err(|error| files.wrong(CERTIFICATE, &format!("it does not fit {KEY}: {error}")))?;
        let own = Arc::new(own);
        let denied = Arc::new(denied(&files)?);
        let (trust, next_revocation_list) = trust(&files, &self.folder, denied.clone())?;
        let verifier = ClientVerifier::new(trust).map_err(|error| match error {
            TrustError::Ca(_) => files.wrong(CLIENT_CAS, &error),
            TrustError::RevocationList(_) => files.wrong(REVOCATION_LISTS, &error),
        })?;
        let verifier = Arc::new(verifier);
        let tls = server_config(&own, b"h2", |builder| builder.with_client_cert_verifier(verifier.clone()));
        let without = ConfigBuilder::<ServerConfig, WantsVerifier>::with_no_client_auth;
        let page_tls = server_config(&own, b"http/1.1", without);
        let viewers = self.viewers.verifier(denied.clone());
        let tokens = self.tokens.as_ref().map(|config| {
            let keys = TokenKeys::parse(files.get(TOKEN_KEYS)?, config);
            let keys = keys.map_err(|error| files.wrong(TOKEN_KEYS, &error))?;
            Ok(Tokens::new(keys, denied, self.cached_tokens))
        });
        let tokens = tokens.transpose()?;
        let token_tls = tokens.as_ref().map(|_| server_config(&own, b"h2", without));
        let roles = match files.optional_text(ROLES)? {
            None => self.roles.clone(),
            Some(text) => self.roles.with_file(text).map_err(|error| files.wrong(ROLES, &error))?,
        };
        Ok(Credentials {
            tls,
            token_tls,
            page_tls,
            verifier,
            tokens,
            viewers,
            roles,
            not_after,
            next_revocation_list,
            files,
        })
    }
}

/// TLS 1.3 with this certificate, this protocol inside, and no session that could be resumed: it would skip the verification of
/// the client's certificate.
fn server_config(
    own: &Arc<CertifiedKey>,
    protocol: &[u8],
    clients: impl FnOnce(
        ConfigBuilder<ServerConfig, WantsVerifier>,
    ) -> ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>,
) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has ciphers of TLS 1.3");
    let own = Arc::new(rustls::sign::SingleCertAndKey::from(own.clone()));
    let mut tls = clients(builder).with_cert_resolver(own);
    tls.alpn_protocols = vec![protocol.to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    Arc::new(tls)
}

fn end_of(certificate: &CertificateDer<'_>) -> Result<UnixTime, String> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    Ok(unix_time(certificate.validity().not_after.timestamp()))
}

pub(super) fn unix_time(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds.try_into().unwrap_or(0)))
}

/// Whom to trust, and when the first revocation list expires.
fn trust(
    files: &Files,
    folder: &CredentialFolder,
    denied: Arc<BTreeSet<Principal>>,
) -> Result<(Trust, Option<UnixTime>), CredentialsError> {
    let allow_missing = folder.allow_missing_revocation_list;
    let cas: Vec<CertificateDer<'static>> = files.pem_items(CLIENT_CAS, "certificate")?;
    let lists: Vec<CertificateRevocationListDer<'static>> =
        if allow_missing && files.optional(REVOCATION_LISTS).is_none() {
            Vec::new()
        } else {
            files.pem_items(REVOCATION_LISTS, "revocation list")?
        };
    let next = revocation_lists::check(files, &cas, &lists, allow_missing)?;
    let trust = Trust {
        cas,
        revocation_lists: lists,
        allow_missing_revocation_list: allow_missing,
        trust_domain: folder.trust_domain.clone(),
        denied,
    };
    Ok((trust, next))
}

fn denied(files: &Files) -> Result<BTreeSet<Principal>, CredentialsError> {
    let mut denied = BTreeSet::new();
    for (number, line) in (1..).zip(files.optional_text(DENIED)?.unwrap_or_default().lines()) {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.is_empty() {
            continue;
        }
        if !is_principal_name(name.as_bytes()) {
            let what = format!("line {number}: {name:?} is no name of a principal: give {PRINCIPAL_GRAMMAR}");
            return Err(files.wrong(DENIED, &what));
        }
        denied.insert(Principal::new(name));
    }
    Ok(denied)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::auth::DevelopmentCas;
    use crate::config::{AuthMode, Config};

    #[test]
    fn what_would_count_by_chance_is_refused() {
        let mut cas = DevelopmentCas::new("example.org", Duration::from_secs(3600)).unwrap();
        let server = cas.server(&["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let twice = |name: &str| {
            let text = fs::read_to_string(path.join(name)).unwrap();
            fs::write(path.join(name), text.repeat(2)).unwrap();
        };
        let read = || {
            let folder = CredentialFolder {
                path: path.to_owned(),
                trust_domain: "example.org".to_owned(),
                allow_missing_revocation_list: false,
            };
            let config = Config { auth_mode: AuthMode::Certificates(folder), ..Config::insecure([]) };
            crate::auth::CredentialStore::of(&config).map(drop).map_err(|error| error.to_string())
        };
        cas.write_server(path, &server).unwrap();
        read().unwrap();
        twice(REVOCATION_LISTS);
        let why = read().unwrap_err();
        assert!(why.contains("client-ca.crl: there are two revocation lists of CA CN=StickyCAS"), "{why}");
        cas.write_server(path, &server).unwrap();
        twice(CLIENT_CAS);
        let why = read().unwrap_err();
        assert!(why.contains("client-ca.crt: two CAs are named CN=StickyCAS"), "{why}");
        // Which only the library finds: the error names the file of the lists all the same.
        cas.write_server(path, &server).unwrap();
        let list = CertificateRevocationListDer::from_pem_file(path.join(REVOCATION_LISTS)).unwrap();
        let list = STANDARD.encode([&*list, &[0]].concat());
        let list = format!("-----BEGIN X509 CRL-----\n{list}\n-----END X509 CRL-----\n");
        fs::write(path.join(REVOCATION_LISTS), list).unwrap();
        let why = read().unwrap_err();
        assert!(why.contains("client-ca.crl: a revocation list cannot be used: "), "{why}");
    }
}
