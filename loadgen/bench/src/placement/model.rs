//! The parameters of the simulated time, and the events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// The times and rates of the model. The defaults of etcd's rates are below those that `etcd-rates` has
/// measured on a machine with two cores that ran all members.
#[derive(Clone, Debug, Args, Serialize)]
pub(super) struct Times {
    /// The lease of a server, which renews it every third of this time.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = stickycas_program::parse_duration)]
    pub(super) lease: Duration,
    /// The time until the servers that watch a change receive it, besides etcd's time to send it.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = stickycas_program::parse_duration)]
    pub(super) watch: Duration,
    /// Changes that a cluster of etcd sends in a second, to all watches together.
    #[arg(long, value_name = "RATE", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) told_per_second: u64,
    /// The time of a transaction that need not wait for others.
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = stickycas_program::parse_duration)]
    pub(super) transaction: Duration,
    /// Transactions that a cluster of etcd takes in a second.
    #[arg(long, value_name = "RATE", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) transactions_per_second: u64,
    /// Claims that a server has in flight.
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) claims_in_flight: u32,
    /// Bytes that are read when a shard is taken over: its checkpoints and the log behind them.
    #[arg(long, value_name = "BYTES", default_value_t = MIB)]
    pub(super) shard_bytes: u64,
    /// Bytes that a server reads back in a second.
    #[arg(long, value_name = "RATE", default_value_t = 50 * MIB, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) server_reads: u64,
    /// Bytes that a cluster of etcd sends to readers in a second.
    #[arg(long, value_name = "RATE", default_value_t = 100 * MIB, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) etcd_reads: u64,
    /// The time in which an owner that hands a shard over commits what is in flight.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = stickycas_program::parse_duration)]
    pub(super) commit: Duration,
    /// Shards that a server hands over at once, or a sixteenth of its shards if that is more; the next
    /// follows when another server has one of them. Without a limit unless it is given.
    #[arg(long, value_name = "COUNT", default_value_t = u32::MAX, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) hand_overs: u32,
    /// The time between two computations of the placement; one computation covers all changes since the last.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = stickycas_program::parse_duration)]
    pub(super) pass: Duration,
    /// How long servers wait after a server has come or gone before they claim or release shards.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = stickycas_program::parse_duration)]
    pub(super) settle: Duration,
    /// The time for which a server that restarts is away.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = stickycas_program::parse_duration)]
    pub(super) restart: Duration,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// Its lease is over.
    LeaseEnd { server: usize },
    /// All servers learn that this one can own shards, or no more.
    ServerTold { server: usize, takes: bool },
    /// All servers learn who owns these shards.
    OwnersTold { shards: Vec<usize>, owner: Option<usize> },
    /// Every server computes the placement and acts.
    Pass,
    /// etcd executes the claim.
    Claim { server: usize, shard: usize },
    /// The server has the answer of its claim.
    ClaimAnswer { server: usize, shard: usize, won: bool },
    /// A claim that was lost may be tried again.
    ClaimAgain { server: usize, shard: usize },
    /// The owner has committed what was in flight and sends the transaction that deletes its key.
    Committed { shard: usize },
    /// etcd executes that transaction.
    Release { shard: usize },
    /// The shard is read back and served.
    Serve { server: usize, shard: usize },
}

/// Events by time; of one time, in the order in which they were set.
#[derive(Clone, Debug, Default)]
pub(super) struct EventQueue {
    queue: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    number: u64,
}

impl EventQueue {
    pub(super) fn set(&mut self, at: Duration, event: Event) {
        self.queue.push(Reverse((at, self.number, event)));
        self.number += 1;
    }

    pub(super) fn next(&mut self) -> Option<(Duration, Event)> {
        self.queue.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// Something that does one thing after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    free: Duration,
}

impl Line {
    /// Begins at this moment at the earliest, takes so long; returns the end.
    pub(super) fn take(&mut self, now: Duration, takes: Duration) -> Duration {
        self.free = self.free.max(now) + takes;
        self.free
    }
}

/// The time that so many take at so many per second.
pub(super) fn time_of(count: u64, per_second: u64) -> Duration {
    let nanos = u128::from(count) * 1_000_000_000 / u128::from(per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
