//! The connections to the [`ReportService`](super::ReportService): no more at a time than the limit, and,
//! where reporters show certificates, only those of reporters that are known, each of which has places that
//! no other can take.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use stickycas_server::ClientAcceptor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

/// How long to wait after an accept failed, usually for want of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Places that each reporter that has shown a certificate has for itself, however many others there are and
/// whatever they open: its client has one connection, and another one that takes its place.
const OWN: usize = 2;
/// Connections of one such reporter, at most.
const PER_REPORTER: usize = 4;

/// How reporters are known by their certificates, and which are expected.
#[derive(Clone)]
pub(super) struct KnownReporters {
    /// It bounds the handshakes that are under way.
    pub(super) acceptor: Arc<ClientAcceptor>,
    /// Whether a principal is one of them.
    pub(super) are: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// Accepted connections, as many at a time as there are `places`; one more is closed at once. No more are
/// accepted when the stream is dropped. With `reporters` those that have shown the certificate of one of
/// them, and the places are those beside the ones that each has for itself.
pub(super) fn accept(
    listener: TcpListener,
    places: usize,
    reporters: Option<KnownReporters>,
) -> ReceiverStream<io::Result<LimitedConnection>> {
    let (accepted, connections) = mpsc::channel(1);
    let places = Places::new(places);
    tokio::spawn(async move {
        loop {
            let connection = tokio::select! {
                () = accepted.closed() => return,
                connection = listener.accept() => connection,
            };
            let (stream, address) = match connection {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(BACK_OFF).await;
                    continue;
                }
            };
            let Some(reporters) = reporters.clone() else {
                let Some(open) = places.open() else { continue };
                let place = Place::Shared { _open: open };
                let connection = LimitedConnection { io: Either::Left(stream), place, ended: None };
                if accepted.send(Ok(connection)).await.is_err() {
                    return;
                }
                continue;
            };
            let (places, accepted) = (places.clone(), accepted.clone());
            tokio::spawn(async move {
                if let Some(connection) = places.prove(stream, address, &reporters).await {
                    // The judge may have ended meanwhile.
                    let _ = accepted.send(Ok(connection)).await;
                }
            });
        }
    });
    ReceiverStream::new(connections)
}

/// The places of connections.
#[derive(Clone, Debug)]
struct Places {
    /// The places that belong to no reporter.
    shared: Arc<Semaphore>,
    /// The open connections of reporters that have shown certificates.
    reporters: Arc<Mutex<BTreeMap<Arc<str>, Held>>>,
}

/// The places of one reporter that are taken.
#[derive(Debug, Default)]
struct Held {
    own: usize,
    shared: usize,
}

impl Places {
    fn new(shared: usize) -> Self {
        Self { shared: Arc::new(Semaphore::new(shared)), reporters: Arc::default() }
    }

    /// A place for one more connection, of those that are shared.
    fn open(&self) -> Option<OwnedSemaphorePermit> {
        let open = Arc::clone(&self.shared).try_acquire_owned();
        open.inspect_err(|_| tracing::warn!("connection closed: as many are open as may be")).ok()
    }

    /// The connection of a client that has proven who it is, if there is a place for it.
    async fn prove(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        reporters: &KnownReporters,
    ) -> Option<LimitedConnection> {
        let KnownReporters { acceptor, are } = reporters;
        let (io, client) = acceptor.accept(stream, address, HANDSHAKE, |name| are(name)).await?;
        let name: Arc<str> = client.principal().into();
        let place = Place::Reporter(self.enter(name)?);
        let ended = Box::pin(async move { client.ended().await });
        Some(LimitedConnection { io: Either::Right(Box::new(io)), place, ended: Some(ended) })
    }

    /// A place for one more connection of a reporter, if it may have one more and there is one.
    fn enter(&self, name: Arc<str>) -> Option<Reporter> {
        let mut reporters = lock(&self.reporters);
        let (own, shared) = reporters.get(&name).map_or((0, 0), |held| (held.own, held.shared));
        if own + shared >= PER_REPORTER {
            tracing::warn!(%name, "connection closed: the reporter has as many as it may");
            return None;
        }
        let open = if own < OWN { None } else { Some(self.open()?) };
        let held = reporters.entry(Arc::clone(&name)).or_default();
        *(if open.is_none() { &mut held.own } else { &mut held.shared }) += 1;
        Some(Reporter { name, all: Arc::clone(&self.reporters), open })
    }
}

/// One connection of a reporter that has shown a certificate, counted as long as this lives.
#[derive(Debug)]
struct Reporter {
    name: Arc<str>,
    all: Arc<Mutex<BTreeMap<Arc<str>, Held>>>,
    /// `None`: the place is one of its own.
    open: Option<OwnedSemaphorePermit>,
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let mut reporters = lock(&self.all);
        if let Some(held) = reporters.get_mut(&self.name) {
            *(if self.open.is_none() { &mut held.own } else { &mut held.shared }) -= 1;
            if held.own + held.shared == 0 {
                reporters.remove(&self.name);
            }
        }
    }
}

/// The place that a connection takes.
#[derive(Debug)]
enum Place {
    /// Of a client without a proven principal.
    Shared {
        _open: OwnedSemaphorePermit,
    },
    Reporter(Reporter),
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open connection, counted as long as it lives.
pub(super) struct LimitedConnection {
    io: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    place: Place,
    /// Completes when the reporter is not allowed any more.
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The principal that the client of a connection has proven, if any, for the calls on it.
#[derive(Clone, Debug)]
pub(super) struct ProvenReporter(pub(super) Option<Arc<str>>);

impl Connected for LimitedConnection {
    type ConnectInfo = ProvenReporter;

