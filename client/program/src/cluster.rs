//! `cluster`: the servers of the cluster, the shards of each, and the changes between two answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime};

use clap::Args;
use stickycas_client::{Client, ClusterInfo, ClusterServer, OwnedShard};
use stickycas_program::asked_to_stop;

use super::output::{Exit, Failure, Output};
use super::render::counted;

/// Between two questions who owns what.
const ASK_AGAIN: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub(super) struct Cluster {
    /// Go on until told to stop: a line for each change of who owns how many shards. A server that cannot be
    /// reached is waited for.
    #[arg(long)]
    watch: bool,
}

impl Cluster {
    /// Whether it goes on until told to stop.
    pub(super) fn is_repeated(&self) -> bool {
        self.watch
    }

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
        let changes = known.update(&cluster);
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
    let mut text = format!(
        "{}, {}\n",
        counted(cluster.shards, "shard", "shards"),
        counted(cluster.servers.len(), "server", "servers")
    );
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
        let _ = write!(line, "  {}", counted(server.shards.len(), "shard", "shards"));
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

/// A change, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// The server that has answered has no lease, and so does not know the owners of shards.
    Unknown,
    /// This server belongs to the cluster from now on.
    Joined(String),
    /// It hands its shards over.
    Drains(String),
    /// It does not belong to the cluster any more: it has stopped, or its lease has ended.
    Left(String),
    /// So many shards have no owner any more; they were this server's.
    Lost { from: String, shards: usize },
    /// So many shards have a new owner. `from`: the last owner that is known.
    Moved { from: Option<String>, to: String, shards: usize },
    /// The number of shards of each owner, after these changes, and of those without one.
    Owned { shards: BTreeMap<String, usize>, without_owner: usize },
}

/// Whether the server that has answered has told that its lease has ended: then it owns nothing, and knows of
/// no owner.
fn has_no_lease(cluster: &ClusterInfo) -> bool {
    let own = cluster.servers.iter().find(|server| server.name == cluster.answered_by);
    own.is_some_and(|own| own.lease_left == Some(Duration::ZERO))
}

/// The owners of the shards, as far as servers have told.
#[derive(Debug, Default)]
struct Ownership {
    /// Whether the last answer was that of a server without a lease.
    is_unknown: bool,
    /// The servers, and whether they drain.
    servers: BTreeMap<String, bool>,
    shards: BTreeMap<u32, Shard>,
}

#[derive(Clone, Debug)]
struct Shard {
    owner: String,
    epoch: u64,
    /// Whether the owner has lost it, and no other is known.
    lost: bool,
}

/// The change of a shard's owner by an answer.
enum Owned {
    AsBefore,
    /// It seemed to be lost, and is not.
    Again,
    Anew {
        from: Option<String>,
    },
}

impl Ownership {
    /// Takes in an answer and returns the changes. Older owners, named by servers that are behind, are
    /// ignored.
    fn update(&mut self, told: &ClusterInfo) -> Vec<Change> {
        let was_unknown = std::mem::replace(&mut self.is_unknown, has_no_lease(told));
        if self.is_unknown {
            return if was_unknown { Vec::new() } else { vec![Change::Unknown] };
        }
        let mut changes = Vec::new();
        let (mut lost, mut moved, mut found) = (BTreeMap::new(), BTreeMap::new(), was_unknown);
        for server in &told.servers {
            match self.servers.insert(server.name.clone(), server.draining) {
                None => changes.push(Change::Joined(server.name.clone())),
                Some(false) if server.draining => changes.push(Change::Drains(server.name.clone())),
                Some(_) => {}
            }
            for &OwnedShard { shard, epoch } in &server.shards {
                match self.owned(shard, epoch, &server.name) {
                    Owned::AsBefore => {}
                    Owned::Again => found = true,
                    Owned::Anew { from } => *moved.entry((from, server.name.clone())).or_insert(0) += 1,
                }
            }
        }
        for shard in &told.shards_without_owner {
            if let Some(shard) = self.shards.get_mut(shard).filter(|shard| !shard.lost) {
                shard.lost = true;
                *lost.entry(shard.owner.clone()).or_insert(0) += 1;
            }
        }
        changes.extend(self.left(told).into_iter().map(Change::Left));
        changes.extend(lost.into_iter().map(|(from, shards)| Change::Lost { from, shards }));
        changes.extend(moved.into_iter().map(|((from, to), shards)| Change::Moved { from, to, shards }));
        if found || !changes.is_empty() {
            changes.push(self.owned_by_all());
        }
        changes
    }

