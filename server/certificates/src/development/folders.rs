//! The folders of a server, of its listeners and of its principals, all of them: made, checked, and kept if
//! they are whole.
//!
//! The folder of the server is written last. So, whenever its maker was stopped, what stands there is whole
//! if every client's certificate is allowed by it.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::token_folders::{TokenClaims, TokenFolders, TokenForm};
use super::{DevelopmentCas, DevelopmentError, Verifier};
use crate::files::{CERTIFICATE, KEY, SERVER_CAS};

/// The credentials of a server and its principals, in one folder.
#[derive(Clone, Debug)]
pub struct CredentialFolders {
    /// The folder.
    pub out: PathBuf,
    /// The principals.
    pub principals: Vec<String>,
    /// Names and addresses under which the server is reached.
    pub hosts: Vec<String>,
    /// Principals with a listener of their own.
    pub listeners: Vec<ListenerFolder>,
    /// The trust domain of the principals.
    pub trust_domain: String,
    /// The form of tokens, and their claims; `None`: there are none.
    pub tokens: Option<(TokenForm, TokenClaims)>,
    /// The time for which all of it is valid.
    pub lifetime: Duration,
}

/// A principal that others connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerFolder {
    /// The principal.
    pub principal: String,
    /// Names and addresses under which it is reached.
    pub hosts: Vec<String>,
}

impl CredentialFolders {
    /// Makes all of it.
    ///
    /// # Errors
    /// If a name is none, or a file cannot be written.
    pub fn make(&self) -> Result<(), DevelopmentError> {
        let mut cas = DevelopmentCas::new(&self.trust_domain, self.lifetime)?;
        for name in self.certified_principals() {
            let client = cas.client(name)?;
            cas.write_client(&self.client(name), &client)?;
        }
        if let Some(tokens) = self.token_folders() {
            tokens.make(&cas, &self.server())?;
        }
        for listener in &self.listeners {
            let server = cas.server(&listener.hosts)?;
            cas.write_server(&self.listener(listener), &server)?;
        }
        // The last: see the module.
        let server = cas.server(&self.hosts)?;
        cas.write_server(&self.server(), &server)
    }

    /// Checks that all of it is there and valid.
    ///
    /// # Errors
    /// If something is missing, or not valid any more.
    pub fn check<V: Verifier>(&self) -> anyhow::Result<()> {
        self.check_certificates::<V>()?;
        self.token_folders().map_or(Ok(()), |tokens| tokens.check(&self.verifier::<V>(&self.server(), true)?))
    }

    /// Makes tokens anew that are missing or expire soon. How many there were; `None`: more is missing.
    ///
    /// # Errors
    /// If a token cannot be made or written.
    pub fn renew_tokens<V: Verifier>(&self) -> anyhow::Result<Option<usize>> {
        let tokens = self.token_folders().filter(|_| self.check_certificates::<V>().is_ok());
        let verifier = || self.verifier::<V>(&self.server(), true).ok();
        tokens.map(|tokens| tokens.renew(verifier().as_ref(), &self.server())).transpose()
    }

    /// Checks all of it but tokens and their keys.
    fn check_certificates<V: Verifier>(&self) -> anyhow::Result<()> {
        self.check_server::<V>(&self.server(), &self.hosts)?;
        for listener in &self.listeners {
            self.check_server::<V>(&self.listener(listener), &listener.hosts)
                .with_context(|| format!("the listener of {}", listener.principal))?;
        }
        self.token_folders().map_or(Ok(()), |tokens| tokens.check_cas())
    }

    /// Checks that a server with this folder is reached under these names, and allows the certificate of
    /// every principal.
    fn check_server<V: Verifier>(&self, folder: &Path, hosts: &[String]) -> anyhow::Result<()> {
        let verifier = self.verifier::<V>(folder, false)?;
        let certificate = folder.join(CERTIFICATE);
        let names =
            names_of(&certificates(&certificate)?[0]).with_context(|| certificate.display().to_string())?;
        for host in hosts {
            ensure!(names.contains(host), "{}: it is not for {host}", certificate.display());
        }
        for principal in self.certified_principals() {
            let folder = self.client(principal);
            let certificate = folder.join(CERTIFICATE);
            let shown = || certificate.display().to_string();
            let named =
                verifier.principal_of_certificates(&certificates(&certificate)?).with_context(shown)?;
            ensure!(named == *principal, "{}: it names {named}", shown());
            for name in [KEY, SERVER_CAS] {
                let path = folder.join(name);
                ensure!(path.exists(), "{} is missing", path.display());
            }
        }
        Ok(())
    }

    fn verifier<V: Verifier>(&self, folder: &Path, takes_tokens: bool) -> anyhow::Result<V> {
        let claims = self.tokens.as_ref().map(|(_, claims)| claims).filter(|_| takes_tokens);
        V::read(folder, &self.trust_domain, claims)
    }

    fn token_folders(&self) -> Option<TokenFolders<'_>> {
        let (form, claims) = self.tokens.as_ref()?;
        let (out, principals) = (&self.out, &self.principals);
        Some(TokenFolders { form: *form, out, claims, lifetime: self.lifetime, principals })
    }

    /// Those who get certificates.
    fn certified_principals(&self) -> &[String] {
        if matches!(self.tokens, Some((TokenForm::File, _))) { &[] } else { &self.principals }
    }

    /// The folder of the server.
    fn server(&self) -> PathBuf {
        self.out.join("server")
    }

    fn client(&self, principal: &str) -> PathBuf {
        self.out.join("clients").join(principal)
    }

    /// The folder of a listener.
    #[must_use]
    pub fn listener(&self, listener: &ListenerFolder) -> PathBuf {
        self.client(&listener.principal).join("listener")
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = || path.display().to_string();
    let pem = fs::read(path).with_context(shown)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let read = read.with_context(shown)?;
    ensure!(!read.is_empty(), "{}: there is no certificate in it", path.display());
    Ok(read)
}

/// The names and addresses of hosts in a certificate.
fn names_of(certificate: &CertificateDer<'_>) -> anyhow::Result<Vec<String>> {
    let (_, certificate) = X509Certificate::from_der(certificate)?;
    let names = certificate.subject_alternative_name()?.context("it names no host")?;
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    };
    Ok(names.value.general_names.iter().filter_map(text).collect())
}
