//! Credentials for development, demos and tests: a CA for the server, one for clients, certificates of both,
//! and tokens.
//!
//! In production others run the CAs; to the server only the contents of the certificates matter.

mod folders;
mod token_folders;
mod token_issuer;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};
use time::OffsetDateTime;

pub use self::folders::{CredentialFolders, ListenerFolder};
pub use self::token_folders::{TokenClaims, TokenForm};
pub use self::token_issuer::TokenIssuer;
use crate::files::{CERTIFICATE, CLIENT_CAS, KEY, REVOCATION_LISTS, SERVER_CAS};
use crate::private_files::{create_private_folder, write_private};

/// Two CAs that live as long as this does; their keys are written nowhere.
pub struct DevelopmentCas {
    trust_domain: String,
    /// In the names of both: revocation lists tell CAs apart by their names.
    mark: u32,
    server: CertifiedIssuer<'static, KeyPair>,
    client: CertifiedIssuer<'static, KeyPair>,
    not_after: OffsetDateTime,
    issued: u64,
    revoked: Vec<SerialNumber>,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct Certified {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The key, in PEM.
    pub key: String,
    serial: SerialNumber,
}

/// The reason for which credentials cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DevelopmentError {
    /// A name is none.
    #[error("{0:?} is no name of a principal: give {PRINCIPAL_GRAMMAR}")]
    Principal(String),
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A key of tokens cannot be used.
    #[error("cannot make a token: {0}")]
    Token(#[from] jsonwebtoken::errors::Error),
    /// A file cannot be written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// A server with one of these folders: its verdicts decide whether the folders are kept.
pub trait Verifier: Sized {
    /// Reads the folder of a server, for principals of this trust domain. `claims`: those of tokens, if they
    /// are taken too.
    ///
    /// # Errors
    /// If a server could not use the folder.
    fn read(folder: &Path, trust_domain: &str, claims: Option<&TokenClaims>) -> anyhow::Result<Self>;

    /// The principal of a client with these certificates, its own first.
    ///
    /// # Errors
    /// If it is not allowed.
    fn principal_of_certificates(&self, certificates: &[CertificateDer<'_>]) -> anyhow::Result<String>;

    /// The principal of a token, and the moment at which it expires, in seconds since 1970.
    ///
    /// # Errors
    /// If it is not allowed.
    fn principal_of_token(&self, token: &[u8]) -> anyhow::Result<(String, u64)>;
}

impl DevelopmentCas {
    /// New CAs. Everything that they issue is valid as long as they are: for this long from now on.
    ///
    /// # Errors
    /// If no keys can be made.
    pub fn new(trust_domain: &str, lifetime: Duration) -> Result<Self, DevelopmentError> {
        Self::marked(trust_domain, OffsetDateTime::now_utc() + lifetime, rand::random())
    }

    /// Other CAs with the names of these, whose certificates a server must refuse.
    ///
    /// # Errors
    /// If no keys can be made.
    pub fn namesakes(&self) -> Result<Self, DevelopmentError> {
        Self::marked(&self.trust_domain, self.not_after, self.mark)
    }

    fn marked(trust_domain: &str, not_after: OffsetDateTime, mark: u32) -> Result<Self, DevelopmentError> {
        Ok(Self {
            trust_domain: trust_domain.to_owned(),
            mark,
            server: ca(&format!("server CA {mark:08x}"), not_after)?,
            client: ca(&format!("client CA {mark:08x}"), not_after)?,
            not_after,
            issued: 0,
            revoked: Vec::new(),
        })
    }

    /// A certificate of a server that is reached under these names and addresses.
    ///
    /// # Errors
    /// If a name is none.
    pub fn server(&mut self, hosts: &[String]) -> Result<Certified, DevelopmentError> {
        let mut params = CertificateParams::new(hosts)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (params, key, serial) = self.leaf(params, "stickycas-server")?;
        let certificate = params.signed_by(&key, &self.server)?;
        Ok(Certified { certificate: certificate.pem(), key: key.serialize_pem(), serial })
    }

    /// A certificate of this principal.
    ///
    /// # Errors
    /// If the name is none.
    pub fn client(&mut self, principal: &str) -> Result<Certified, DevelopmentError> {
        self.changed_client(principal, |_| ())
    }

    /// A certificate of this principal with something changed before it is signed.
    ///
    /// # Errors
    /// If the name is none, or what is changed cannot be encoded.
    pub fn changed_client(
        &mut self,
        principal: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Certified, DevelopmentError> {
        if !is_principal_name(principal.as_bytes()) {
            return Err(DevelopmentError::Principal(principal.to_owned()));
        }
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://{}/principal/{principal}", self.trust_domain);
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (mut params, key, serial) = self.leaf(params, principal)?;
        change(&mut params);
        let certificate = params.signed_by(&key, &self.client)?;
        Ok(Certified { certificate: certificate.pem(), key: key.serialize_pem(), serial })
    }

    /// The next revocation list has this certificate of a client.
    pub fn revoke(&mut self, client: &Certified) {
        self.revoked.push(client.serial.clone());
    }

    /// Writes the folder of a server, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_server(&mut self, folder: &Path, server: &Certified) -> Result<(), DevelopmentError> {
        write(folder, server, CLIENT_CAS, &self.client.pem())?;
        self.write_revocation_list(folder)
    }

    /// Writes the revocation list of the clients' CA into the folder of a server.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_revocation_list(&mut self, folder: &Path) -> Result<(), DevelopmentError> {
        self.write_changed_revocation_list(folder, |_| ())
    }

    /// Writes the revocation list with something changed before it is signed.
    ///
    /// # Errors
    /// If it cannot be written, or what is changed cannot be encoded.
    pub fn write_changed_revocation_list(
        &mut self,
        folder: &Path,
        change: impl FnOnce(&mut CertificateRevocationListParams),
    ) -> Result<(), DevelopmentError> {
        let now = OffsetDateTime::now_utc();
        let revoked = |serial: &SerialNumber| RevokedCertParams {
            serial_number: serial.clone(),
            revocation_time: now,
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        self.issued += 1;
        let mut list = CertificateRevocationListParams {
            this_update: now,
            next_update: self.not_after,
            crl_number: SerialNumber::from(self.issued),
            issuing_distribution_point: None,
            revoked_certs: self.revoked.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        change(&mut list);
        let list = list.signed_by(&self.client)?.pem()?;
        write_file(&folder.join(REVOCATION_LISTS), &list)
    }

    /// Writes the folder of a client, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_client(&self, folder: &Path, client: &Certified) -> Result<(), DevelopmentError> {
        write(folder, client, SERVER_CAS, &self.server.pem())
    }

    /// Writes the folder of a client that has a token in place of a certificate.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_token_client(&self, folder: &Path, token: &str) -> Result<(), DevelopmentError> {
        make_folder(folder)?;
        write_file(&folder.join(SERVER_CAS), &self.server.pem())?;
        write_token_file(&folder.join("token"), token)
    }

    /// Writes the folder of a client that plays many principals, each with a token: they are in one file, a
    /// line for each.
    ///
    /// # Errors
    /// If it cannot be written, or a token cannot be made.
    pub fn write_token_list<'a>(
        &self,
        folder: &Path,
        tokens: impl IntoIterator<Item = Result<(&'a str, String), DevelopmentError>>,
    ) -> Result<(), DevelopmentError> {
        make_folder(folder)?;
        write_file(&folder.join(SERVER_CAS), &self.server.pem())?;
        write_token_list(&folder.join("tokens"), tokens)
    }

    /// The common part of all certificates that are no CAs.
    fn leaf(
        &mut self,
        mut params: CertificateParams,
        name: &str,
    ) -> Result<(CertificateParams, KeyPair, SerialNumber), DevelopmentError> {
        self.issued += 1;
        let serial = SerialNumber::from(self.issued);
        params.serial_number = Some(serial.clone());
        params.distinguished_name = named(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (OffsetDateTime::now_utc() - CLOCKS_DIFFER, self.not_after);
        Ok((params, KeyPair::generate()?, serial))
    }
}

/// Certificates are valid a little before they are made: the clocks of machines differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5 * 60);

fn ca(name: &str, not_after: OffsetDateTime) -> Result<CertifiedIssuer<'static, KeyPair>, DevelopmentError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&format!("StickyCAS development {name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = (OffsetDateTime::now_utc() - CLOCKS_DIFFER, not_after);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn write(folder: &Path, own: &Certified, cas_name: &str, cas: &str) -> Result<(), DevelopmentError> {
    make_folder(folder)?;
    write_file(&folder.join(CERTIFICATE), &own.certificate)?;
    write_file(&folder.join(KEY), &own.key)?;
    write_file(&folder.join(cas_name), cas)
}

fn make_folder(path: &Path) -> Result<(), DevelopmentError> {
    create_private_folder(path).map_err(|error| DevelopmentError::Io { path: path.to_owned(), error })
}

/// The file of the token of one principal.
fn write_token_file(path: &Path, token: &str) -> Result<(), DevelopmentError> {
    write_file(path, &format!("{token}\n"))
}

/// The file of the tokens of many principals.
fn write_token_list<'a>(
    path: &Path,
    tokens: impl IntoIterator<Item = Result<(&'a str, String), DevelopmentError>>,
) -> Result<(), DevelopmentError> {
    let mut lines = String::new();
    for made in tokens {
        let (principal, token) = made?;
        if !is_principal_name(principal.as_bytes()) {
            return Err(DevelopmentError::Principal(principal.to_owned()));
        }
        lines.extend([principal, " ", &token, "\n"]);
    }
    write_file(path, &lines)
}

fn write_file(path: &Path, text: &str) -> Result<(), DevelopmentError> {
    write_private(path, text.as_bytes())
        .map_err(|error| DevelopmentError::Io { path: path.to_owned(), error })
}
