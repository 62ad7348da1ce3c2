//! The metrics of a server of a cluster: its shards and how they move, its lease, what becomes of its
//! transactions, and the space of etcd.
//!
//! A server that is no part of a cluster has none of them. The server counts moves itself ([`ShardMoves`]);
//! everything else is read when it is asked for ([`ClusterSample`]).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use stickycas_cluster::committer::Transactions;
use stickycas_cluster::confirm::Confirmations;
use stickycas_cluster::maintenance::{Fullness, Space};

use super::exposition::Exposition;

/// Upper bounds of the buckets of the time that it takes to take a shard, in seconds.
const SECONDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The kinds of moves of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardMove {
    /// The server owns it in a new epoch.
    Gained,
    /// All that the server took for it is committed, and it is free for another server.
    HandedOver,
    /// Another server owns it, or the lease was not confirmed in time.
    Lost,
    /// It could not be served here, and is free for another server.
    GivenUp,
}

/// Counters of moves, and how long it took to take shards.
#[derive(Debug)]
pub(crate) struct ShardMoves {
    counts: [AtomicU64; 4],
    take: Histogram,
}

impl Default for ShardMoves {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; 4], take: Histogram::new(SECONDS) }
    }
}

impl ShardMoves {
    /// A shard has come or gone.
    pub(crate) fn count(&self, moved: ShardMove) {
        self.counts[moved as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A shard is served so long after the server knew that it owns it.
    pub(crate) fn taken(&self, took: Duration) {
        self.take.observe(took.as_secs_f64());
    }

    /// The number of moves of this kind.
    pub(crate) fn get(&self, moved: ShardMove) -> u64 {
        self.counts[moved as usize].load(Ordering::Relaxed)
    }
}

/// The cluster as this server sees it at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterSample {
    /// Shards of the cluster.
    pub(crate) shards: u64,
    /// Those that this server owns in its view.
    pub(crate) owned: u64,
    /// Those that it serves.
    pub(crate) served: u64,
    /// Those whose logs it reads, to serve them.
    pub(crate) taking: u64,
    /// Those that nobody owns.
    pub(crate) without_owner: u64,
    /// Servers, those that drain among them.
    pub(crate) servers: u64,
    /// Servers that drain.
    pub(crate) draining: u64,
    /// The time of the lease.
    pub(crate) lease: Duration,
    /// The time that the lease lasts at least.
    pub(crate) lease_left: Duration,
    pub(crate) transactions: Transactions,
    pub(crate) confirmations: Confirmations,
    pub(crate) space: Space,
    /// Whether no instances are created for want of space.
    pub(crate) is_full: bool,
}

pub(crate) fn encode(out: &mut Exposition<'_>, moves: &ShardMoves, sample: &ClusterSample) -> fmt::Result {
    shards(out, moves, sample)?;
    lease(out, sample)?;
    transactions(out, &sample.transactions)?;
    confirmations(out, &sample.confirmations)?;
    space(out, sample)
}

fn shards(out: &mut Exposition<'_>, moves: &ShardMoves, sample: &ClusterSample) -> fmt::Result {
    out.gauge("stickycas_cluster_shard_count", "Shards of the cluster", sample.shards)?;
    out.gauges(
        "stickycas_cluster_shards",
        "Shards of this server by state: owned as it knows; of these, served, and taking: their logs are \
         being read",
        "state",
        [("owned", sample.owned), ("served", sample.served), ("taking", sample.taking)],
    )?;
    out.gauge(
        "stickycas_cluster_shards_without_owner",
        "Shards that no server owns, as this one knows",
        sample.without_owner,
    )?;
    out.gauges(
        "stickycas_cluster_servers",
        "Servers of the cluster by state, as this one knows",
        "state",
        [("serving", sample.servers.saturating_sub(sample.draining)), ("draining", sample.draining)],
    )?;
    out.counters(
        "stickycas_cluster_shard_moves",
        "Shards that have come to this server or left it: gained in a new epoch; handed over; lost, since \
         another server owned it or the lease was not confirmed; given up, since it could not be served \
         here",
        "move",
        [
            ("gained", moves.get(ShardMove::Gained)),
            ("handed_over", moves.get(ShardMove::HandedOver)),
            ("lost", moves.get(ShardMove::Lost)),
            ("given_up", moves.get(ShardMove::GivenUp)),
        ],
    )?;
    out.histogram(
        "stickycas_cluster_take_seconds",
        "Time from the ownership of a shard until it is served: its log is read and replayed meanwhile",
        &moves.take,
    )
}

fn lease(out: &mut Exposition<'_>, sample: &ClusterSample) -> fmt::Result {
    out.gauge("stickycas_cluster_lease_seconds", "Time of the server's lease", sample.lease.as_secs_f64())?;
    out.gauge(
        "stickycas_cluster_lease_left_seconds",
        "For how long the lease is confirmed from now on; 0: the server has none, and owns nothing",
        sample.lease_left.as_secs_f64(),
    )
}

fn transactions(out: &mut Exposition<'_>, counts: &Transactions) -> fmt::Result {
    out.counters(
        "stickycas_cluster_transactions",
        "Transactions with batches by result: committed; refused by the owner's key, the place in a log \
         or a name; of unknown outcome, which a read has resolved; not taken, and sent again; rejected \
         for ever",
        "result",
        [
            ("committed", counts.committed),
            ("refused_owner", counts.refused_owner),
            ("refused_place", counts.refused_place),
            ("refused_name", counts.refused_name),
            ("unknown", counts.unknown),
            ("not_taken", counts.not_taken),
            ("rejected", counts.rejected),
        ],
    )?;
    out.counter("stickycas_cluster_batches", "Batches in transactions that were committed", counts.batches)?;
    out.counter(
        "stickycas_cluster_transaction_bytes",
        "Bytes in transactions that were committed, without pieces of large checkpoints",
        counts.bytes,
    )
}

fn confirmations(out: &mut Exposition<'_>, counts: &Confirmations) -> fmt::Result {
    out.counters(
        "stickycas_cluster_confirming_reads",
        "Linearizable reads that confirm ownership, by whether etcd has answered",
        "result",
        [("answered", counts.reads), ("unanswered", counts.unanswered_reads)],
    )?;
    out.counters(
        "stickycas_cluster_confirmations",
        "Calls, frames and pages that waited for such a read, once for each shard, by what it showed",
        "result",
        [
            ("confirmed", counts.confirmed),
            ("deposed", counts.deposed),
            ("not_confirmed", counts.not_confirmed),
        ],
    )
}

fn space(out: &mut Exposition<'_>, sample: &ClusterSample) -> fmt::Result {
    let space = &sample.space;
    out.gauges(
        "stickycas_etcd_members",
        "Members of etcd that this server knows, by whether they have told their state",
        "state",
        [("answering", space.members.len() as u64), ("silent", space.silent as u64)],
    )?;
    let largest = space.members.values().map(|member| member.size).max().unwrap_or(0);
    out.gauge("stickycas_etcd_size_bytes", "Bytes of the largest file of a member of etcd", largest)?;
    out.gauge(
        "stickycas_etcd_used_bytes",
        "Bytes in use in the file of a member of etcd, at most",
        space.used(),
    )?;
    out.gauge("stickycas_etcd_quota_bytes", "The quota of etcd, as this server was told", space.quota)?;
    out.gauge(
        "stickycas_etcd_near_quota",
        "1 while 70 % of the quota are in use, or more",
        u64::from(space.fullness() >= Fullness::Near),
    )?;
    out.gauge(
        "stickycas_etcd_full",
        "1 while no instances are created, since 90 % of the quota are in use or etcd takes nothing",
        u64::from(sample.is_full),
    )?;
    out.gauge(
        "stickycas_etcd_alarm",
        "1 while etcd has raised its alarm NOSPACE: nothing is committed until it is disarmed",
        u64::from(space.alarm),
    )
}

#[cfg(test)]
mod tests {
    use stickycas_cluster::store::MemberSpace;

