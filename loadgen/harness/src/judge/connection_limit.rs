//! The connections to the [`ReportService`](super::ReportService): no more at a time than there are places,
//! and, where reporters show certificates, only those of reporters that are known, each of which has places
//! that no other can take.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
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
/// Connections of one reporter that has shown a certificate: its client has one, and another one that takes
/// its place.
const PER_REPORTER: usize = 4;

/// The places that connections have.
pub(super) enum Places {
    /// So many for all: the names of reporters are believed.
    Shared(Arc<Semaphore>),
    /// Those of each reporter are its own, once it has shown its certificate. The acceptor bounds the
    /// handshakes that are under way.
    Proven { acceptor: Arc<ClientAcceptor>, of: BTreeMap<String, Arc<Semaphore>> },
}

/// The places of one reporter.
pub(super) fn own_places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(PER_REPORTER))
}

/// Accepted connections that have a place; one without is closed at once. No more are accepted when the
/// stream is dropped.
pub(super) fn accept(listener: TcpListener, places: Places) -> ReceiverStream<io::Result<LimitedConnection>> {
    let (accepted, connections) = mpsc::channel(1);
    let places = Arc::new(places);
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
            let (places, accepted) = (Arc::clone(&places), accepted.clone());
            // A handshake takes its time, and others are not to wait for it.
            tokio::spawn(async move {
                if let Some(connection) = places.admit(stream, address).await {
                    let _ = accepted.send(Ok(connection)).await;
                }
            });
        }
    });
    ReceiverStream::new(connections)
}

impl Places {
    async fn admit(&self, stream: TcpStream, address: SocketAddr) -> Option<LimitedConnection> {
        let (acceptor, of) = match self {
            Self::Shared(places) => {
                let _place = place(places)?;
                let (io, name, ended) = (Either::Left(stream), None, None);
                return Some(LimitedConnection { io, name, ended, _place });
            }
            Self::Proven { acceptor, of } => (acceptor, of),
        };
        let is_expected = |name: &str| of.contains_key(name);
        let (io, client) = acceptor.accept(stream, address, HANDSHAKE, is_expected).await?;
        let name = client.principal().into();
        let _place = place(of.get(client.principal())?)?;
        let ended: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { client.ended().await });
        let (io, name, ended) = (Either::Right(Box::new(io)), Some(name), Some(ended));
        Some(LimitedConnection { io, name, ended, _place })
    }
}

fn place(of: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let place = Arc::clone(of).try_acquire_owned();
    place.inspect_err(|_| tracing::warn!("connection closed: as many are open as may be")).ok()
}

/// An open connection, which has its place as long as it lives.
pub(super) struct LimitedConnection {
    io: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    /// What its client has proven to be.
    name: Option<Arc<str>>,
    /// Completes when the reporter is not allowed any more.
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _place: OwnedSemaphorePermit,
}

/// The principal that the client of a connection has proven, if any, for the calls on it.
#[derive(Clone, Debug)]
pub(super) struct ProvenReporter(pub(super) Option<Arc<str>>);

impl Connected for LimitedConnection {
    type ConnectInfo = ProvenReporter;

    fn connect_info(&self) -> ProvenReporter {
        ProvenReporter(self.name.clone())
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
    fn a_reporter_has_places_that_no_other_can_take() {
        let names = (1..=100).map(|process| format!("process-{process}"));
        let mut places = BTreeMap::from_iter(names.map(|name| (name, own_places())));
        let enter = |places: &BTreeMap<String, Arc<Semaphore>>, name: &str| place(places.get(name)?);
        let mut greedy: Vec<_> = std::iter::from_fn(|| enter(&places, "process-1")).collect();
        assert_eq!(greedy.len(), PER_REPORTER);
        assert!((2..=100).all(|process| enter(&places, &format!("process-{process}")).is_some()));
        greedy.pop();
        assert!(enter(&places, "process-1").is_some(), "a place that it gives back is its own again");
        places.remove("process-1");
        assert!(enter(&places, "process-1").is_none(), "it is no process of the run");
    }

    /// The judge's end, and clients that connect to it.
    struct Site {
        connections: ReceiverStream<io::Result<LimitedConnection>>,
        address: SocketAddr,
        cas: DevelopmentCas,
        folder: TempDir,
    }

    impl Site {
        /// A listener that asks for certificates and expects process-1, and takes so many handshakes.
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
            let of = BTreeMap::from([("process-1".to_owned(), own_places())]);
            let places = Places::Proven { acceptor: Arc::new(acceptor), of };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            Self { connections: accept(listener, places), address, cas, folder }
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
