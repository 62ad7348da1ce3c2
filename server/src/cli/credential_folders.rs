//! Whether a folder holds what `credentials` makes, whole and still valid.
//!
//! The folder of the server is written last. So, whenever its maker was stopped, what stands there is whole if every client's
//! certificate is allowed by it.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::ClientAcceptor;
use crate::config::CredentialFolder;

/// Reads the folder of a server: it allows the certificate of every one of these principals, whose folders are in `clients`,
/// and is reached under these names and addresses.
///
/// # Errors
/// What is missing, or not valid any more.
pub(super) fn check_server(
    folder: &CredentialFolder,
    hosts: &[String],
    clients: &Path,
    principals: &[String],
) -> anyhow::Result<()> {
    let acceptor = ClientAcceptor::new(folder.clone(), 1)?;
    let certificate = folder.path.join("tls.crt");
    let names =
        names_of(&certificates(&certificate)?[0]).with_context(|| certificate.display().to_string())?;
    for host in hosts {
        ensure!(names.contains(host), "{}: it is not for {host}", certificate.display());
    }
    for principal in principals {
        let folder = clients.join(principal);
        let certificate = folder.join("tls.crt");
        let shown = || certificate.display().to_string();
        let named = acceptor.allows(&certificates(&certificate)?).with_context(shown)?;
        ensure!(named == *principal, "{}: it names {named}", shown());
        for name in ["tls.key", "ca.crt"] {
            let path = folder.join(name);
            ensure!(path.exists(), "{} is missing", path.display());
        }
    }
    Ok(())
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
