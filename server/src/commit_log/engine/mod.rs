//! Engines, which keep the batches and checkpoints of a log.
//!
//! An engine knows places and bytes, and nothing of instances. It keeps two things: the tail, which is
//! batches by place, and checkpoints, which are states by the number of the instance. One [`WriteBatch`] adds
//! a batch; then it sets and removes checkpoints, and then it trims the tail.

mod disk;
#[cfg(test)]
mod manual;
mod read_only;
mod tail;

use std::fmt;

use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;

pub(crate) use self::disk::{DiskEngine, Files};
#[cfg(test)]
pub(crate) use self::manual::ManualEngine;

/// Keeps batches. See the module.
pub(crate) trait Engine: fmt::Debug + Send + Sync {
    /// The number of writes that may be in flight at once, at this moment.
    fn depth(&self) -> usize;

    /// Whether its calls wait for a disk, and so have to be kept off the threads of the runtime.
    fn blocks(&self) -> bool {
        true
    }

    /// Appends a batch. `done` is called once, from any thread, perhaps before this returns. Several batches
    /// may be in flight; a batch is committed only if all batches before it are.
    fn write(&self, batch: WriteBatch, done: Done);

    /// Reads everything back, checkpoints first and then the batches in the order of their places.
    ///
    /// # Errors
    /// If something cannot be read; or the error of `visit`, which ends the reading.
    fn read(&self, visit: Visit<'_>) -> Result<(), EngineError>;

    /// The identity of this log, drawn when it was made. A restored backup is another log.
    ///
    /// # Errors
    /// If it cannot be read.
    fn identity(&self) -> Result<Vec<u8>, EngineError>;

    /// The usage by batches and checkpoints, without the structures of the engine. Known once it has been
    /// read.
    fn usage(&self) -> StoreUsage;

    /// Checks that its writes would be found again.
    ///
    /// # Errors
    /// If its files are no more where they were.
    fn check_place(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// The changes that are committed together.
#[derive(Debug, Default)]
pub(crate) struct WriteBatch {
    /// The place of the batch: one more than that of the batch before.
    pub(crate) log_index: u64,
    /// The encoded batch.
    pub(crate) batch: Vec<u8>,
    /// Checkpoints that are set, by the number of the instance; `None`: removed.
    pub(crate) checkpoints: Vec<(u64, Option<Vec<u8>>)>,
    /// The tail before this place is not needed any more.
    pub(crate) trim: Option<u64>,
    /// Names that instances claim or release, each once; only in a log that several servers share.
    pub(crate) names: Vec<NameChange>,
}

/// A name that is claimed or released together with a batch (SPEC F11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameChange {
    pub(crate) name: InstanceName,
    pub(crate) instance: InstanceId,
    /// The number of the instance.
    pub(crate) number: u64,
    /// Whether the instance claims it, with the record of its creation; else it expires, and releases it if
    /// it has it.
    pub(crate) is_claim: bool,
}

/// Takes the outcome of a write.
pub(crate) type Done = Box<dyn FnOnce(Outcome) + Send>;

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It will survive.
    Committed,
    /// It was not written and never will be: another server owns the log by now.
    Refused(Box<RpcRefusal>),
    /// Nobody knows whether it will survive.
    Unknown(EngineError),
}

/// Something that an engine has kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored<'a> {
    /// The checkpoint of the instance with this number.
    Checkpoint(u64, &'a [u8]),
    /// The batch at this place.
    Batch(u64, &'a [u8]),
}

/// Takes the batches and checkpoints of an engine, one by one.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>;

/// Bytes that an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreUsage {
    /// Of the tail.
    pub(crate) batches: u64,
    /// Of checkpoints.
    pub(crate) checkpoints: u64,
    /// Checkpoints.
    pub(crate) checkpoint_count: u64,
}

/// The reason for which an engine cannot read or write.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct EngineError {
    what: String,
    is_damage: bool,
}

impl EngineError {
    /// An operation has failed, which says nothing about the stored data.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_damage: false }
    }

    /// The stored data are not as they were written.
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_damage: true }
    }

    /// Whether the stored data are not as they were written.
    pub(crate) fn is_damage(&self) -> bool {
        self.is_damage
    }
}

impl StoreUsage {
    /// A checkpoint of so many bytes takes the place of one of so many; `None`: of none.
    pub(crate) fn replace_checkpoint(&mut self, before: Option<usize>, after: Option<usize>) {
        self.checkpoints =
            self.checkpoints.saturating_sub(before.unwrap_or(0) as u64) + after.unwrap_or(0) as u64;
        self.checkpoint_count =
            self.checkpoint_count.saturating_sub(before.is_some().into()) + u64::from(after.is_some());
    }
}