    use super::*;

    fn text(moves: ShardMoves, sample: ClusterSample) -> String {
        super::super::exposition::tests::text(move |out| encode(out, &moves, &sample))
    }

    #[test]
    fn a_server_of_a_cluster_has_the_documented_metrics() {
        let told = text(ShardMoves::default(), ClusterSample::default());
        let page = include_str!("../../../docs/operate/operations.md");
        let names = |name: &str| [format!("| `{name}` "), format!("| `{name}_total` ")];
        let mut count = 0;
        for line in told.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, help) = line.split_once(' ').unwrap();
            let row = page.lines().find(|row| names(name).iter().any(|name| row.starts_with(name)));
            assert!(row.is_some_and(|row| row.ends_with(&format!("| {help} |"))), "{line}");
            count += 1;
        }
        let in_page = page
            .lines()
            .filter(|row| row.starts_with("| `stickycas_cluster_") || row.starts_with("| `stickycas_etcd_"));
        assert_eq!(in_page.count(), count, "the page has no others");
    }

    #[test]
    fn each_number_is_told_under_its_name() {
        let moves = ShardMoves::default();
        for (moved, times) in [
            (ShardMove::Gained, 4),
            (ShardMove::HandedOver, 3),
            (ShardMove::Lost, 2),
            (ShardMove::GivenUp, 1),
        ] {
            (0..times).for_each(|_| moves.count(moved));
        }
        moves.taken(Duration::from_millis(30));
        let member = |size, size_in_use| MemberSpace { size, size_in_use, is_leader: false };
        let sample = ClusterSample {
            shards: 64,
            owned: 22,
            served: 20,
            taking: 2,
            without_owner: 5,
            servers: 3,
            draining: 1,
            lease: Duration::from_secs(5),
            lease_left: Duration::from_millis(4500),
            transactions: Transactions {
                committed: 11,
                refused_owner: 12,
                refused_place: 13,
                refused_name: 14,
                unknown: 15,
                not_taken: 16,
                rejected: 17,
                batches: 18,
                bytes: 19,
            },
            confirmations: Confirmations {
                reads: 21,
                unanswered_reads: 22,
                confirmed: 23,
                deposed: 24,
                not_confirmed: 25,
            },
            space: Space {
                members: [("a".to_owned(), member(900, 100)), ("b".to_owned(), member(800, 750))].into(),
                silent: 1,
                quota: 1000,
                alarm: false,
            },
            is_full: true,
        };
        let told = text(moves, sample);
        for line in [
            "stickycas_cluster_shard_count 64",
            "stickycas_cluster_shards{state=\"owned\"} 22",
            "stickycas_cluster_shards{state=\"served\"} 20",
            "stickycas_cluster_shards{state=\"taking\"} 2",
            "stickycas_cluster_shards_without_owner 5",
            "stickycas_cluster_servers{state=\"serving\"} 2",
            "stickycas_cluster_servers{state=\"draining\"} 1",
            "stickycas_cluster_shard_moves_total{move=\"gained\"} 4",
            "stickycas_cluster_shard_moves_total{move=\"handed_over\"} 3",
            "stickycas_cluster_shard_moves_total{move=\"lost\"} 2",
            "stickycas_cluster_shard_moves_total{move=\"given_up\"} 1",
            "stickycas_cluster_take_seconds_bucket{le=\"0.025\"} 0",
            "stickycas_cluster_take_seconds_bucket{le=\"0.05\"} 1",
            "stickycas_cluster_lease_seconds 5.0",
            "stickycas_cluster_lease_left_seconds 4.5",
            "stickycas_cluster_transactions_total{result=\"committed\"} 11",
            "stickycas_cluster_transactions_total{result=\"refused_owner\"} 12",
            "stickycas_cluster_transactions_total{result=\"refused_place\"} 13",
            "stickycas_cluster_transactions_total{result=\"refused_name\"} 14",
            "stickycas_cluster_transactions_total{result=\"unknown\"} 15",
            "stickycas_cluster_transactions_total{result=\"not_taken\"} 16",
            "stickycas_cluster_transactions_total{result=\"rejected\"} 17",
            "stickycas_cluster_batches_total 18",
            "stickycas_cluster_transaction_bytes_total 19",
            "stickycas_cluster_confirming_reads_total{result=\"answered\"} 21",
            "stickycas_cluster_confirming_reads_total{result=\"unanswered\"} 22",
            "stickycas_cluster_confirmations_total{result=\"confirmed\"} 23",
            "stickycas_cluster_confirmations_total{result=\"deposed\"} 24",
            "stickycas_cluster_confirmations_total{result=\"not_confirmed\"} 25",
            "stickycas_etcd_members{state=\"answering\"} 2",
            "stickycas_etcd_members{state=\"silent\"} 1",
            "stickycas_etcd_size_bytes 900",
            "stickycas_etcd_used_bytes 750",
            "stickycas_etcd_quota_bytes 1000",
            "stickycas_etcd_near_quota 1",
            "stickycas_etcd_full 1",
            "stickycas_etcd_alarm 0",
        ] {
            assert!(told.contains(&format!("{line}\n")), "{line}: {told}");
        }
    }
}
