//! By unary calls: there and back, and instances.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Took;
use crate::rig::Rig;
use crate::wire::unary::{Client, append, propose};
use crate::work::Saw;

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

/// Instances by unary calls.
pub(super) struct Player<'a>(pub(super) &'a Rig);

impl super::Player for Player<'_> {
    async fn play(&mut self, id: &str, instance: usize) -> anyhow::Result<(Vec<Saw>, Duration)> {
        let lines = &self.0.lines;
        let started = Instant::now();
        let mut processes = JoinSet::new();
        for line in lines.iter().cloned() {
            let id = id.to_owned();
            processes.spawn(async move {
                let mut client = Client::new(line.channel.clone());
                let saw = propose(&mut client, &line, &id, instance).await?;
                anyhow::Ok((line.process, saw, Instant::now()))
            });
        }
        let (mut all, mut last) = (vec![Saw::NOTHING; lines.len()], started);
        while let Some(process) = processes.join_next().await {
            let (process, saw, decided) = process??;
            all[process] = saw;
            last = last.max(decided);
        }
        Ok((all, last - started))
    }
}