    /// A shard has this owner, as a server tells.
    fn owned(&mut self, shard: u32, epoch: u64, owner: &str) -> Owned {
        let now = Shard { owner: owner.to_owned(), epoch, lost: false };
        match self.shards.get_mut(&shard) {
            None => {
                self.shards.insert(shard, now);
                Owned::Anew { from: None }
            }
            Some(known) if known.epoch < epoch => {
                let before = std::mem::replace(known, now);
                Owned::Anew { from: Some(before.owner) }
            }
            Some(known) if known.epoch == epoch && known.lost => {
                known.lost = false;
                Owned::Again
            }
            Some(_) => Owned::AsBefore,
        }
    }

    /// The servers that are not named any more.
    fn left(&mut self, told: &ClusterInfo) -> Vec<String> {
        let named: BTreeSet<&str> = told.servers.iter().map(|server| server.name.as_str()).collect();
        self.servers.extract_if(.., |name, _| !named.contains(name.as_str())).map(|(name, _)| name).collect()
    }

    fn owned_by_all(&self) -> Change {
        let mut shards: BTreeMap<String, usize> = self.servers.keys().map(|name| (name.clone(), 0)).collect();
        let mut without_owner = 0;
        for shard in self.shards.values() {
            if shard.lost {
                without_owner += 1;
            } else {
                *shards.entry(shard.owner.clone()).or_default() += 1;
            }
        }
        Change::Owned { shards, without_owner }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                write!(f, "who owns what is not known: the server that answers has no lease")
            }
            Self::Joined(server) => write!(f, "{server} has joined"),
            Self::Drains(server) => write!(f, "{server} hands its shards over"),
            Self::Left(server) => write!(f, "{server} has left, or its lease has ended"),
            Self::Lost { from, shards } => write!(f, "{from} has lost {}", count(*shards)),
            Self::Moved { from: Some(from), to, shards } if from == to => {
                write!(f, "{to} owns {} again", count(*shards))
            }
            Self::Moved { from: Some(from), to, shards } => {
                write!(f, "{to} has taken {} of {from}", count(*shards))
            }
            Self::Moved { from: None, to, shards } => write!(f, "{to} owns {}", count(*shards)),
            Self::Owned { shards, without_owner } => {
                let owned: Vec<String> =
                    shards.iter().map(|(server, shards)| format!("{server} {shards}")).collect();
                write!(f, "now: {}, without an owner {without_owner}", owned.join(", "))
            }
        }
    }
}

