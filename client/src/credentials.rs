//! [`Credentials`]: the proof of a client's principal, and the CAs of trusted servers (SPEC section 10).

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use stickycas_certificates::{FileError, SERVER_CAS, identity, missing, roots};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::error::Error;
use crate::tokens::Tokens;

/// A client's certificate with its key, or its token, and the CAs of servers that it trusts. A connection
/// with them is by TLS, and everything on it comes from the principal that the certificate or the token
/// names.
#[derive(Clone)]
pub struct Credentials {
    principal: String,
    trust_domain: Option<String>,
    folder: Arc<Path>,
    tls: Arc<ClientTlsConfig>,
    /// `None`: the certificate in `tls` proves the principal.
    token: Option<Token>,
}

/// The bearer token of this principal in a file.
#[derive(Clone, Debug)]
pub(crate) struct Token(Arc<Tokens>, Arc<str>);

impl Token {
    /// The value of the metadata key `authorization`.
    pub(crate) fn authorization(&self) -> Option<MetadataValue<Ascii>> {
        self.0.authorization(&self.1)
    }

    /// Reads its file now.
    pub(crate) fn read_again(&self) {
        self.0.read_again();
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("principal", &self.principal).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those in this folder: the certificate and those behind it (`tls.crt`), its key (`tls.key`), the CAs of
    /// servers (`ca.crt`), all in PEM. If there is no certificate but a file `token`, the principal is proven
    /// by that bearer token (JWT) to a server's listener for tokens; the file is read again from time to
    /// time, so that it can be replaced before the token expires. A file `tokens` in its place has those of
    /// many principals, a line `NAME TOKEN` for each: these credentials are those of the first, and
    /// [`of`](Self::of) gives those of the others. `stickycas-server credentials` makes such folders.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a file cannot be read, does not hold what it should, or is not valid
    /// now.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let unusable = |error: FileError| Error::InvalidArgument(error.to_string());
        if let Some(missing) = missing(folder, SERVER_CAS) {
            return Err(Error::InvalidArgument(missing));
        }
        let cas = Certificate::from_pem(roots(&folder.join(SERVER_CAS)).map_err(unusable)?);
        if !folder.join("tls.crt").exists()
            && let Some((principal, token)) = token_in(folder)?
        {
            let tls = Arc::new(ClientTlsConfig::new().ca_certificate(cas));
            return Ok(Self {
                principal,
                trust_domain: None,
                folder: folder.into(),
                tls,
                token: Some(token),
            });
        }
        let (certificate, key) =
            identity(&folder.join("tls.crt"), &folder.join("tls.key")).map_err(unusable)?;
        let wrong =
            |why: &str| Error::InvalidArgument(format!("{}: {why}", folder.join("tls.crt").display()));
        let own = CertificateDer::from_pem_slice(&certificate).map_err(|error| wrong(&error.to_string()))?;
        let (trust_domain, principal) = names_of(&own)
            .ok_or_else(|| wrong("it has not exactly one URI spiffe://TRUST-DOMAIN/principal/NAME"))?;
        let identity = Identity::from_pem(certificate, key);
        let tls = Arc::new(ClientTlsConfig::new().ca_certificate(cas).identity(identity));
        Ok(Self { principal, trust_domain: Some(trust_domain), folder: folder.into(), tls, token: None })
    }

    /// Those of this principal: the same, or where their file has the tokens of many, those with its token.
    /// Connections can be shared by all of the same file.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they are not of this principal.
    pub fn of(&self, principal: &str) -> Result<Self, Error> {
        let own = &self.principal;
        let many = self.token.as_ref().map(|Token(tokens, _)| tokens).filter(|tokens| tokens.are_of_many);
        match many {
            _ if principal == own => Ok(self.clone()),
            Some(tokens) if tokens.contains(principal) => {
                let token = Some(Token(tokens.clone(), principal.into()));
                Ok(Self { principal: principal.to_owned(), token, ..self.clone() })
            }
            Some(_) => {
                let why =
                    format!("principal {principal:?}: no line in {}", self.folder.join(TOKENS).display());
                Err(Error::InvalidArgument(why))
            }
            None => {
                Err(Error::InvalidArgument(format!("principal {principal:?}: the credentials name {own:?}")))
            }
        }
    }

    /// Whether they are those of many principals, which can share connections.
    #[must_use]
    pub fn are_of_many(&self) -> bool {
        self.token.as_ref().is_some_and(|Token(tokens, _)| tokens.are_of_many)
    }

    /// The principal that the certificate or the token names.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The trust domain in which the certificate names it. `None`: a token names it.
    #[must_use]
    pub fn trust_domain(&self) -> Option<&str> {
        self.trust_domain.as_deref()
    }

    /// The folder that they were read from.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn tls(&self) -> ClientTlsConfig {
        (*self.tls).clone()
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.token.clone()
    }
}

/// The file of the tokens of many principals.
const TOKENS: &str = "tokens";

/// The token in a folder, with its principal, if there is any.
fn token_in(folder: &Path) -> Result<Option<(String, Token)>, Error> {
    let (own, listed) = (folder.join("token"), folder.join(TOKENS));
    let tokens = match (own.exists(), listed.exists()) {
        (true, _) => Tokens::open(own, false)?,
        (false, true) => Tokens::open(listed, true)?,
        (false, false) => return Ok(None),
    };
    let principal = tokens.first().to_owned();
    Ok(Some((principal.clone(), Token(Arc::new(tokens), principal.into()))))
}

/// The trust domain and the name that a server will read in this certificate. Whether they are any is for the
/// server to say.
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
