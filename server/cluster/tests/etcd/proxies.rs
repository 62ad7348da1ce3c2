//! Members of a cluster that reach etcd through a proxy.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stickycas_cluster::etcd::{Client, Config};
use stickycas_cluster::keys::Name;
use stickycas_cluster::membership::Event;
use stickycas_cluster::store::{KeyRange, Store as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::put_back::{LEASE, Server, keys};
use super::{set, single};

/// Keep-alives that a server has to see answered.
const KEEP_ALIVES: usize = 5;

/// `etcd grpc-proxy`, which is killed in any case.
struct GrpcProxy(Child, String);

impl GrpcProxy {
    async fn start(etcd: &str) -> Self {
        // Closed before the proxy opens it.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let endpoints = etcd.trim_start_matches("http://");
        let mut command = Command::new("etcd");
        command.args(["grpc-proxy", "start", "--endpoints", endpoints, "--listen-addr", &address]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let proxy = Self(child, format!("http://{address}"));
        let client = Client::new(&Config::new([proxy.1.clone()])).unwrap();
        while client.range(KeyRange::one("nothing"), 1).await.is_err() {
            tokio::task::yield_now().await;
        }
        proxy
    }
}

impl Drop for GrpcProxy {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A proxy of connections, as a balancer is one: its address, and what carries the bytes.
async fn tcp_proxy(etcd: &str) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let etcd = etcd.trim_start_matches("http://").to_owned();
    let proxy = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let etcd = etcd.clone();
            tokio::spawn(async move {
                let mut member = TcpStream::connect(etcd).await.unwrap();
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut member).await;
            });
        }
    });
    (url, proxy)
}

/// Two servers share the shards, and keep them while their leases are kept alive.
async fn servers_keep_what_they_own(url: &str) {
    // A busy machine must not end it.
    let lease = LEASE * 4;
    let client = || Client::new(&Config::new([url.to_owned()]).with_lease(lease)).unwrap();
    let mut first = Server::start(client(), "a", lease);
    first.owns(4).await;
    let mut second = Server::start(client(), "b", lease);
    tokio::join!(first.owns(2), second.owns(2));
    for server in [&mut first, &mut second] {
        let mut view = server.membership.view();
        view.wait_for(|view| (view.servers.len(), view.owners.len()) == (2, 4)).await.unwrap();
        server.is_kept_alive(KEEP_ALIVES).await;
        while let Ok(moved) = server.events.try_recv() {
            // What was released may be told to be lost, too.
            let is_released =
                matches!(&moved, Event::Lost { shard, .. } if !server.owned.contains_key(shard));
            assert!(is_released, "nothing has moved: {moved:?}");
        }
    }
    first.membership.leave().await;
    second.owns(4).await;
    second.membership.leave().await;
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn behind_the_grpc_proxy_of_etcd_servers_keep_what_they_own() {
    let (etcd, _client) = single().await;
    let proxy = GrpcProxy::start(&etcd.urls()[0]).await;
    servers_keep_what_they_own(&proxy.1).await;
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn behind_a_proxy_of_connections_servers_keep_what_they_own() {
    let (etcd, _client) = single().await;
    let (url, proxy) = tcp_proxy(&etcd.urls()[0]).await;
    servers_keep_what_they_own(&url).await;
    proxy.abort();
}

/// The proxy leads to a member that answers nothing, and then to another one: a connection that stands does
/// not hold a client to the first.
#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_request_that_failed_is_followed_by_a_new_connection() {
    let (etcd, _client) = single().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let targets = [silent.local_addr().unwrap().to_string(), etcd.urls()[0].replace("http://", "")];
    let proxy = tokio::spawn(async move {
        for target in targets {
            let (mut client, _) = proxy.accept().await.unwrap();
            tokio::spawn(async move {
                let mut member = TcpStream::connect(target).await.unwrap();
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut member).await;
            });
        }
    });
    let limit = Duration::from_secs(2);
    let config = Config { request_limit: limit, connect_limit: limit, ..Config::new([url]) };
    let client = Client::new(&config).unwrap();
    assert!(set(&client, "a", "1").await.is_err(), "nobody answers");
    set(&client, "a", "2").await.unwrap();
    proxy.await.unwrap();
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_second_process_under_a_name_in_use_waits_for_it() {
    let (etcd, client) = single().await;
    // A busy machine must not end it.
    let lease = LEASE * 2;
    let client_of = || Client::new(&etcd.config().with_lease(lease)).unwrap();
    let mut first = Server::start(client_of(), "a", lease);
    first.owns(4).await;
    let mut second = Server::start(client_of(), "a", lease);
    first.is_kept_alive(KEEP_ALIVES).await;
    assert!(first.events.try_recv().is_err() && second.events.try_recv().is_err());
    let name = keys().server(&Name::new("a").unwrap());
    assert_eq!(client.range(KeyRange::one(name), 1).await.unwrap().found.len(), 1);
    first.driver.abort();
    second.owns(4).await;
}
