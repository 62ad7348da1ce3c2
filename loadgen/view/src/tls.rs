//! The certificate of a page that other machines may reach.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use stickycas_certificates::{identity, items, private_key};

/// How often the files are read again.
const READ_EVERY: Duration = Duration::from_secs(60);

/// A certificate (`tls.crt`) and its key (`tls.key`) in a folder, read again when they change.
#[derive(Debug)]
pub(crate) struct PageCertificate {
    folder: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    files: (Vec<u8>, Vec<u8>),
    tls: Arc<ServerConfig>,
}

impl PageCertificate {
    /// # Errors
    /// If the files cannot be used, or are not valid now.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let files = read(folder)?;
        let tls = config(&files)?;
        Ok(Self { folder: folder.to_owned(), current: Mutex::new(Current { files, tls }) })
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }

    /// Follows the files for ever.
    pub(crate) async fn follow(&self) {
        loop {
            tokio::time::sleep(READ_EVERY).await;
            if let Err(error) = self.read_again() {
                tracing::warn!(error, "the certificate of the page stays as it is");
            }
        }
    }

    fn read_again(&self) -> Result<(), String> {
        let files = read(&self.folder)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.files != files {
            let tls = config(&files)?;
            *current = Current { files, tls };
        }
        Ok(())
    }
}

fn read(folder: &Path) -> Result<(Vec<u8>, Vec<u8>), String> {
    identity(&folder.join("tls.crt"), &folder.join("tls.key")).map_err(|error| error.to_string())
}

/// TLS 1.3 and HTTP/1.1. Nothing is resumed.
fn config((chain, key): &(Vec<u8>, Vec<u8>)) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|error| error.to_string())?.with_no_client_auth();
    let (chain, key) = (items(chain, "CERTIFICATE")?, private_key(key)?);
    let mut tls = builder.with_single_cert(chain, key).map_err(|error| error.to_string())?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    Ok(Arc::new(tls))
}
