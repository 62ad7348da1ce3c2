//! What operators see: `/livez`, `/readyz`, `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use stickycas_proto::v1::ListRequest;
use stickycas_server::{Config, Listeners, Stopped, run};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Request;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::{COORDINATOR, Client, with_timeout};

/// A server with a listener for operators.
struct Server {
    grpc: SocketAddr,
    http: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<Stopped, stickycas_server::ServeError>>,
}

impl Server {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::insecure([COORDINATOR.to_owned()]);
        change(&mut config);
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = Listeners { grpc: bind().await, http: Some(bind().await) };
        let (grpc, http) = (listeners.grpc.local_addr().unwrap(), listeners.http.as_ref().unwrap());
        let http = http.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(run(listeners, config, async {
            let _ = stopped.await;
        }));
        Self { grpc, http, stop: Some(stop), serving }
    }

    async fn client(&self, principal: &str) -> Client {
        let channel = Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap().connect().await.unwrap();
        Client::on(channel, principal)
    }

    /// The status line and the body of a page.
    async fn get(&self, path: &str) -> (String, String) {
        let answer = self.raw(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
    }

    /// All that the server answers to these bytes.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut tcp = TcpStream::connect(self.http).await.unwrap();
        // The server may have refused by now.
        let _ = tcp.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = with_timeout(tcp.read_to_end(&mut answer)).await;
        String::from_utf8(answer).unwrap()
    }

    /// Every series with its value.
    async fn series(&self) -> BTreeMap<String, f64> {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
            })
            .collect()
    }
}

#[tokio::test]
async fn probes_and_metrics_are_there_and_nothing_else() {
    let server = Server::start(|_| ()).await;
    assert_eq!(server.get("/livez").await, ("HTTP/1.1 200 OK".to_owned(), "alive\n".to_owned()));
    assert_eq!(server.get("/readyz").await, ("HTTP/1.1 200 OK".to_owned(), "ready\n".to_owned()));
    for path in ["/", "/metrics/", "/favicon.ico", "/livez/x", "/..%2f"] {
        assert_eq!(server.get(path).await.0, "HTTP/1.1 404 Not Found", "{path}");
    }
    let posted = server.raw(b"POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await;
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
}

#[tokio::test]
async fn large_headers_are_refused_and_silent_clients_hold_nobody_up() {
    let server = Server::start(|_| ()).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut tcp = TcpStream::connect(server.http).await.unwrap();
        tcp.write_all(b"GET /metrics HT").await.unwrap();
        silent.push(tcp);
    }
    let large = format!("GET /livez HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(64 * 1024));
    let answer = server.raw(large.as_bytes()).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    let many = format!("GET /livez HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
    assert!(!server.raw(many.as_bytes()).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.get("/livez").await.0, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn more_connections_than_may_be_are_closed_at_once() {
    let server = Server::start(|_| ()).await;
    let mut open = Vec::new();
    // More than there may be; those above are closed without an answer.
    for _ in 0..40 {
        open.push(TcpStream::connect(server.http).await.unwrap());
    }
    let mut closed = 0;
    for tcp in &mut open[32..] {
        closed += usize::from(matches!(with_timeout(tcp.read(&mut [0])).await, Ok(0) | Err(_)));
    }
    assert_eq!(closed, 8);
    drop(open);
    with_timeout(async {
        while server.get("/livez").await.0 != "HTTP/1.1 200 OK" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_drains_says_so_and_every_service_is_not_serving() {
    let mut server = Server::start(|config| config.drain = Duration::from_secs(60)).await;
    let channel = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel);
    let services =
        ["", "stickycas.v1.StickyCasService", "stickycas.v1.InstanceService", "stickycas.v1.ServerService"];
    for service in services {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let mut watches = Vec::new();
    for service in services {
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut watch = health.watch(request).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        watches.push(watch);
    }
    // A connection that does not end keeps the server draining.
    let mut raw = crate::harness::raw::RawClient::connect(server.grpc).await;
    let _call = raw.begin("StickyCasService/Append", &[("stickycas-principal", "p1")]).await;
    raw.call_as("p1", "InstanceService/List", crate::harness::raw::prefixed(&[])).await;
    server.stop.take().unwrap().send(()).unwrap();
    for mut watch in watches {
        assert_eq!(with_timeout(watch.message()).await.unwrap().unwrap().status(), ServingStatus::NotServing);
    }
    let (status, words) = server.get("/readyz").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(words.starts_with("not ready: ") && words.contains("told to stop"), "{words}");
    assert_eq!(server.get("/livez").await.0, "HTTP/1.1 200 OK");
    assert_eq!(server.series().await["stickycas_readiness{state=\"draining\"}"].to_bits(), 1_f64.to_bits());
    server.serving.abort();
}

#[tokio::test]
async fn hostile_clients_and_many_principals_add_no_series() {
    let server = Server::start(|_| ()).await;
    let before: BTreeSet<String> = server.series().await.into_keys().collect();
    for number in 0..50 {
        let mut client = server.client(&format!("p{number}\"}} 1")).await;
        client.instances.list(Request::new(ListRequest::default())).await.unwrap();
        let mut raw = crate::harness::raw::RawClient::connect(server.grpc).await;
        let name = format!("hostile-{number}");
        raw.call_as(&name, &format!("StickyCasService/Method{number}"), crate::harness::raw::prefixed(&[])).await;
        raw.call_as(&name, "StickyCasService/Append", crate::harness::raw::prefixed(&[0xff; 9])).await;
    }
    let after = server.series().await;
    assert_eq!(after.keys().cloned().collect::<BTreeSet<_>>(), before);
    assert!(after.len() < 200, "{}", after.len());
    let value = |series: &str| after[series] as u64;
    assert_eq!(value("stickycas_calls_total{method=\"unknown\"}"), 50, "the attack took place");
    assert_eq!(value("stickycas_refusals_total{reason=\"MALFORMED\"}"), 50);
    assert_eq!(value("stickycas_limit_used{limit=\"principals\"}"), 100);
    assert_eq!(value("stickycas_limit_bound{limit=\"principals\"}"), 131_072);
}
