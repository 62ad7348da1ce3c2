//! The reason why a server can never be reached as it was asked for: its address is that of something else,
//! or the credentials are not for it. Libraries tell it in words such as "frame with invalid size", and often
//! in others at the next try; so the address is asked anew.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

use crate::{CERTIFICATE, KEY, SERVER_CAS, identity, roots};

/// How long the address may take to show what it is.
const LONGEST: Duration = Duration::from_secs(1);
/// The first bytes of a client that speaks HTTP/2: its preface, and settings without any. Some servers for
/// HTTP/1 close the connection then, so a client that speaks HTTP/1 comes next.
const GREETINGS: [&[u8]; 2] = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
];

/// A fault of an address or of credentials: the cause and what to do, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no host of this name now.
    UnknownHost(String),
    /// The server is another one than the caller means: no later try helps.
    WrongServer(String),
}

/// Looks for the fault of `http://HOST:PORT`, or of `https://HOST:PORT` with the credentials in this folder.
/// `None`: none is known, and a later try may help.
pub async fn fault(server: &str, credentials: Option<&Path>) -> Option<Fault> {
    timeout(LONGEST, ask(server, credentials)).await.ok().flatten()
}

async fn ask(server: &str, credentials: Option<&Path>) -> Option<Fault> {
    let (scheme, rest) = server.split_once("://")?;
    let authority = rest.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    let (host, port) = (host.trim_matches(['[', ']']), port.parse::<u16>().ok()?);
    let addresses: Vec<_> = match lookup_host((host, port)).await {
        Ok(addresses) => addresses.collect(),
        Err(error) if error.to_string().contains("Temporary failure") => return None,
        Err(_) => return Some(Fault::UnknownHost(format!("there is no host {host}"))),
    };
    let connect = async || TcpStream::connect(&*addresses).await.ok();
    let first = match (scheme, credentials) {
        ("https", Some(folder)) => match handshake(connect().await?, host, folder).await? {
            Ok(()) => return None,
            Err(rustls::Error::InvalidMessage(_)) => None,
            Err(error) => return Some(Fault::WrongServer(of_certificates(&error, host, folder)?)),
        },
        _ => Some(Spoken::Tls),
    };
    let mut answer = None;
    for greeting in GREETINGS {
        answer = spoken(connect().await?, greeting).await;
        if answer.is_some() {
            break;
        }
    }
    let why = match (answer?, first) {
        (Spoken::Http2, None) => {
            "it speaks no TLS: use http://, and --principal NAME in place of --credentials"
        }
        (Spoken::Tls, Some(_)) => "it answers with TLS: use https:// and --credentials DIR",
        (Spoken::Http1, _) => {
            "no gRPC server but one for browsers and probes: give the address of serve --listen, not of --http or a page"
        }
        (Spoken::Other, _) => "no gRPC server: another service listens there",
        _ => return None,
    };
    Some(Fault::WrongServer(why.to_owned()))
}

/// The protocol of a server, as its first bytes show.
#[derive(Clone, Copy)]
enum Spoken {
    Tls,
    Http1,
    Http2,
    Other,
}

/// Greets without TLS. `None`: there is no answer.
async fn spoken(mut stream: TcpStream, greeting: &[u8]) -> Option<Spoken> {
    stream.write_all(greeting).await.ok()?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.ok()?;
    Some(match answer {
        // An alert, of some version from 3.0 on.
        [0x15, 3, ..] => Spoken::Tls,
        [b'H', b'T', b'T', b'P', b'/'] => Spoken::Http1,
        // The length of a frame, its type, its flags: settings come first.
        [0, _, _, 4, 0] => Spoken::Http2,
        _ => Spoken::Other,
    })
}

/// Shakes hands and waits for the first byte, since a client whose certificate is refused learns it only
/// then. `None`: the connection ended without a reason.
async fn handshake(stream: TcpStream, host: &str, folder: &Path) -> Option<Result<(), rustls::Error>> {
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let connected = TlsConnector::from(Arc::new(tls(folder)?)).connect(name, stream).await;
    let first = match connected {
        Ok(mut stream) => stream.read_u8().await,
        Err(error) => Err(error),
    };
    match first {
        Ok(_) => Some(Ok(())),
        Err(error) => of_rustls(error).map(Err),
    }
}

fn of_rustls(error: io::Error) -> Option<rustls::Error> {
    error.into_inner()?.downcast::<rustls::Error>().ok().map(|error| *error)
}

/// What a client with these credentials does. `None`: they cannot be read.
fn tls(folder: &Path) -> Option<ClientConfig> {
    let mut trusted = RootCertStore::empty();
    let cas = roots(&folder.join(SERVER_CAS)).ok()?;
    trusted.add_parsable_certificates(CertificateDer::pem_slice_iter(&cas).flatten());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let builder = builder.with_root_certificates(trusted);
    let (own, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    let mut config = if own.exists() {
        let (chain, key) = identity(&own, &key).ok()?;
        let chain = CertificateDer::pem_slice_iter(&chain).flatten().collect();
        builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key).ok()?).ok()?
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some(config)
}

/// What is wrong with the certificates. `None`: it is no fault of theirs.
fn of_certificates(error: &rustls::Error, host: &str, folder: &Path) -> Option<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    Some(match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!(
                "its certificate is not signed by a CA in {}: take the ca.crt of this server",
                file(SERVER_CAS)
            )
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is not for the name {host}: {error}"),
        rustls::Error::InvalidCertificate(_) => format!("its certificate cannot be trusted: {error}"),
        rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired) => {
            let why = "it wants a certificate, and there is only a token in";
            format!(
                "{why} {}: give the address of its listener for tokens, or the folder of a certificate",
                folder.display()
            )
        }
        rustls::Error::AlertReceived(alert) => {
            format!(
                "it refuses the certificate {} ({alert:?}): take one of a CA that it trusts",
                file(CERTIFICATE)
            )
        }
        _ => return None,
    })
}
