//! Connected principals: one connection and one Attach stream each, used once and idle since.

use std::path::Path;
use std::time::Instant;

use tokio::task::JoinSet;

use super::Measurement;
use super::play::{Line, append, play};
use super::program::{allow_files, memory};
use super::town::{PROCESSES, Principal, Town, connect, group, name};
use super::verdict;
use crate::serve::{Launch, Layout, Running, Service};

/// Connected to a server that echoes: each has sent one access and got its answer.
pub(super) async fn floor(count: usize) -> anyhow::Result<Measurement> {
    allow_files(count)?;
    let server = Running::start(Service::Floor, &Launch::own(Layout::TwoPrograms)).await?;
    let pid = server.pid().expect("a program of its own has a process id");
    let warm = Principal::connect(&server.url, "warm").await?;
    let _warm = used(&warm).await?;
    let before = memory(pid).await?;
    let started = Instant::now();
    let principals = connect(&server.url, count).await?;
    let mut lines = Vec::new();
    for principal in &principals {
        lines.push(used(principal).await?);
    }
    let after = memory(pid).await?;
    Ok(Measurement::new("connections, server that does nothing", count, before, after, started.elapsed()))
}

async fn used(principal: &Principal) -> anyhow::Result<Line> {
    let first = vec![append(0, 1, bytes::Bytes::from_static(b"value 00"))];
    let mut line = Line::open(principal, first).await?;
    line.hear().await?;
    Ok(line)
}

/// Connected to the real server: each has taken part in an instance, with seven others.
pub(super) async fn server(program: &Path, count: usize) -> anyhow::Result<Measurement> {
    let groups = count / PROCESSES as usize;
    allow_files(count)?;
    let mut town = Town::found(program, 2 * groups + 8, 0).await?;
    // A first group that does not count: what a server sets up once is not what a principal takes.
    let mut extra = Vec::new();
    for number in count..count + PROCESSES as usize {
        extra.push(Principal::connect(&town.server.url, &name(number)).await?);
    }
    let id = town.create(vec![(count..count + PROCESSES as usize).collect()], 16).await?;
    let _extra = take_part(&extra, count, &id).await?;

    // What instances take is another measurement.
    let ids = town.create((0..groups).map(group).collect(), 16).await?;
    let before = memory(town.server.pid()).await?;
    let started = Instant::now();
    town.principals = connect(&town.server.url, count).await?;
    let mut lines = Vec::new();
    for (number, principals) in town.principals.chunks(PROCESSES as usize).enumerate() {
        let id = std::slice::from_ref(&ids[number]);
        lines.extend(take_part(principals, number * PROCESSES as usize, id).await?);
    }
    let after = memory(town.server.pid()).await?;
    Ok(Measurement::new("connected principals", count, before, after, started.elapsed()))
}

/// These principals, the first of whom has this number, play one instance, which is judged; their streams.
async fn take_part(principals: &[Principal], first: usize, id: &[String]) -> anyhow::Result<Vec<Line>> {
    let mut playing = JoinSet::new();
    for (number, principal) in (first..).zip(principals.iter().cloned()) {
        let id = id.to_vec();
        playing.spawn(async move { anyhow::Ok((number, play(&principal, number, &id, &[0], 1).await?)) });
    }
    let (mut lines, mut played) = (Vec::new(), Vec::new());
    while let Some(one) = playing.join_next().await {
        let (number, (line, saw)) = one??;
        lines.push(line);
        played.push((number, saw));
    }
    verdict::judge(&[(first..first + principals.len()).collect()], played)?;
    Ok(lines)
}
