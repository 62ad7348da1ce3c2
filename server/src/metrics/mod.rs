//! The metrics, in the text format of Prometheus (OpenMetrics), made for each request.
//!
//! Counting and telling are two things. Frequent events are counted in place, by atomics without locks:
//! [`steps`] for the steps of instances, the accounts of principals for calls and refusals, [`commit_log`]
//! for a durable log, and for a server of a cluster the moves of its shards. Durations are counted in the
//! histograms of `prometheus-client`, each behind a short lock: once for a unary call, a batch and the taking
//! of a shard. Every other value is read from its owner at a request for `/metrics` ([`sources`]).
//!
//! A label's value is a `&'static str` ([`exposition`]): no name that a client chooses can become a series,
//! so the number of series is fixed when the program is compiled.

#[cfg(feature = "cluster")]
pub(crate) mod cluster;
mod commit_log;
mod exposition;
pub(crate) mod process;
mod steps;

#[cfg(feature = "cluster")]
pub(crate) use cluster::{ClusterSample, ShardMove, ShardMoves};
pub(crate) use commit_log::CommitLogMetrics;
pub(crate) use exposition::{CONTENT_TYPE, Exposition};
pub(crate) use process::resident_bytes;
pub(crate) use steps::{StepCounter, StepCounters};
