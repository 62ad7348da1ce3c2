//! One generation of credentials: the server's own certificate, the CAs that it trusts, and the rights of
//! principals.
//!
//! It is read as a whole and replaced as a whole: a client is verified with the certificate, the CAs, the
//! revocation lists, the denied principals, the token keys and the roles of one [`Credentials`], never with a
//! mixture.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};
use stickycas_certificates::{Certificate, private_key, seconds_since_1970};
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};

use super::certificate::ClientIdentity;
use super::client_cas::ClientCas;
use super::folder::{
    CERTIFICATE, CLIENT_CAS, CredentialsError, DENIED, FileReader, Files, KEY, REVOCATION_LISTS, ROLES,
    TOKEN_KEYS,
};
use super::principal::Principal;
use super::revocation_lists;
use super::roles::Roles;
use super::token_keys::TokenKeys;
use super::tokens::Tokens;
use super::verifier::{ClientVerifier, Trust, TrustError};
use crate::config::{CredentialFolder, TokenConfig};

/// The sources of credentials.
#[derive(Debug)]
pub(crate) struct CredentialSource {
    pub(crate) folder: CredentialFolder,
    pub(crate) files: FileReader,
    /// Of the tokens that are taken. `None`: none are.
    pub(crate) tokens: Option<TokenConfig>,
    /// The number of verified tokens that are remembered.
    pub(crate) cached_tokens: usize,
    /// The roles that the settings grant.
    pub(crate) roles: Roles,
}

/// See the module.
pub(crate) struct Credentials {
    /// For handshakes in which the client shows a certificate.
    pub(crate) tls: Arc<ServerConfig>,
    /// For handshakes in which it shows none, if tokens are taken.
    pub(crate) token_tls: Option<Arc<ServerConfig>>,
    /// Verifies the certificates of clients, in handshakes and afterwards.
    pub(crate) verifier: Arc<ClientVerifier>,
    /// Verifies tokens, if they are taken.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) roles: Roles,
    /// The last moment at which the server's certificate and those behind it are valid. Moments are in
    /// seconds since 1970.
    pub(crate) not_after: u64,
    /// Of the CAs of clients.
    pub(crate) client_cas: ClientCas,
    /// The moment at which the first of the revocation lists expires, if one does.
    pub(crate) next_revocation_list: Option<u64>,
    /// The reasons for which keys of tokens are not used.
    ignored_keys: Vec<String>,
    files: Files,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// The client with these certificates at this moment, its own first.
    ///
    /// # Errors
    /// If the credentials do not allow it.
    pub(crate) fn identify(
        &self,
        certificates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientIdentity, rustls::Error> {
        let Some((own, intermediates)) = certificates.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        self.verifier.identify(own, intermediates, now)
    }

    /// The faults in them at this moment, in seconds since 1970, in spite of which they are used.
    pub(crate) fn warnings(&self, now: u64) -> Vec<String> {
        let late =
            |name: &'static str, until: u64| (until < now).then(|| (name, "it has expired".to_owned()));
        let own = late(CERTIFICATE, self.not_after);
        let list = self.next_revocation_list.and_then(|next| late(REVOCATION_LISTS, next));
        let cas = self.client_cas.late(now).map(|why| (CLIENT_CAS, why));
        let keys = self.ignored_keys.iter().map(|why| (TOKEN_KEYS, why.clone()));
        let all = own.into_iter().chain(cas).chain(list).chain(keys);
        all.map(|(name, why)| self.files.wrong(name, &why).to_string()).collect()
    }
}

impl CredentialSource {
    /// Reads the credentials.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub(crate) fn read(&self) -> Result<Credentials, CredentialsError> {
        self.parse(self.files.read(None)?, None, seconds_since_1970())
    }

    /// Reads the credentials, unless they would be the same as `old`; and what is wrong with a file.
    pub(crate) fn read_changed(
        &self,
        old: &Credentials,
    ) -> (Option<Credentials>, Result<(), CredentialsError>) {
        self.changed(old, self.files.read(Some(&old.files)), seconds_since_1970())
    }

    fn changed(
        &self,
        old: &Credentials,
        files: Result<Files, CredentialsError>,
        now: u64,
    ) -> (Option<Credentials>, Result<(), CredentialsError>) {
        let next = |files: Files| {
            let is_same = files == old.files && old.client_cas.are_same_at(now);
            if is_same { Ok(None) } else { self.parse(files, Some(old), now).map(Some) }
        };
        match files.and_then(next) {
            Ok(changed) => (changed, Ok(())),
            // A CA ends also while the files cannot be used.
            Err(error) => (next(old.files.clone()).unwrap_or_default(), Err(error)),
        }
    }

