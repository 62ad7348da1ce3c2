//! [`ClientAcceptor`]: handshakes of TLS for another program of ours that listens, the judge of runs. It identifies clients
//! as the server does: same files, same rules, same code.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;

use super::connection::UnclaimedConnections;
use super::handshake::{Admission, Secured, secure};
use super::serve::Security;
use crate::auth::{CredentialFolder, CredentialStore, CredentialsError, identify};
use crate::config::{AuthMode, Config};
use crate::limits::Limits;
use crate::quota::{KnownPrincipals, Principals};

/// See the module.
#[derive(Debug)]
pub struct ClientAcceptor {
    credentials: Arc<CredentialStore>,
    connections: Arc<UnclaimedConnections>,
}

/// A client that has proven its principal, and may stay as long as its certificate is valid and allowed.
pub struct ProvenClient {
    principal: String,
    admission: Admission,
}

impl ClientAcceptor {
    /// With the credentials in this folder.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn new(folder: CredentialFolder) -> Result<Self, CredentialsError> {
        let config = Config { auth_mode: AuthMode::Certificates(folder), ..Config::insecure([]) };
        let credentials = CredentialStore::of(&config)?.expect("this mode has credentials");
        // The caller bounds its connections; what is counted here is counted for nobody.
        let limits = Limits {
            unclaimed_connections: usize::MAX,
            unclaimed_connections_per_address: usize::MAX,
            ..Limits::default()
        };
        let connections = UnclaimedConnections::new(
            &limits,
            Principals::with(&limits, config.admission, KnownPrincipals::default()),
        );
        Ok(Self { credentials, connections })
    }

    /// Shakes hands with a client within `deadline`. `None`: it has proven nothing, and was told so by an alert.
    pub async fn accept<T>(&self, io: T, deadline: Duration) -> Option<(TlsStream<T>, ProvenClient)>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = self.connections.register(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
        let security = Security::ClientCertificates(Arc::clone(&self.credentials));
        let secured = secure(io, &security, deadline, &connection).await?;
        let Secured::Proven(io, admission) = secured else { return None };
        let principal = connection.identity()?.principal.as_str().to_owned();
        Some((*io, ProvenClient { principal, admission }))
    }

    /// The principal of a client with these certificates, its own first.
    ///
    /// # Errors
    /// If it is not allowed.
    pub(crate) fn allows(&self, certificates: &[CertificateDer<'_>]) -> Result<String, rustls::Error> {
        let identity = identify(&self.credentials.current(), certificates)?;
        Ok(identity.principal.as_str().to_owned())
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
        self.admission.ended().await;
    }
}
