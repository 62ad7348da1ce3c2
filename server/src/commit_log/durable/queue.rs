//! The batches that wait for their commit: the one that forms, and those that the engine has not resolved
//! yet.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use prost::Message as _;
use stickycas_proto::log::v1::{Batch, Record};
use stickycas_proto::names::InstanceId;
use tokio::sync::oneshot;

use crate::commit_log::engine::NameChange;
use crate::commit_log::{BatchLimits, LogIndex};
use crate::quota::LogBytes;

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    /// The batch that forms.
    pub(super) forming: Forming,
    /// Whether it may be written, with what has come so far.
    pub(super) is_gathered: bool,
    /// Its place.
    pub(super) log_index: LogIndex,
    /// The instances that have records since the last checkpoints were begun, some of them twice.
    pub(super) dirty: Vec<Dirty>,
    /// An instance is among them if it has a record at this place or behind it.
    pub(super) dirty_since: LogIndex,
    /// Instances whose creation was refused, by number, until they are gone: the log takes nothing of them.
    pub(super) refused: BTreeMap<u64, InstanceId>,
    /// Batches that take nothing more and have not been handed to the engine yet. They are among those in
    /// flight.
    pub(super) sealed: VecDeque<(LogIndex, Forming)>,
    /// Batches that the engine has not resolved yet, in order.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Batches that are committed and whose effects have not all left yet, in order, and their bytes.
    pub(super) leaving: VecDeque<(LogIndex, usize)>,
    /// Bytes of all of them.
    pub(super) bytes: usize,
    /// Those of them that the server has counted.
    pub(super) counted: usize,
    /// The last batch that is written, once the log closes; batches behind it are never resolved.
    pub(super) closing: Option<LogIndex>,
    /// The last batch of which all effects have left, and how long instances had been served then, in
    /// nanoseconds.
    pub(super) released: (LogIndex, u64),
}

impl Queue {
    /// The next batch for the engine, which is in flight from now on. `served`: how long instances have been
    /// served, in nanoseconds.
    pub(super) fn begin_batch(&mut self, served: u64) -> (LogIndex, Forming) {
        self.sealed.pop_front().unwrap_or_else(|| self.take_forming(served))
    }

    /// The batch that forms takes nothing more; another one forms. `served`: as above.
    pub(super) fn seal(&mut self, served: u64) {
        if !self.forming.is_empty() {
            let sealed = self.take_forming(served);
            self.sealed.push_back(sealed);
        }
    }

    /// Whether there is a batch for the engine.
    pub(super) fn has_batch(&self) -> bool {
        !self.sealed.is_empty() || (self.is_gathered && !self.forming.is_empty())
    }

    /// The [`Resolving`] of the last batch so far; `None`: everything is committed.
    pub(super) fn last(&mut self) -> Option<&mut Resolving> {
        if self.forming.is_empty() {
            return Some(&mut self.in_flight.back_mut()?.resolving);
        }
        Some(&mut self.forming.resolving)
    }

    /// Batches that the engine has.
    pub(super) fn at_engine(&self) -> usize {
        self.in_flight.len() - self.sealed.len()
    }

    fn take_forming(&mut self, served: u64) -> (LogIndex, Forming) {
        let mut forming = std::mem::take(&mut self.forming);
        self.is_gathered = false;
        (forming.served, forming.released) = (served, self.released);
        let log_index = self.log_index;
        self.log_index = log_index.next();
        let resolving = std::mem::take(&mut forming.resolving);
        // The next batch is about as large.
        self.forming.records.reserve(forming.records.len() + BATCH_REST);
        self.in_flight.push_back(InFlight { log_index, resolving, committed: false });
        (log_index, forming)
    }

    /// So many bytes leave with the batch at this place.
    pub(super) fn hold(&mut self, log_index: LogIndex, bytes: usize) {
        let leaving = self.leaving.iter_mut().find(|(it, _)| *it == log_index).map(|(_, held)| held);
        let in_flight = self.in_flight.iter_mut().find(|batch| batch.log_index == log_index);
        let forming = (self.log_index == log_index).then_some(&mut self.forming.resolving.bytes);
        if let Some(held) = leaving.or(in_flight.map(|batch| &mut batch.resolving.bytes)).or(forming) {
            *held += bytes;
            self.bytes += bytes;
        }
    }

    /// The checkpoint of this instance as it may be set: there is none of an instance whose creation was
    /// refused. It is removed, and once more in the next turn if the instance was not gone yet.
    pub(super) fn accept_checkpoint(&mut self, number: u64, state: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let Some(&instance) = self.refused.get(&number) else { return state };
        match state {
            Some(_) => self.dirty.push(Dirty { number, instance }),
            None => drop(self.refused.remove(&number)),
        }
        None
    }