    /// A certificate that has expired while it was in force is no error, so that the rest can still be
    /// replaced.
    pub(super) fn parse(
        &self,
        files: Files,
        old: Option<&Credentials>,
        now: u64,
    ) -> Result<Credentials, CredentialsError> {
        let in_force = |name| old.is_some_and(|old| old.files.same(&files, name));
        let (own, not_after) = own_certificate(&files, (!in_force(CERTIFICATE)).then_some(now))?;
        let denied = Arc::new(denied(&files)?);
        let last = old.filter(|_| in_force(CLIENT_CAS)).map(|old| &old.client_cas);
        let client_cas = ClientCas::read(&files, last, now)?;
        let (trust, next_revocation_list) = trust(&files, &self.folder, &client_cas, denied.clone())?;
        let verifier = ClientVerifier::new(trust).map_err(|error| match error {
            TrustError::Ca(_) => files.wrong(CLIENT_CAS, &error),
            TrustError::RevocationList(_) => files.wrong(REVOCATION_LISTS, &error),
        })?;
        let verifier = Arc::new(verifier);
        let tls = server_config(&own, |builder| builder.with_client_cert_verifier(verifier.clone()));
        let without = ConfigBuilder::<ServerConfig, WantsVerifier>::with_no_client_auth;
        let mut ignored_keys = Vec::new();
        let tokens = self.tokens.as_ref().map(|config| {
            let keys = TokenKeys::parse(files.get(TOKEN_KEYS)?, config);
            let (keys, ignored) = keys.map_err(|error| files.wrong(TOKEN_KEYS, &error))?;
            ignored_keys = ignored;
            Ok(Tokens::new(keys, denied, self.cached_tokens))
        });
        let tokens = tokens.transpose()?;
        let token_tls = tokens.as_ref().map(|_| server_config(&own, without));
        let roles = match files.optional_text(ROLES)? {
            None => self.roles.clone(),
            Some(text) => self.roles.with_file(text).map_err(|error| files.wrong(ROLES, &error))?,
        };
        Ok(Credentials {
            tls,
            token_tls,
            verifier,
            tokens,
            roles,
            not_after,
            client_cas,
            next_revocation_list,
            ignored_keys,
            files,
        })
    }
}

/// TLS 1.3 with this certificate, this protocol inside, and no session that could be resumed: it would skip
/// the verification of the client's certificate.
fn server_config(
    own: &Arc<CertifiedKey>,
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
    tls.alpn_protocols = vec![b"h2".to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    Arc::new(tls)
}

/// The server's certificate with those behind it and its key, and the last moment at which all of them are
/// valid. They must be valid at `at`.
fn own_certificate(files: &Files, at: Option<u64>) -> Result<(Arc<CertifiedKey>, u64), CredentialsError> {
    let wrong = |error| files.wrong(CERTIFICATE, &error);
    let chain: Vec<CertificateDer<'static>> = files.pem_items(CERTIFICATE, "CERTIFICATE")?;
    let mut not_after = u64::MAX;
    for der in &chain {
        let certificate = Certificate::read(der).map_err(wrong)?;
        if let Some(now) = at {
            let early = now < certificate.not_before;
            certificate.check_time(now).map_err(|why| files.not_valid(CERTIFICATE, why, early))?;
        }
        not_after = not_after.min(certificate.not_after);
    }
    let key = private_key(files.get(KEY)?).map_err(|error| files.wrong(KEY, &error))?;
    let own = CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider());
    let own = own.map_err(|error| wrong(format!("it does not fit {KEY}: {error}")))?;
    Ok((Arc::new(own), not_after))
}

/// The trust, and the moment at which the first revocation list expires.
fn trust(
    files: &Files,
    folder: &CredentialFolder,
    cas: &ClientCas,
    denied: Arc<BTreeSet<Principal>>,
) -> Result<(Trust, Option<u64>), CredentialsError> {
    let allow_missing = folder.allow_missing_revocation_list;
    let lists: Vec<CertificateRevocationListDer<'static>> =
        if allow_missing && files.optional(REVOCATION_LISTS).is_none() {
            Vec::new()
        } else {
            files.pem_items(REVOCATION_LISTS, "X509 CRL")?
        };
    let (sets, next) = revocation_lists::check(files, cas, &lists, allow_missing)?;
    let trust = Trust {
        sets,
        allow_missing_revocation_list: allow_missing,
        trust_domain: folder.trust_domain.clone(),
        denied,
    };
    Ok((trust, next))
}

fn denied(files: &Files) -> Result<BTreeSet<Principal>, CredentialsError> {
    let mut denied = BTreeSet::new();
    let text = files.optional_text(DENIED)?.unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        let what = "its last line has no end, as in a file that is not whole: end it with a new line";
        return Err(files.wrong(DENIED, &what));
    }
    for (number, line) in (1..).zip(text.lines()) {
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
mod tests;
