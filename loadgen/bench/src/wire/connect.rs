//! Clients that connect, make one call and stay.

use std::time::Instant;

use stickycas_client::raw::Connection;
use stickycas_proto::v1::ListRequest;

use crate::results::Figures;
use crate::servers::{COORDINATOR, Launch, peak_and_resident};
use crate::stopwatch::processor_time_of;
use crate::tasks::in_parallel;

/// Connections that are opened at a time.
const AT_ONCE: usize = 16;

/// Opens so many connections: their rate, and the processor time and the memory of the server for each when
/// all are there and idle. A connection with TLS is a whole handshake, since no session is resumed; one
/// certificate serves for all.
#[allow(clippy::cast_precision_loss)]
pub(super) async fn turn(launch: &Launch, connections: usize) -> anyhow::Result<Figures> {
    let server = std::sync::Arc::new(launch.start().await?);
    let pid = server.pid();
    // So that what the server makes once is not counted.
    let warm = open(&server).await?;
    let (_, memory_before) = peak_and_resident(pid)?;
    let (time_before, started) = (processor_time_of(pid)?, Instant::now());
    let opening = server.clone();
    let opened = in_parallel(connections, AT_ONCE, move |_| {
        let server = opening.clone();
        async move { open(&server).await }
    });
    let opened = opened.await?;
    let (wall, time) = (started.elapsed(), processor_time_of(pid)?.saturating_sub(time_before));
    let (_, memory) = peak_and_resident(pid)?;
    let count = opened.len() as f64;
    drop(warm);
    Ok(Figures::default()
        .with("connections_per_s", count / wall.as_secs_f64())
        .with("server_cost_us", time.as_secs_f64() * 1e6 / count)
        .with("each_bytes", memory.saturating_sub(memory_before) as f64 / count))
}

/// One connection, on which the server has answered a call: so it has accepted the client.
async fn open(server: &crate::servers::Server) -> anyhow::Result<Connection> {
    let principal = server.connect(COORDINATOR).await?;
    first_call(&principal).await?;
    Ok(principal)
}

/// The first call of a client.
pub(crate) async fn first_call(principal: &Connection) -> anyhow::Result<()> {
    // A page is charged by its size.
    let list = ListRequest { page_size: 1, ..ListRequest::default() };
    principal.instances().list(list).await?;
    Ok(())
}
