//! The handshake of TLS, and what it proves of a client.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::connection::Connection;
use super::serve::Security;
use crate::auth::{ClientIdentity, CredentialStore, Credentials, Principal, Registration, audit, identify};
use crate::quota::Counter;

/// A client that may stay as long as its certificate is valid and allowed.
pub(super) struct Admission {
    registration: Registration,
    principal: Principal,
    /// When the certificate ends.
    not_after: Instant,
}

impl Admission {
    /// Completes when the client may not stay any longer.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.registration.ended() => {}
            () = tokio::time::sleep_until(self.not_after) => {
                let reason = "the certificate has expired";
                audit::ended("connection", self.principal.as_str(), &reason);
            }
        }
    }
}

/// A connection after its handshake, if its listener demands one.
pub(super) enum Secured<T> {
    Plain(T),
    /// By TLS; the client has proven nothing.
    Tls(Box<TlsStream<T>>),
    /// By TLS; the connection is one principal.
    Proven(Box<TlsStream<T>>, Admission),
}

/// Secures a connection as its listener demands, within `deadline`. `None`: the client failed, or is not allowed; it has
/// been told by an alert.
pub(super) async fn secure<T>(
    io: T,
    security: &Security,
    deadline: Duration,
    connection: &Connection,
) -> Option<Secured<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match security {
        Security::Plain => Some(Secured::Plain(io)),
        Security::Tokens(store) => {
            let tls = store.current().token_tls.clone()?;
            handshake(io, tls, deadline, connection).await.map(|io| Secured::Tls(Box::new(io)))
        }
        Security::ClientCertificates(store) => {
            let used = store.current();
            let stream = handshake(io, used.tls.clone(), deadline, connection).await?;
            let admission = admit(&stream, store, &used, connection)?;
            Some(Secured::Proven(Box::new(stream), admission))
        }
    }
}

async fn handshake<T>(
    io: T,
    tls: Arc<ServerConfig>,
    deadline: Duration,
    connection: &Connection,
) -> Option<TlsStream<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(deadline, TlsAcceptor::from(tls).accept(io)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            refuse(connection, &error);
            None
        }
        Err(_) => {
            connection.count(Counter::ConnectionSilent);
            None
        }
    }
}

/// Registers the client by the certificate that it has shown. The connection knows its principal afterwards.
fn admit<T>(
    stream: &TlsStream<T>,
    store: &Arc<CredentialStore>,
    used: &Arc<Credentials>,
    connection: &Connection,
) -> Option<Admission> {
    let shown = stream.get_ref().1.peer_certificates()?;
    let certificates: Arc<[CertificateDer<'static>]> =
        shown.iter().map(|it| it.clone().into_owned()).collect();
    let admitted = identify(used, &certificates).and_then(|identity| {
        let principal = identity.principal.clone();
        Ok((identity, store.register_connection(principal, certificates, used)?))
    });
    match admitted {
        Ok((identity, registration)) => {
            let not_after = instant_of(&identity);
            audit::certificate_admitted(&identity, connection.address());
            let principal = identity.principal.clone();
            connection.set_identity(identity);
            Some(Admission { registration, principal, not_after })
        }
        Err(error) => {
            refuse(connection, &error);
            None
        }
    }
}

/// What has failed names nobody, so only the server's own count tells of it.
fn refuse(connection: &Connection, error: &dyn std::fmt::Display) {
    connection.count(Counter::HandshakeFailed);
    audit::handshake_refused(error, connection.address());
}

/// The end of the certificate, as the clock of timers has it.
fn instant_of(identity: &ClientIdentity) -> Instant {
    /// A certificate that ends later is not waited for.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(identity.not_after.as_secs());
    Instant::now() + end.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST)
}
