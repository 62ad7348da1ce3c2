//! [`Credentials`]: what a client proves its principal with, and by what it knows the server (SPEC section 10).

use std::fs;
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::error::Error;

/// A client's certificate with its key, and the CAs of servers that it trusts. A connection with them is by TLS, and
/// everything on it comes from the principal that the certificate names.
#[derive(Clone)]
pub struct Credentials {
    principal: String,
    trust_domain: String,
    folder: PathBuf,
    tls: ClientTlsConfig,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("principal", &self.principal).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those in this folder: the certificate and those behind it (`tls.crt`), its key (`tls.key`), the CAs of servers
    /// (`ca.crt`), all in PEM. `stickycas-server credentials` makes such folders.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a file cannot be read or does not hold what it should.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read(&path).map_err(|error| Error::InvalidArgument(format!("{}: {error}", path.display())))
        };
        let (certificate, key, cas) = (read("tls.crt")?, read("tls.key")?, read("ca.crt")?);
        let wrong =
            |why: &str| Error::InvalidArgument(format!("{}: {why}", folder.join("tls.crt").display()));
        let own = CertificateDer::from_pem_slice(&certificate).map_err(|error| wrong(&error.to_string()))?;
        let (trust_domain, principal) = names_of(&own)
            .ok_or_else(|| wrong("it has not exactly one URI spiffe://TRUST-DOMAIN/principal/NAME"))?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(cas))
            .identity(Identity::from_pem(certificate, key));
        Ok(Self { principal, trust_domain, folder: folder.to_owned(), tls })
    }

    /// The principal that the certificate names.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The trust domain in which the certificate names it.
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
