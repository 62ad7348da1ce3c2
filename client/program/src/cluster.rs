//! `cluster`: the servers of the cluster, and which shards each of them owns.

use std::fmt::Write as _;

use stickycas_client::{Client, ClusterInfo, ClusterServer};

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;

pub(super) async fn run(client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let cluster = client.cluster().await?;
    output.result(&cluster, || text(&cluster))?;
    Ok(Exit::Done)
}

fn text(cluster: &ClusterInfo) -> String {
    let mut text = format!("{} shards, {} servers\n", cluster.shards, cluster.servers.len());
    for server in &cluster.servers {
        let _ = writeln!(text, "{}", line(server, cluster));
        for owned in server.shards.iter().filter(|owned| owned.epoch > 0) {
            let _ = writeln!(text, "  shard {:>4}  epoch {}", owned.shard, owned.epoch);
        }
    }
    if !cluster.shards_without_owner.is_empty() {
        let shards: Vec<_> = cluster.shards_without_owner.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "without an owner: {}", shards.join(", "));
    }
    text
}

fn line(server: &ClusterServer, cluster: &ClusterInfo) -> String {
    let name = if server.name.is_empty() { "in no cluster" } else { &server.name };
    let mut line = format!("{name}  {}  {} shards", server.address, server.shards.len());
    if let Some(left) = server.lease_left {
        let _ = write!(line, "  lease ends in {:.1} s", left.as_secs_f64());
    }
    if server.draining {
        line.push_str("  draining");
    }
    if server.name == cluster.answered_by {
        line.push_str("  (has answered)");
    }
    line
}
