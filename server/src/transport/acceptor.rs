//! [`ClientAcceptor`]: handshakes of TLS for another program of ours that listens, the judge of runs. It
//! identifies clients as the server does: same files, same rules, same code.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;

use super::connection::{Connection, Connections};
use super::handshake::{Secured, secure};
use super::listener::Security;
use crate::auth::{CredentialStore, CredentialsError, Registration, audit};
use crate::config::{AuthMode, Config, CredentialFolder};
use crate::limits::Limits;
use crate::quota::{KnownPrincipals, Principals};

/// See the module.
#[derive(Debug)]
pub struct ClientAcceptor {
    credentials: Arc<CredentialStore>,
    connections: Arc<Connections>,
}

/// A client that has proven its principal, and may stay as long as its certificate is valid and allowed.
pub struct ProvenClient {
    principal: String,
    registration: Registration,
    /// It belongs to the principal as long as this is here.
    _connection: Connection,
}

impl ClientAcceptor {
    /// With the credentials in this folder, for so many handshakes at a time: one address may have half of
    /// them, and half is kept for addresses from which clients that were expected have come lately. One that
    /// has to make room is closed.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn new(folder: CredentialFolder, handshakes: usize) -> Result<Self, CredentialsError> {
        let config = Config { auth_mode: AuthMode::Certificates(folder), ..Config::insecure([]) };
        let credentials = CredentialStore::of(&config)?.expect("this mode has credentials");
        // The caller bounds its connections; no reader needs the other counts.
        let limits = Limits {
            unclaimed_connections: handshakes,
            unclaimed_connections_per_address: handshakes.div_ceil(2),
            ..Limits::default()
        };
        let connections = Connections::new(
            &limits,
            Principals::with(&limits, config.admission, KnownPrincipals::default()),
        );
        Ok(Self { credentials, connections })
    }

    /// Shakes hands with a client at this address within `deadline`. `None`: it has proven nothing, and was
    /// told so by an alert; or it is not expected; or it had to make room for others.
    pub async fn accept<T>(
        &self,
        io: T,
        address: SocketAddr,
        deadline: Duration,
        is_expected: impl FnOnce(&str) -> bool,
    ) -> Option<(TlsStream<T>, ProvenClient)>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self.connections.register(address);
        let security = Security::ClientCertificates(Arc::clone(&self.credentials));
        let own = connection.clone();
        // A task of its own, since that is what is ended when the connection has to make room.
        let task = tokio::spawn(async move { secure(io, &security, deadline, &own).await });
        let task = AbortOnDropHandle::new(task);
        connection.set_task(task.abort_handle());
        let Secured { io: Either::Right(io), registration: Some(registration) } = task.await.ok()?? else {
            return None;
        };
        let principal = connection.identity()?.principal.as_str().to_owned();
        if !is_expected(&principal) {
            audit::unexpected(&principal, address);
            return None;
        }
        connection.claim_for_identity();
        Some((*io, ProvenClient { principal, registration, _connection: connection }))
    }

    /// Reads the files again when they have changed, for ever.
    pub async fn follow_files(&self) {
        self.credentials.clone().run().await;
    }
}

impl ProvenClient {
    /// The principal that the certificate names.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// Completes when the client may not stay any longer.
    pub async fn ended(&self) {
        self.registration.ended().await;
    }
}
