//! [`Credentials`]: what a client proves its principal with, and by what it knows the server (SPEC section 10).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::error::Error;
use crate::token_file::TokenFile;

/// A client's certificate with its key, or its token, and the CAs of servers that it trusts. A connection with them is by
/// TLS, and everything on it comes from the principal that the certificate or the token names.
#[derive(Clone)]
pub struct Credentials {
    principal: String,
    trust_domain: String,
    folder: PathBuf,
    tls: ClientTlsConfig,
    /// `None`: the certificate in `tls` proves the principal.
    token: Option<Arc<TokenFile>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("principal", &self.principal).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those in this folder: the certificate and those behind it (`tls.crt`), its key (`tls.key`), the CAs of servers
    /// (`ca.crt`), all in PEM. If there is no certificate but a file `token`, the principal is proven by that bearer token
    /// (JWT) to a server's listener for tokens; the file is read again from time to time, so that it can be replaced before
    /// the token expires. `stickycas-server credentials` makes such folders.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a file cannot be read or does not hold what it should.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read(&path).map_err(|error| Error::InvalidArgument(format!("{}: {error}", path.display())))
        };
        let cas = read("ca.crt")?;
        let token = folder.join("token");
        if token.exists() && !folder.join("tls.crt").exists() {
            let token = Arc::new(TokenFile::open(token)?);
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(cas));
            let (principal, folder) = (token.principal()?, folder.to_owned());
            return Ok(Self { principal, trust_domain: String::new(), folder, tls, token: Some(token) });
        }
        let (certificate, key) = (read("tls.crt")?, read("tls.key")?);
        let wrong =
            |why: &str| Error::InvalidArgument(format!("{}: {why}", folder.join("tls.crt").display()));
        let own = CertificateDer::from_pem_slice(&certificate).map_err(|error| wrong(&error.to_string()))?;
        let (trust_domain, principal) = names_of(&own)
            .ok_or_else(|| wrong("it has not exactly one URI spiffe://TRUST-DOMAIN/principal/NAME"))?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(cas))
            .identity(Identity::from_pem(certificate, key));
        Ok(Self { principal, trust_domain, folder: folder.to_owned(), tls, token: None })
    }

    /// The principal that the certificate or the token names.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The trust domain in which the certificate names it; empty with a token.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// The folder that they were read from.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn tls(&self) -> ClientTlsConfig {
        self.tls.clone()
    }

    pub(crate) fn token(&self) -> Option<Arc<TokenFile>> {
        self.token.clone()
    }
}

/// The trust domain and the name that a server will read in this certificate. Whether they are any is for the server to
/// say.
fn names_of(certificate: &CertificateDer<'_>) -> Option<(String, String)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let (Some(uri), None) = (uris.next(), uris.next()) else { return None };
    let (domain, name) = uri.strip_prefix("spiffe://")?.split_once("/principal/")?;
    Some((domain.to_owned(), name.to_owned()))
}
