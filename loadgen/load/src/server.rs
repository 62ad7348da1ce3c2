//! The server's side of a load: its facts, its counts meanwhile, and the most memory it was seen to take.
//!
//! It is asked before the load, once a second, and after it. A server that does not tell is no error: others
//! may be loaded too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_client::Client;
use stickycas_client::counts::{Counts, ServerCounts, ServerFacts};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

/// How often the server is asked, and how long it may take to answer.
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSide {
    /// Its facts, as they were after the load.
    pub facts: ServerFacts,
    /// Bytes of memory that it took before the load, if it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_before: Option<u64>,
    /// The most that it was seen to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_most: Option<u64>,
    /// The largest share of their time for which its threads were seen to have work.
    pub busy_most: f64,
    /// The most instances that were seen under way, of all creators.
    pub under_way_most: u64,
    /// Its counts during the load, of all principals: refusals as `refused REASON`, and other incidents.
    pub counted: BTreeMap<String, u64>,
}

impl ServerSide {
    fn seen(&mut self, facts: &ServerFacts) {
        self.resident_most = self.resident_most.max(facts.resident_bytes);
        self.busy_most = self.busy_most.max(facts.busy);
        self.under_way_most = self.under_way_most.max(facts.instances_under_way);
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { facts, .. } = self;
        let build = if facts.debug_assertions { ", built with debug assertions" } else { "" };
        let commit = facts.commit.as_deref().map_or_else(String::new, |commit| format!(" ({commit})"));
        let memory = self.resident_most.map_or_else(String::new, |bytes| {
            format!(", {:.0} MiB at most", bytes as f64 / f64::from(1024 * 1024))
        });
        let cpus = facts.cpus;
        format!(
            "version {}{commit} on {cpus} x {}, {}{build}{memory}",
            facts.version, facts.architecture, facts.os
        )
    }
}

/// Looks at the server while a load is put on it.
#[derive(Debug)]
pub(super) struct Observer {
    client: Client,
    before: Option<ServerCounts>,
    side: Arc<Mutex<ServerSide>>,
    task: JoinHandle<()>,
}

impl Observer {
    /// Begins to look.
    pub(super) async fn begin(client: Client) -> Self {
        let before = ask(&client).await;
        let side = Arc::new(Mutex::new(ServerSide::default()));
        let (looking, seen) = (client.clone(), Arc::clone(&side));
        let task = tokio::spawn(async move {
            let mut ticks = interval(EVERY);
            loop {
                ticks.tick().await;
                let Some(facts) = ask(&looking).await.and_then(|counts| counts.server) else { continue };
                seen.lock().expect("nobody panics while holding it").seen(&facts);
            }
        });
        Self { client, before, side, task }
    }

    /// The observations; `None` if the server does not tell.
    pub(super) async fn end(self) -> Option<ServerSide> {
        self.task.abort();
        let after = ask(&self.client).await?;
        let before = self.before?;
        let mut side = self.side.lock().expect("nobody panics while holding it").clone();
        side.resident_before = before.server.and_then(|facts| facts.resident_bytes);
        let facts = after.server?;
        side.seen(&facts);
        side.facts = facts;
        let earlier = counted(&before.all);
        side.counted = counted(&after.all);
        for (what, count) in &mut side.counted {
            *count = count.saturating_sub(earlier.get(what).copied().unwrap_or_default());
        }
        side.counted.retain(|_, count| *count > 0);
        Some(side)
    }
}

/// Everything that a server counts, by name.
fn counted(counts: &Counts) -> BTreeMap<String, u64> {
    let refusals = counts.refusals.iter().map(|(reason, count)| (format!("refused {reason}"), *count));
    let others = counts.others().into_iter().map(|(name, count)| (name.replace('_', " "), count));
    refusals.chain(others).collect()
}

/// The server's counts; `None` if it does not tell in time.
async fn ask(client: &Client) -> Option<ServerCounts> {
    // Of one principal only: a server may know very many.
    let own = [client.principal().to_owned()];
    timeout(EVERY, client.counts(&own)).await.ok()?.ok()
}