    /// The effects of the batches up to this place have left. `served`: as above.
    pub(super) fn release(&mut self, log_index: LogIndex, served: u64) {
        self.released = (log_index, served);
        while let Some((_, bytes)) = self.leaving.pop_front_if(|(left, _)| *left <= log_index) {
            self.bytes -= bytes;
        }
    }
}

/// A batch that forms.
#[derive(Default)]
pub(super) struct Forming {
    /// Its records, encoded as fields of the [`Batch`].
    records: Vec<u8>,
    record_count: u32,
    pub(super) checkpoints: Vec<(u64, Option<Vec<u8>>)>,
    checkpoint_bytes: usize,
    pub(super) names: Vec<NameChange>,
    pub(super) trim: Option<LogIndex>,
    /// Whether it is written even if nothing else is in it: it tells the time.
    pub(super) writes_time: bool,
    /// The times that it tells, once it takes nothing more: how long instances had been served, in
    /// nanoseconds, and [`Queue::released`].
    pub(super) served: u64,
    pub(super) released: (LogIndex, u64),
    pub(super) resolving: Resolving,
}

impl Forming {
    /// Adds a record; returns its bytes.
    pub(super) fn push(&mut self, record: &Record) -> usize {
        let before = self.records.len();
        // At once: a message that crosses to the thread of the writer costs more than its bytes do.
        prost::encoding::message::encode(BATCH_RECORDS, record, &mut self.records);
        self.record_count += 1;
        self.records.len() - before
    }

    /// Sets the checkpoint of an instance, or removes it.
    pub(super) fn set_checkpoint(&mut self, number: u64, state: Option<Vec<u8>>) {
        self.checkpoint_bytes += state.as_ref().map_or(0, Vec::len);
        self.checkpoints.push((number, state));
    }

    /// Whether it is to take nothing more.
    pub(super) fn is_full(&self, limits: BatchLimits) -> bool {
        self.records.len() + self.checkpoint_bytes >= limits.bytes
            || self.checkpoints.len() + self.names.len() >= limits.changes
    }

    /// The number of its records.
    pub(super) fn record_count(&self) -> u32 {
        self.record_count
    }

    /// The batch, encoded: its records and these other fields.
    pub(super) fn take_batch(&mut self, others: &Batch) -> Vec<u8> {
        debug_assert!(others.records.is_empty(), "they are encoded already");
        let mut batch = std::mem::take(&mut self.records);
        others.encode(&mut batch).expect("a vector grows");
        batch
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.checkpoints.is_empty() && self.trim.is_none() && !self.writes_time
    }
}

/// An instance with records that no checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dirty {
    /// Its number.
    pub(crate) number: u64,
    /// Its id.
    pub(crate) instance: InstanceId,
}

/// The instances and tasks to tell, and the charges to give back, when a batch is resolved.
#[derive(Default)]
pub(super) struct Resolving {
    pub(super) instances: Vec<InstanceId>,
    pub(super) barriers: Vec<oneshot::Sender<()>>,
    /// The charges of clients for bytes that wait until then; given back when this is dropped.
    pub(super) charges: Vec<LogBytes>,
    pub(super) bytes: usize,
    /// The moment at which the first step of the batch came.
    pub(super) since: Option<Instant>,
}

pub(super) struct InFlight {
    pub(super) log_index: LogIndex,
    pub(super) resolving: Resolving,
    pub(super) committed: bool,
}

/// About how much memory the effects of a step take until it is committed.
pub(super) fn effect_bytes(events: usize) -> usize {
    const STEP: usize = 256;
    const EVENT: usize = 96;
    STEP + events * EVENT
}

/// Bytes of the other fields of a [`Batch`], at most.
const BATCH_REST: usize = 48;
/// The number of the field `records` of a [`Batch`] in log.proto.
const BATCH_RECORDS: u32 = 2;

#[cfg(test)]
mod tests {
    use stickycas_proto::log::v1::{Restart, record};

    use super::*;

    #[test]
    fn a_batch_that_is_encoded_in_parts_is_the_batch() {
        let restart = Record { input: Some(record::Input::Restart(Restart {})), ..Record::default() };
        let tick = Record { instance: 7, at_nanos: 1, digest: 9, ..Record::default() };
        for records in [&[][..], &[Record::default()], &[restart, tick]] {
            let [served_nanos, released_place, released_nanos] = [u64::MAX; 3];
            let records = records.to_vec();
            let expected = Batch { rules: 3, records, served_nanos, released_place, released_nanos };
            let mut forming = Forming::default();
            let bytes: usize = expected.records.iter().map(|record| forming.push(record)).sum();
            assert_eq!(forming.record_count() as usize, expected.records.len());
            let encoded = forming.take_batch(&Batch { records: Vec::new(), ..expected.clone() });
            assert!((bytes..=bytes + BATCH_REST).contains(&encoded.len()), "{} of {bytes}", encoded.len());
            assert_eq!(Batch::decode(&*encoded).unwrap(), expected);
        }
    }
}
