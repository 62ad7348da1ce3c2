//! Round trips and instances by unary calls.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::variant::Timing;
use crate::fixture::Fixture;
use crate::wire::unary::{Client, append, propose};
use crate::workload::Observation;

/// The id of no instance, of the usual length.
const NO_INSTANCE: &str = "00000000000000000000000000000000";

/// An append on each of the first `many` connections and its answer, this many times.
pub(super) async fn round_trips(fixture: &Fixture, times: usize, many: usize) -> anyhow::Result<Vec<Timing>> {
    let mut timings = Vec::new();
    for number in 0..times {
        let started = Instant::now();
        let mut calls = JoinSet::new();
        for connection in fixture.connections.iter().take(many).cloned() {
            calls.spawn(async move {
                let mut client = Client::new(connection.principal.channel.clone());
                append(&mut client, &connection, NO_INSTANCE, number, &mut Observation::EMPTY.clone())
                    .await?;
                anyhow::Ok(Instant::now())
            });
        }
        let mut last = started;
        while let Some(call) = calls.join_next().await {
            last = last.max(call??);
        }
        timings.push(Timing { create: Duration::ZERO, decide: last - started });
    }
    Ok(timings)
}

/// Instances by unary calls.
pub(super) struct Player<'a>(pub(super) &'a Fixture);

impl super::Player for Player<'_> {
    async fn play(&mut self, id: &str, instance: usize) -> anyhow::Result<(Vec<Observation>, Duration)> {
        let connections = &self.0.connections;
        let started = Instant::now();
        let mut processes = JoinSet::new();
        for connection in connections.iter().cloned() {
            let id = id.to_owned();
            processes.spawn(async move {
                let mut client = Client::new(connection.principal.channel.clone());
                let observation = propose(&mut client, &connection, &id, instance).await?;
                anyhow::Ok((connection.process, observation, Instant::now()))
            });
        }
        let (mut all, mut last) = (vec![Observation::EMPTY; connections.len()], started);
        while let Some(process) = processes.join_next().await {
            let (process, observation, decided) = process??;
            all[process] = observation;
            last = last.max(decided);
        }
        Ok((all, last - started))
    }
}
