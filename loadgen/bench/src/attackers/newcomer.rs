//! A newcomer among clients that connect as fast as they can: the turn `newcomers`.
//!
//! A program on the second processor opens TCP connections from four addresses, 127.0.0.2 to 127.0.0.5, sends
//! nothing on them, keeps the latest and resets older ones, so that ports do not run out. Each newcomer comes
//! from an address of its own (127.0.1.1 and on), and is timed from its connect to the answer of its first
//! call, behind a TLS handshake. One that is refused connects again, at once.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use stickycas_proto::v1::ListRequest;
use tokio::net::{TcpSocket, TcpStream};

use super::{finish, start};
use crate::results::{Figures, Row};
use crate::servers::{COORDINATOR, Launch, Server, runtime};

/// A newcomer that is not in by then has failed.
const LONGEST: Duration = Duration::from_secs(20);
/// How long the flood goes on before newcomers come.
const WARM_UP: Duration = Duration::from_secs(1);
const SOURCES: u8 = 4;
/// Connects under way at a time, from each address.
const AT_ONCE: usize = 8;
/// Connections that the flood holds open.
const HELD: usize = 8_000;

/// So many newcomers on a quiet server, and then beside the flood.
#[allow(clippy::cast_precision_loss)]
pub(super) async fn turn(launch: &Launch, newcomers: u8) -> anyhow::Result<Row> {
    let server = launch.start().await?;
    let quiet = come_all(&server, 1..=newcomers).await?;
    let address = server.url.strip_prefix("https://").context("no https:// in the URL")?;
    let flood = start(&["flood-connects", address])?;
    let started = Instant::now();
    tokio::time::sleep(WARM_UP).await;
    let (times, failures) = come_all(&server, newcomers + 1..=2 * newcomers).await?;
    let lasted = started.elapsed();
    let connects: u64 = finish(flood)?.trim().parse().context("the flood does not say how many it were")?;
    ensure!(connects > 0, "nobody connected: that was no flood");
    let figures = Figures::default()
        .quantile_ms("quiet_p50_ms", &quiet.0, 0.5)
        .quantile_ms("p50_ms", &times, 0.5)
        .quantile_ms("longest_ms", &times, 1.0)
        .with("connects_per_s", connects as f64 / lasted.as_secs_f64())
        .count("repeated", failures);
    Ok(Row::once("newcomers", figures))
}

/// From each of these addresses one client, and how often clients had to connect again.
async fn come_all(
    server: &Server,
    addresses: std::ops::RangeInclusive<u8>,
) -> anyhow::Result<(Vec<Duration>, u64)> {
    let (mut times, mut failures) = (Vec::new(), 0);
    for number in addresses {
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 1, number), 0));
        let started = Instant::now();
        while let Err(error) = come(server, from).await {
            failures += 1;
            ensure!(started.elapsed() < LONGEST, "no newcomer gets in: {error:#}");
        }
        times.push(started.elapsed());
    }
    Ok((times, failures))
}

/// One client from this address, until its first call is answered.
async fn come(server: &Server, from: SocketAddr) -> anyhow::Result<()> {
    let client = server.identities.client(&server.url, COORDINATOR)?;
    let client = client.connect_lazy_over(move |to| async move {
        let to = to.parse().map_err(std::io::Error::other)?;
        let stream = connect(from, to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })?;
    // A page is charged by its size.
    let list = ListRequest { page_size: 1, ..ListRequest::default() };
    client.connection().instances().list(list).await?;
    Ok(())
}

/// The subcommand `flood-connects`: connects until standard input ends, and then says how often.
pub(crate) fn flood(address: SocketAddr) -> anyhow::Result<()> {
    let runtime = runtime(1)?;
    let connects = Arc::new(AtomicU64::new(0));
    for source in 0..SOURCES {
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2 + source), 0));
        for _ in 0..AT_ONCE {
            runtime.spawn(connect_on_and_on(from, address, connects.clone()));
        }
    }
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    writeln!(std::io::stdout(), "{}", connects.load(Ordering::Relaxed))?;
    runtime.shutdown_background();
    Ok(())
}

/// Connects without a pause, and holds the latest of them.
async fn connect_on_and_on(from: SocketAddr, to: SocketAddr, connects: Arc<AtomicU64>) {
    let mut latest = VecDeque::new();
    loop {
        match connect(from, to).await {
            Ok(stream) => {
                connects.fetch_add(1, Ordering::Relaxed);
                latest.push_back(stream);
            }
            // No port or file is free: older ones make room.
            Err(_) => tokio::task::yield_now().await,
        }
        if latest.len() > HELD / (usize::from(SOURCES) * AT_ONCE) {
            drop(latest.pop_front());
        }
    }
}

/// A connection that is reset when it is dropped.
async fn connect(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_zero_linger()?;
    socket.bind(from)?;
    socket.connect(to).await
}
