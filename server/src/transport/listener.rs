//! The listeners, from which the connections of a server come.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::auth::CredentialStore;

/// Connections that the kernel has accepted and the server has not yet. tokio asks for 128: of clients that
/// connect at the same moment, those above it wait a second before they try again. The kernel has a bound of
/// its own (`net.core.somaxconn`, 4,096 on Linux).
const BACKLOG: u32 = 4_096;

/// Connections that are accepted before other tasks have their turn: few, since one takes a tenth of a
/// millisecond beside a flood, and enough that a flood does not fill the backlog for newcomers.
pub(crate) const IN_A_TURN: usize = 16;

/// The pause after an accept that failed, usually for want of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Listens on this address, with room for thousands of clients that connect at once. Called inside a runtime.
///
/// # Errors
/// If the address is in use or not of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that is started again does not wait for connections of the one before to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections: of TCP, or of a simulated network.
pub trait Listener: Send + Sync {
    /// The byte stream of a connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and where it comes from. Dropping the future loses no connection.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (tcp, address) = Self::accept(self).await?;
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY not set");
        }
        Ok((tcp, address))
    }
}

/// The next connection of this listener, and where it comes from. Dropping the future loses no connection.
pub(crate) async fn accept<L: Listener>(listener: &L) -> (L::Io, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// The same for a task that accepts in a loop and has accepted so many in its turn: after [`IN_A_TURN`]
/// others are served first. Without that it would take 128 connections before those that have come can be
/// served, and before all other tasks.
pub(crate) async fn accept_in_turns<L: Listener>(listener: &L, accepted: &mut usize) -> (L::Io, SocketAddr) {
    if *accepted >= IN_A_TURN {
        tokio::task::yield_now().await;
        *accepted = 0;
    }
    let connection = accept(listener).await;
    *accepted += 1;
    connection
}
/// The security of the connections of a listener.
#[derive(Clone, Debug)]
pub(crate) enum Security {
    /// Not at all.
    Plain,
    /// By TLS; a connection is the principal whose certificate its client has shown.
    ClientCertificates(Arc<CredentialStore>),
    /// By TLS; clients show no certificate, and each call has a token.
    Tokens(Arc<CredentialStore>),
}