    fn connect_info(&self) -> ProvenReporter {
        ProvenReporter(match &self.place {
            Place::Shared { .. } => None,
            Place::Reporter(reporter) => Some(Arc::clone(&reporter.name)),
        })
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(ended) = &mut self.ended
            && ended.as_mut().poll(cx).is_ready()
        {
            self.ended = None;
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use stickycas_certificates::development::DevelopmentCas;
    use stickycas_server::CredentialFolder;
    use tempfile::TempDir;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpSocket;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream as ClientStream;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    use tokio_stream::StreamExt as _;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_reporter_has_so_many_connections_and_takes_none_of_others() {
        let places = Places::new(PER_REPORTER);
        let enter = |name: &str| places.enter(name.into());
        let mut open: Vec<Reporter> = (0..PER_REPORTER).map(|_| enter("process-1").unwrap()).collect();
        assert!(enter("process-1").is_none());
        assert!(enter("process-2").is_some());
        open.pop();
        assert!(enter("process-1").is_some());
        drop(open);
        assert!(lock(&places.reporters).is_empty(), "nothing is kept of those that are gone");
        assert_eq!(places.shared.available_permits(), PER_REPORTER);
    }

    #[test]
    fn greedy_reporters_leave_every_other_one_its_own_places() {
        const SHARED: usize = 64;
        let places = Places::new(SHARED);
        let enter = |name: String| places.enter(name.into());
        // Of 100 processes 33 may be Byzantine, and they have more than all that is shared if they can.
        let greedy: Vec<Reporter> = (1..=33)
            .flat_map(|process| std::iter::repeat_n(process, PER_REPORTER))
            .filter_map(|process| enter(format!("process-{process}")))
            .collect();
        assert_eq!(greedy.len(), 33 * OWN + SHARED);
        let mut others: Vec<Vec<Reporter>> = (34..=100)
            .map(|process| (0..OWN).map(|_| enter(format!("process-{process}")).unwrap()).collect())
            .collect();
        assert!(enter("process-34".to_owned()).is_none(), "nothing is left");
        // A place that it gives back is its own again.
        others[0].pop();
        assert!(enter("process-35".to_owned()).is_none());
        assert!(enter("process-34".to_owned()).is_some());
    }

    /// The judge's end, and clients that connect to it.
    struct Site {
        connections: ReceiverStream<io::Result<LimitedConnection>>,
        address: SocketAddr,
        cas: DevelopmentCas,
        folder: TempDir,
    }

    impl Site {
        /// A listener that asks for certificates and expects process-1, with one place that is shared and so
        /// many handshakes.
        async fn new(handshakes: usize) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut cas = DevelopmentCas::new("example.org", DAY).unwrap();
            let server = cas.server(&["localhost".to_owned()]).unwrap();
            cas.write_server(folder.path(), &server).unwrap();
            let credentials = CredentialFolder {
                path: folder.path().to_owned(),
                trust_domain: "example.org".to_owned(),
                allow_missing_revocation_list: false,
            };
            let acceptor = ClientAcceptor::new(credentials, handshakes).unwrap();
            let reporters =
                KnownReporters { acceptor: Arc::new(acceptor), are: Arc::new(|name| name == "process-1") };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            Self { connections: accept(listener, 1, Some(reporters)), address, cas, folder }
        }

        /// A client from another address of this machine, with a certificate of this principal.
        async fn connect(&mut self, principal: &str) -> io::Result<ClientStream<TcpStream>> {
            let certified = self.cas.client(principal).unwrap();
            let folder = self.folder.path().join(principal);
            self.cas.write_client(&folder, &certified).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(folder.join("ca.crt")).unwrap()).unwrap();
            let chain = vec![CertificateDer::from_pem_slice(certified.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes()).unwrap();
            let config = ClientConfig::builder().with_root_certificates(roots);
            let mut config = config.with_client_auth_cert(chain, key).unwrap();
            config.alpn_protocols = vec![b"h2".to_vec()];
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
            let tcp = socket.connect(self.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            TlsConnector::from(Arc::new(config)).connect(name, tcp).await
        }

        /// The principal of the next connection.
        async fn next(&mut self) -> String {
            let connection = self.connections.next().await.unwrap().unwrap();
            connection.connect_info().0.unwrap().to_string()
        }
    }

    #[tokio::test]
    async fn a_reporter_comes_in_beside_silent_clients_of_another_address() {
        const HANDSHAKES: usize = 8;
        let mut site = Site::new(HANDSHAKES).await;
        let mut silent = Vec::new();
        for _ in 0..HANDSHAKES {
            silent.push(TcpStream::connect(site.address).await.unwrap());
        }
        // The oldest of them has made room for the youngest. Nobody says so to it, so an end without an
        // alert.
        assert_eq!(silent[0].read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
        let _reporter = site.connect("process-1").await.unwrap();
        assert_eq!(site.next().await, "process-1");
        let youngest = silent[HANDSHAKES - 1].try_read(&mut [0]);
        assert_eq!(youngest.unwrap_err().kind(), io::ErrorKind::WouldBlock, "it is waited for");
    }

    #[tokio::test]
    async fn who_is_no_process_of_the_run_takes_no_place() {
        let mut site = Site::new(8).await;
        for _ in 0..3 {
            // TLS 1.3 tells a client that it is let in before the server has looked at its certificate.
            if let Ok(mut stranger) = site.connect("mallory").await {
                assert_eq!(stranger.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
            }
        }
        let _reporter = site.connect("process-1").await.unwrap();
        assert_eq!(site.next().await, "process-1");
    }
}
