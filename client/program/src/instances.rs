//! `close`, `get`, `list` and `watch`: instances, their status and their events. `counts`: the server's
//! counts of its callers' conduct.

use std::time::SystemTime;

use clap::Args;
use serde::Serialize;
use stickycas_client::watch::Snapshot;
use stickycas_client::{Client, WatchFrom, Watched};
use stickycas_model::history::Recorded;
use stickycas_model::types::Phase;
use stickycas_program::asked_to_stop;

use super::output::{Exit, Failure, Output};
use super::render;

/// The instance that a command is for.
#[derive(Debug, Args)]
pub(super) struct InstanceArg {
    /// The instance: its id, or its name.
    #[arg(value_name = "ID|NAME")]
    pub(super) instance: String,
}

pub(super) async fn close(
    InstanceArg { instance }: InstanceArg,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let instance = client.find(&instance).await?;
    client.close(instance).await?;
    let closed = serde_json::json!({ "closed": instance.to_string() });
    output.result(&closed, || format!("closed {instance}"))?;
    Ok(Exit::Done)
}

pub(super) async fn get(
    InstanceArg { instance }: InstanceArg,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let view = client.get(&instance).await?;
    output.result(&view, || render::instance(&view))?;
    Ok(Exit::Done)
}

#[derive(Debug, Args)]
pub(super) struct Counts {
    /// Only these principals; without any, all.
    #[arg(value_name = "NAME")]
    principals: Vec<String>,
}

impl Counts {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let counts = client.counts(&self.principals).await?;
        output.result(&counts, || render::counts(&counts))?;
        Ok(Exit::Done)
    }
}

pub(super) async fn list(client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let mut listed = client.list().await?;
    listed.instances.sort_by_key(|summary| (summary.created, summary.id));
    if listed.instances.is_empty() {
        tracing::warn!(
            "no instances that {} may see: those in which it is a process, or which it created; of all, if it is an observer",
            client.principal()
        );
    } else if output.is_json() {
        listed.instances.iter().try_for_each(|summary| output.result(summary, String::new))?;
    } else {
        let width = stickycas_program::terminal_width();
        output.result(&(), || render::list(&listed.instances, SystemTime::now(), width))?;
    }
    if listed.shards_left_out > 0 {
        let shards = render::counted(listed.shards_left_out, "shard has", "shards have");
        tracing::warn!(
            "instances may be missing: {shards} no server now; list again, or see `stickycas-client cluster`"
        );
    }
    Ok(Exit::Done)
}

#[derive(Debug, Args)]
pub(super) struct Watch {
    #[command(flatten)]
    of: InstanceArg,
    /// The first phase wanted. Without it: from the earliest event that is kept.
    #[arg(long, value_name = "PHASE", value_parser = parse_phase, conflicts_with = "snapshot")]
    from_phase: Option<Phase>,
    /// Show how it stands first, and then what happens after that.
    #[arg(long)]
    snapshot: bool,
}

fn parse_phase(text: &str) -> Result<Phase, String> {
    text.parse().ok().and_then(Phase::new).ok_or_else(|| "phases count from 1".to_owned())
}

/// A line of `watch --json`.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Snapshot {
        snapshot: &'a Snapshot,
    },
    Event {
        index: u64,
        #[serde(flatten)]
        recorded: &'a Recorded,
    },
}

impl Watch {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let from = match (self.from_phase, self.snapshot) {
            (_, true) => WatchFrom::Snapshot,
            (Some(phase), false) => WatchFrom::Phase(phase),
            (None, false) => WatchFrom::Start,
        };
        let instance = client.find(&self.of.instance).await?;
        let mut watch = client.watch(instance, from);
        let mut stop = std::pin::pin!(asked_to_stop());
        loop {
            let watched = tokio::select! {
                watched = watch.try_next() => watched?,
                () = &mut stop => return Ok(Exit::Done),
            };
            match watched {
                None => return Ok(Exit::Done),
                Some(Watched::Snapshot(snapshot)) => {
                    let line = Line::Snapshot { snapshot: &snapshot };
                    output.result(&line, || render::snapshot(&snapshot))?;
                }
                Some(Watched::Event(index, recorded)) => {
                    let line = Line::Event { index, recorded: &recorded };
                    output.result(&line, || render::event(&recorded))?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::history::Event;
    use stickycas_model::types::{ProcessId, Time};

    use super::*;

    #[test]
    fn a_line_for_programs_is_the_recorded_event_with_its_index() {
        let recorded =
            Recorded { at: Time::from_nanos(5), event: Event::Joined { process: ProcessId::FIRST } };
        let line = serde_json::to_string(&Line::Event { index: 2, recorded: &recorded }).unwrap();
        assert_eq!(line, r#"{"index":2,"at":5,"event":"joined","process":1}"#);
        assert_eq!(serde_json::from_str::<Recorded>(&line).unwrap(), recorded);
    }
}
