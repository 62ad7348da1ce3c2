//! By unary calls: there and back, and instances.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Took;
use crate::rig::Rig;
use crate::wire::unary::{Client, append, propose};
use crate::work::{self, Saw};

/// The id of an instance that does not exist, as long as one that does.
const NOBODYS: &str = "00000000000000000000000000000000";

/// An append on each of the first `many` connections, and its answer; so many times.
pub(super) async fn round_trips(rig: &Rig, times: usize, many: usize) -> anyhow::Result<Vec<Took>> {
    let mut took = Vec::new();
    for number in 0..times {
        let started = Instant::now();
        let mut calls = JoinSet::new();
        for line in rig.lines.iter().take(many).cloned() {
            calls.spawn(async move {
                let mut client = Client::new(line.channel.clone());
                append(&mut client, &line, NOBODYS, number, &mut Saw::NOTHING.clone()).await?;
                anyhow::Ok(Instant::now())
            });
        }
        let mut last = started;
        while let Some(call) = calls.join_next().await {
            last = last.max(call??);
        }
        took.push(Took { create: Duration::ZERO, decide: last - started });
    }
    Ok(took)
}

/// So many instances, one after the other, each created just before it is played.
pub(super) async fn instances(rig: &Rig, times: usize) -> anyhow::Result<Vec<Took>> {
    let mut creator = rig.creator().await?;
    let mut took = Vec::new();
    let mut all = vec![Vec::new(); rig.lines.len()];
    for instance in 0..times {
        let created = Instant::now();
        let id = creator.create().await?;
        let create = created.elapsed();
        let started = Instant::now();
        let mut processes = JoinSet::new();
        for line in rig.lines.iter().cloned() {
            let id = id.clone();
            processes.spawn(async move {
                let mut client = Client::new(line.channel.clone());
                let saw = propose(&mut client, &line, &id, instance).await?;
                anyhow::Ok((line.process, saw, Instant::now()))
            });
        }
        let mut last = started;
        while let Some(process) = processes.join_next().await {
            let (process, saw, decided) = process??;
            all[process].push(saw);
            last = last.max(decided);
        }
        took.push(Took { create, decide: last - started });
    }
    work::judge(&all, times)?;
    Ok(took)
}
