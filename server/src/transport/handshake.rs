//! The handshake of TLS, and what it proves of a client.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::connection::Connection;
use crate::auth::{ClientIdentity, CredentialStore, Registration, identify};
use crate::quota::Counter;

/// A client that may stay as long as its certificate is valid and allowed.
pub(super) struct Admission {
    registration: Registration,
    /// When the certificate ends.
    not_after: Instant,
}

impl Admission {
    /// Completes when the client may not stay any longer.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.registration.ended() => {}
            () = tokio::time::sleep_until(self.not_after) => {
                tracing::info!("connection ended: its certificate has expired");
            }
        }
    }
}

/// Shakes hands with a client within `deadline`. `None`: it failed, or the client is not allowed; it has been told by an
/// alert. The connection knows its principal afterwards.
pub(super) async fn handshake<T>(
    io: T,
    credentials: &Arc<CredentialStore>,
    deadline: Duration,
    connection: &Connection,
) -> Option<(TlsStream<T>, Admission)>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let used = credentials.current();
    let accepting = TlsAcceptor::from(used.tls.clone()).accept(io);
    let stream = match timeout(deadline, accepting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            connection.count(Counter::HandshakeFailed);
            tracing::info!(%error, "handshake failed");
            return None;
        }
        Err(_) => {
            connection.count(Counter::ConnectionSilent);
            return None;
        }
    };
    let shown = stream.get_ref().1.peer_certificates()?;
    let certificates: Arc<[CertificateDer<'static>]> =
        shown.iter().map(|it| it.clone().into_owned()).collect();
    let admitted = identify(&used, &certificates)
        .and_then(|identity| Ok((identity, credentials.register(certificates, &used)?)));
    let (identity, registration) = match admitted {
        Ok(admitted) => admitted,
        Err(error) => {
            connection.count(Counter::HandshakeFailed);
            tracing::info!(%error, "connection refused");
            return None;
        }
    };
    let not_after = instant_of(&identity);
    tracing::debug!(principal = identity.principal.as_str(), serial = identity.serial, "client identified");
    connection.set_identity(identity);
    Some((stream, Admission { registration, not_after }))
}

/// The end of the certificate, as the clock of timers has it.
fn instant_of(identity: &ClientIdentity) -> Instant {
    /// A certificate that ends later is not waited for.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(identity.not_after.as_secs());
    Instant::now() + end.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST)
}
