//! The credentials that are in force, and the connections that were let in with them.
//!
//! Files are read again every few seconds and on SIGHUP. What has changed is in force as a whole or not at all: files
//! that cannot be used leave the old credentials in force. When new ones are in force, every open connection is
//! verified with them, and one that they do not allow ends, its open streams too. What was accepted before stays
//! accepted (SPEC F8a).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::{CertificateDer, UnixTime};
use slab::Slab;
use tokio_util::sync::CancellationToken;

use super::certificate::ClientIdentity;
use super::credentials::{CredentialFolder, Credentials, CredentialsError};
use crate::config::AuthMode;

/// See the module.
#[derive(Debug)]
pub(crate) struct CredentialStore {
    folder: CredentialFolder,
    current: ArcSwap<Credentials>,
    connections: Mutex<Slab<ProvenConnection>>,
}

/// An open connection whose client has shown these certificates.
#[derive(Debug)]
struct ProvenConnection {
    certificates: Arc<[CertificateDer<'static>]>,
    end: CancellationToken,
}

/// Keeps a connection registered until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    store: Arc<CredentialStore>,
    key: usize,
    end: CancellationToken,
}

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl CredentialStore {
    /// What this mode needs; `None`: nothing.
    ///
    /// # Errors
    /// If the files of its folder cannot be used.
    pub(crate) fn of(mode: &AuthMode) -> Result<Option<Arc<Self>>, CredentialsError> {
        let AuthMode::Certificates(folder) = mode else { return Ok(None) };
        let current = ArcSwap::from_pointee(Credentials::read(folder)?);
        Ok(Some(Arc::new(Self { folder: folder.clone(), current, connections: Mutex::default() })))
    }

    /// The credentials in force.
    pub(crate) fn current(&self) -> Arc<Credentials> {
        self.current.load_full()
    }

    /// Registers a connection that was let in with these credentials.
    ///
    /// # Errors
    /// If the credentials in force have changed meanwhile and do not allow it.
    pub(crate) fn register(
        self: &Arc<Self>,
        certificates: Arc<[CertificateDer<'static>]>,
        let_in_with: &Arc<Credentials>,
    ) -> Result<Registration, rustls::Error> {
        let end = CancellationToken::new();
        let connection = ProvenConnection { certificates: certificates.clone(), end: end.clone() };
        let key = self.connections().insert(connection);
        let registration = Registration { store: self.clone(), key, end };
        // A change that came before the registration has not seen it.
        let current = self.current();
        if !Arc::ptr_eq(&current, let_in_with) {
            identify(&current, &certificates)?;
        }
        Ok(registration)
    }

    /// Reads the files again. Returns whether other credentials are in force now.
    ///
    /// # Errors
    /// If they cannot be used: the old ones stay in force.
    pub(crate) fn reload(&self) -> Result<bool, CredentialsError> {
        let next = Credentials::read(&self.folder)?;
        if next.has_same_files(&self.current()) {
            return Ok(false);
        }
        let next = Arc::new(next);
        self.current.store(next.clone());
        for (_, connection) in self.connections().iter() {
            if let Err(error) = identify(&next, &connection.certificates) {
                tracing::info!(%error, "connection ended: its client is not allowed any more");
                connection.end.cancel();
            }
        }
        Ok(true)
    }

    /// Looks at the files for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.clone().reload_and_tell().await;
        }
    }

    /// Reads the files again, and logs what became of it.
    pub(crate) async fn reload_and_tell(self: Arc<Self>) {
        let reloaded = tokio::task::spawn_blocking(move || self.reload()).await;
        match reloaded {
            Ok(Ok(true)) => tracing::info!("new credentials are in force"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::error!(%error, "the old credentials stay in force"),
            Err(error) => tracing::error!(%error, "credentials could not be read again"),
        }
    }

    fn connections(&self) -> MutexGuard<'_, Slab<ProvenConnection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client with these certificates, its own first.
///
/// # Errors
/// If these credentials do not allow it.
pub(crate) fn identify(
    credentials: &Credentials,
    certificates: &[CertificateDer<'_>],
) -> Result<ClientIdentity, rustls::Error> {
    let Some((own, intermediates)) = certificates.split_first() else {
        return Err(rustls::Error::NoCertificatesPresented);
    };
    credentials.verifier.identify(own, intermediates, UnixTime::now())
}

impl Registration {
    /// Completes when the client is not allowed any more.
    pub(crate) async fn ended(&self) {
        self.end.cancelled().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.store.connections().remove(self.key);
    }
}
