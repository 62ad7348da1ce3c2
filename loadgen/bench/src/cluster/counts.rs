//! The counters of etcd's members and of the servers: transactions, reads, batches.

use anyhow::Context as _;
use serde::Serialize;

use crate::etcd::Etcd;
use crate::operators::{Commits, Metrics};

/// Proposals of writes that a member has applied: every member applies all of them.
const PROPOSALS: &str = "etcd_server_proposals_applied_total";
/// Transactions that a member has answered, those that only read included.
const TRANSACTIONS: &str = "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Txn\",\
    grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";

/// Since the start, or between two moments.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Counts {
    /// Writes that etcd has applied: transactions that write, and a few for leases.
    pub(crate) writes: f64,
    /// Transactions that etcd has answered, those that only read included.
    pub(crate) transactions: f64,
    /// The commits of the logs of all shards: a commit is one batch of one shard.
    #[serde(flatten)]
    pub(crate) log: Commits,
}

impl Counts {
    /// The counts of etcd.
    pub(crate) async fn of_etcd(etcd: &Etcd) -> anyhow::Result<Self> {
        let (mut writes, mut transactions) = (0.0_f64, 0.0);
        for url in etcd.urls() {
            let address = url.strip_prefix("http://").context("etcd has no TLS here")?;
            let metrics = Metrics::read(address).await?;
            writes = writes.max(metrics.value(PROPOSALS)?);
            // There is none before the first call.
            transactions += metrics.value(TRANSACTIONS).unwrap_or(0.0);
        }
        let log = Commits { commits: 0.0, steps: 0.0, sync_s: 0.0, bytes: 0.0 };
        Ok(Self { writes, transactions, log })
    }

    /// Adds the metrics of the server with this address for operators.
    pub(crate) async fn add_server(&mut self, operators: &str) -> anyhow::Result<()> {
        let log = Commits::read(operators).await?;
        self.log = Commits {
            commits: self.log.commits + log.commits,
            steps: self.log.steps + log.steps,
            sync_s: self.log.sync_s + log.sync_s,
            bytes: self.log.bytes + log.bytes,
        };
        Ok(())
    }

    /// Transactions that only read: confirmations of ownership.
    pub(crate) fn reads(&self) -> f64 {
        (self.transactions - self.writes).max(0.0)
    }

    /// Those between an earlier moment and this one.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            transactions: self.transactions - before.transactions,
            log: self.log.since(&before.log),
        }
    }
}
