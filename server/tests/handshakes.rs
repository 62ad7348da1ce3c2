//! Connections that belong to nobody yet: many at once, and newcomers among floods of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::harness::fixtures::{self, PROPOSAL};
use crate::harness::frames::{FrameClient, HEADERS, list};
use crate::harness::{Server, with_timeout};
use crate::limits::PREFACE;

/// A connection from this address of the loopback network.
pub(crate) async fn connect_from(last: u8, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0))?;
    socket.connect(address).await
}

#[tokio::test]
async fn a_thousand_clients_connect_at_once() {
    const CLIENTS: usize = 1_000;
    let server = Server::start().await;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let address = server.address;
        clients.spawn(async move {
            let mut client = FrameClient::connect(address).await;
            client.send(&list(1, &format!("p{number}"))).await;
            client.until(HEADERS, 1).await;
            client
        });
    }
    let clients = with_timeout(clients.join_all()).await;
    assert_eq!(clients.len(), CLIENTS);
    assert_eq!(server.counts().await.all.unwrap().connections_silent, 0, "none had to make room");
}

/// Floods with connections from four addresses until it is dropped; counts them.
pub(crate) fn flood(address: SocketAddr) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (mut flood, connected) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for task in 0..8_u8 {
        let connected = connected.clone();
        flood.spawn(async move {
            let mut held = std::collections::VecDeque::new();
            loop {
                if let Ok(mut stream) = connect_from(2 + task % 4, address).await {
                    connected.fetch_add(1, Ordering::Relaxed);
                    if task % 2 == 0 {
                        let _ = stream.write_all(PREFACE).await;
                    }
                    held.push_back(stream);
                }
                if held.len() > 400 {
                    held.pop_front();
                }
            }
        });
    }
    (flood, connected)
}

#[tokio::test]
async fn a_newcomer_comes_in_beside_floods_from_four_addresses() {
    let server = Server::with(|config| {
        config.limits.unclaimed_connections = 64;
        config.limits.unclaimed_connections_per_address = 64;
    })
    .await;
    let id = fixtures::instance(&server).await;
    let (flood, connected) = flood(server.address);
    server.counts_until(|all| all.connections_silent > 1_000).await;
    for _ in 0..10 {
        let before = connected.load(Ordering::Relaxed);
        let mut newcomer = with_timeout(connect_from(99, server.address)).await.unwrap();
        newcomer.write_all(PREFACE).await.unwrap();
        // As many as there are places have come since, from the four.
        with_timeout(async {
            while connected.load(Ordering::Relaxed) < before + 200 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        newcomer.write_all(&list(1, "p1")).await.unwrap();
        let mut answer = [0; 9];
        with_timeout(newcomer.read_exact(&mut answer)).await.expect("it was not cut");
    }
    drop(flood);
    fixtures::play(&server, &id, PROPOSAL).await;
}
