//! How several servers share the work: instances belong to shards, shards belong to servers for the time of a
//! lease, and the log of each shard lives in etcd, where only the owner of the shard may append to it.
//!
//! A lease decides who tries to own a shard, and never who may write: every write compares the key of its
//! owner, and who was deposed writes nothing. Nothing here knows an instance: a shard is a log of batches and
//! checkpoints, which are bytes.

pub mod committer;
pub mod confirm;
pub mod etcd;
pub mod keys;
pub mod maintenance;
pub mod membership;
#[cfg(any(test, feature = "simulation"))]
pub mod model;
pub mod placement;
pub mod read;
pub mod shard;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