fn count(shards: usize) -> String {
    if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of a server: the name and the shards with epochs of each server; the shards without owner.
    fn view(servers: &[(&str, &[(u32, u64)])], shards_without_owner: &[u32]) -> ClusterInfo {
        let server = |(name, shards): &(&str, &[(u32, u64)])| ClusterServer {
            name: (*name).to_owned(),
            address: String::new(),
            shards: shards.iter().map(|&(shard, epoch)| OwnedShard { shard, epoch }).collect(),
            lease_left: None,
            draining: false,
        };
        let (servers, answered_by) = (servers.iter().map(server).collect(), "a".to_owned());
        ClusterInfo { shards: 4, servers, answered_by, shards_without_owner: shards_without_owner.to_vec() }
    }

    fn lines(known: &mut Ownership, told: &ClusterInfo) -> Vec<String> {
        known.update(told).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_server_that_dies_loses_its_shards_to_the_others() {
        let mut known = Ownership::default();
        let begin = view(&[("a", &[(0, 1), (1, 2)]), ("b", &[(2, 3)]), ("c", &[(3, 4)])], &[]);
        assert_eq!(
            lines(&mut known, &begin),
            [
                "a has joined",
                "b has joined",
                "c has joined",
                "a owns 2 shards",
                "b owns 1 shard",
                "c owns 1 shard",
                "now: a 2, b 1, c 1, without an owner 0",
            ]
        );
        assert_eq!(lines(&mut known, &begin), [""; 0]);
        let dead = view(&[("b", &[(2, 3)]), ("c", &[(3, 4)])], &[0, 1]);
        let wanted = [
            "a has left, or its lease has ended",
            "a has lost 2 shards",
            "now: b 1, c 1, without an owner 2",
        ];
        assert_eq!(lines(&mut known, &dead), wanted);
        assert_eq!(lines(&mut known, &dead), [""; 0]);
        let taken = view(&[("b", &[(0, 7), (2, 3)]), ("c", &[(1, 8), (3, 4)])], &[]);
        let wanted =
            ["b has taken 1 shard of a", "c has taken 1 shard of a", "now: b 2, c 2, without an owner 0"];
        assert_eq!(lines(&mut known, &taken), wanted);
    }

    #[test]
    fn a_server_that_hands_over_is_told_before_it_leaves() {
        let mut known = Ownership::default();
        known.update(&view(&[("a", &[(0, 1)]), ("b", &[(1, 2)])], &[]));
        let mut drains = view(&[("a", &[(0, 1)]), ("b", &[(1, 2)])], &[]);
        drains.servers[0].draining = true;
        let wanted = ["a hands its shards over", "now: a 1, b 1, without an owner 0"];
        assert_eq!(lines(&mut known, &drains), wanted);
        drains.servers[0].shards.clear();
        drains.servers[1].shards.push(OwnedShard { shard: 0, epoch: 3 });
        assert_eq!(
            lines(&mut known, &drains),
            ["b has taken 1 shard of a", "now: a 0, b 2, without an owner 0"]
        );
        let gone = view(&[("b", &[(0, 3), (1, 2)])], &[]);
        assert_eq!(
            lines(&mut known, &gone),
            ["a has left, or its lease has ended", "now: b 2, without an owner 0"]
        );
    }

    #[test]
    fn what_a_server_says_that_is_behind_is_no_change() {
        let mut known = Ownership::default();
        let newer = view(&[("a", &[(0, 5)]), ("b", &[])], &[]);
        known.update(&newer);
        assert_eq!(lines(&mut known, &view(&[("a", &[]), ("b", &[(0, 3)])], &[])), [""; 0]);
        // A shard that is lost and found again by its owner has the same epoch.
        let nobody = view(&[("a", &[]), ("b", &[])], &[0]);
        assert_eq!(lines(&mut known, &nobody), ["a has lost 1 shard", "now: a 0, b 0, without an owner 1"]);
        assert_eq!(lines(&mut known, &newer), ["now: a 1, b 0, without an owner 0"]);
        let later = view(&[("a", &[(0, 6)]), ("b", &[])], &[]);
        assert_eq!(lines(&mut known, &later), ["a owns 1 shard again", "now: a 1, b 0, without an owner 0"]);
    }

    #[test]
    fn what_a_server_without_a_lease_says_is_no_change() {
        let mut known = Ownership::default();
        let begin = view(&[("a", &[(0, 1)]), ("b", &[(1, 2)])], &[]);
        known.update(&begin);
        let mut cut_off = view(&[("a", &[]), ("b", &[])], &[0, 1]);
        cut_off.servers[0].lease_left = Some(Duration::ZERO);
        let wanted = ["who owns what is not known: the server that answers has no lease"];
        assert_eq!(lines(&mut known, &cut_off), wanted);
        assert_eq!(lines(&mut known, &cut_off), [""; 0]);
        assert_eq!(lines(&mut known, &begin), ["now: a 1, b 1, without an owner 0"]);
        assert_eq!(lines(&mut known, &begin), [""; 0]);
    }
}
