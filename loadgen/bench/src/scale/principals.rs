//! Connected principals: one connection and one Attach stream each, used once and idle since.

use std::path::Path;
use std::time::Instant;

use tokio::task::JoinSet;

use super::Measurement;
use super::fixture::{PROCESSES, ScaleFixture, connect, group, name};
use super::process::play;
use super::server::{allow_files, memory};
use super::verdict;
use crate::attach_stream::{AttachStream, append};
use crate::principal::Principal;
use crate::serve::{Launch, Layout, RunningServer, Service};

/// Connections to a server that echoes: each has sent one access and received its answer.
pub(super) async fn baseline(count: usize) -> anyhow::Result<Measurement> {
    allow_files(count)?;
    let server = RunningServer::start(Service::Baseline, &Launch::own(Layout::TwoPrograms)).await?;
    let pid = server.pid().expect("a program of its own has a process id");
    let warm = Principal::connect(&server.url, "warm").await?;
    let _warm = connect_and_use(&warm).await?;
    let before = memory(pid).await?;
    let started = Instant::now();
    let principals = connect(&server.url, count).await?;
    let mut streams = Vec::new();
    for principal in &principals {
        streams.push(connect_and_use(principal).await?);
    }
    let after = memory(pid).await?;
    Ok(Measurement::new("connections, server that does nothing", count, before, after, started.elapsed()))
}

async fn connect_and_use(principal: &Principal) -> anyhow::Result<AttachStream> {
    let first = vec![append(0, 1, bytes::Bytes::from_static(b"value 00"))];
    let mut stream = AttachStream::open(principal, first).await?;
    stream.receive().await?;
    Ok(stream)
}

/// Principals connected to StickyCAS: each has taken part in an instance, with seven others.
pub(super) async fn server(program: &Path, count: usize) -> anyhow::Result<Measurement> {
    let groups = count / PROCESSES as usize;
    allow_files(count)?;
    let mut fixture = ScaleFixture::start(program, 2 * groups + 8, 0).await?;
    // A first group that does not count: it includes what a server allocates once.
    let mut extra = Vec::new();
    for number in count..count + PROCESSES as usize {
        extra.push(Principal::connect(&fixture.server.url, &name(number)).await?);
    }
    let id = fixture.create(vec![(count..count + PROCESSES as usize).collect()], 16).await?;
    let _extra = take_part(&extra, count, &id).await?;

    // Created before: the memory of instances is another measurement.
    let ids = fixture.create((0..groups).map(group).collect(), 16).await?;
    let before = memory(fixture.server.pid()).await?;
    let started = Instant::now();
    fixture.principals = connect(&fixture.server.url, count).await?;
    let mut streams = Vec::new();
    for (number, principals) in fixture.principals.chunks(PROCESSES as usize).enumerate() {
        let id = std::slice::from_ref(&ids[number]);
        streams.extend(take_part(principals, number * PROCESSES as usize, id).await?);
    }
    let after = memory(fixture.server.pid()).await?;
    Ok(Measurement::new("connected principals", count, before, after, started.elapsed()))
}

/// Plays one instance with these principals, of which `first` is the number of the first, and judges it.
/// Returns their streams.
async fn take_part(
    principals: &[Principal],
    first: usize,
    id: &[String],
) -> anyhow::Result<Vec<AttachStream>> {
    let mut playing = JoinSet::new();
    for (number, principal) in (first..).zip(principals.iter().cloned()) {
        let id = id.to_vec();
        playing.spawn(async move { anyhow::Ok((number, play(&principal, number, &id, &[0], 1).await?)) });
    }
    let (mut streams, mut played) = (Vec::new(), Vec::new());
    while let Some(one) = playing.join_next().await {
        let (number, (stream, own)) = one??;
        streams.push(stream);
        played.push((number, own));
    }
    verdict::judge(&[(first..first + principals.len()).collect()], played)?;
    Ok(streams)
}
