//! `cluster`: the servers of the cluster, and which shards each of them owns.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use clap::Args;
use stickycas_client::{Client, ClusterInfo, ClusterServer};
use stickycas_program::asked_to_stop;

use super::cluster_changes::{Ownership, View, has_no_lease};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;

/// Between two questions who owns what.
const ASK_AGAIN: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub(super) struct Cluster {
    /// Go on until told to stop: a line for each change of who owns how many shards. A server that cannot be reached is
    /// waited for.
    #[arg(long)]
    watch: bool,
}

impl Cluster {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        if !self.watch {
            let cluster = client.cluster().await?;
            output.result(&cluster, || text(&cluster))?;
            return Ok(Exit::Done);
        }
        tokio::select! {
            biased;
            () = asked_to_stop() => Ok(Exit::Done),
            failed = watch(client, output) => Err(failed),
        }
    }
}

/// Tells changes, for ever.
async fn watch(client: &Client, output: &mut Output<'_>) -> Failure {
    let client = client.clone().with_retry(client.retry_policy().without_end());
    let mut known = Ownership::default();
    loop {
        let cluster = match client.cluster().await {
            Ok(cluster) => cluster,
            Err(error) => return error.into(),
        };
        let changes = known.update(&View::from(&cluster));
        if !changes.is_empty() {
            let now = humantime::format_rfc3339_seconds(SystemTime::now());
            let lines =
                || changes.iter().fold(String::new(), |text, change| format!("{text}{now}  {change}\n"));
            if let Err(error) = output.result(&cluster, lines) {
                return error.into();
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

fn text(cluster: &ClusterInfo) -> String {
    let mut text = format!("{} shards, {} servers\n", cluster.shards, cluster.servers.len());
    for server in &cluster.servers {
        let _ = writeln!(text, "{}", line(server, cluster));
        for owned in server.shards.iter().filter(|owned| owned.epoch > 0) {
            let _ = writeln!(text, "  shard {:>4}  epoch {}", owned.shard, owned.epoch);
        }
    }
    if has_no_lease(cluster) {
        text.push_str("who owns the shards is not known: the server that has answered has no lease\n");
    } else if !cluster.shards_without_owner.is_empty() {
        let shards: Vec<_> = cluster.shards_without_owner.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "without an owner: {}", shards.join(", "));
    }
    text
}

fn line(server: &ClusterServer, cluster: &ClusterInfo) -> String {
    let name = if server.name.is_empty() { "in no cluster" } else { &server.name };
    let mut line = format!("{name}  {}", server.address);
    if !has_no_lease(cluster) {
        let _ = write!(line, "  {} shards", server.shards.len());
    }
    match server.lease_left {
        Some(Duration::ZERO) => line.push_str("  no lease"),
        Some(left) => {
            let _ = write!(line, "  lease ends in {:.1} s", left.as_secs_f64());
        }
        None => {}
    }
    if server.draining {
        line.push_str("  draining");
    }
    if server.name == cluster.answered_by {
        line.push_str("  (has answered)");
    }
    line
}
