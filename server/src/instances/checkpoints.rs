//! Checkpoints: what lets the log forget.
//!
//! Inputs alone could never be trimmed: reads are without number, and one old instance would keep every batch since its
//! creation. So now and then each instance that has records in the log gets a checkpoint, one after the other while all
//! of them are served; then the log before the first of these checkpoints is not needed any more. The work is in
//! proportion to what has changed: an instance without new records keeps its checkpoint.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{Phase, Time};
use stickycas_proto::convert::checkpoint::checkpoint_to_wire;
use stickycas_proto::convert::history::event_to_wire;
use stickycas_proto::log::v1::{Checkpoint, DumpedInstance};
use stickycas_proto::v1;

use super::Instances;
use super::archive::restore_machine;
use super::config::nanos;
use super::effects::Effects;
use super::instance::Instance;
use super::lifecycle::Lifecycle;
use super::shard::ShardContext;
use crate::commit_log::{Dirty, DurableLog, LogIndex, RULES};
use crate::event_log::{ReadEvents as _, SharedEvents, Trailer, step_of};
use crate::limits::checkpoint_events;

/// Bytes of checkpoints that are committed together: enough for the disk, and few enough that the inputs behind them do
/// not wait long.
const BYTES_AT_ONCE: usize = 256 * 1024;

impl Instances {
    /// Gives every instance of the shard that has new records a checkpoint, and trims its log.
    pub(crate) async fn write_checkpoints(&self, shard: &Arc<ShardContext>, log: &DurableLog) {
        let (needed_from, mut dirty) = log.begin_checkpoints();
        dirty.sort_unstable();
        dirty.dedup();
        let mut bytes = 0;
        for Dirty { number, instance } in dirty {
            let found = {
                let registry = self.registry();
                registry.get(instance).map(|found| (found.clone(), registry.holds_name(found)))
            };
            bytes += match found {
                // The shard was dropped and is here again: this is the log of it no more.
                Some((instance, _)) if !Arc::ptr_eq(&instance.shard, shard) => return,
                Some((instance, holds_name)) => instance.write_checkpoint(log, !holds_name),
                None => log.checkpoint(number, None),
            };
            if bytes >= BYTES_AT_ONCE {
                log.committed().await;
                bytes = 0;
            }
        }
        log.committed().await;
        log.trim(needed_from);
    }
}

/// An instance as it is at one moment, of which a checkpoint is made when its lock is free again.
pub(super) struct Captured {
    /// What of the log the checkpoint covers.
    covered: (u64, u32),
    machine: CapturedMachine,
    /// The index of the oldest event kept, and the last phase whose step is not kept.
    first: u64,
    forgotten: Option<Phase>,
    events: SharedEvents,
    uncommitted: Vec<Recorded>,
    ended: Option<Time>,
    latest: Time,
    served: Duration,
    /// Until the effects of which place have left its time stands still.
    stopped_until: Option<LogIndex>,
    name_taken: bool,
}

/// The machine of an instance that lives, or what is kept of it.
enum CapturedMachine {
    Live(Box<stickycas_model::machine::Checkpoint>),
    Archived(Trailer),
}

impl Instance {
    /// Adds the instance as it is now to the log. Returns how many bytes that takes.
    fn write_checkpoint(&self, log: &DurableLog, name_taken: bool) -> usize {
        match self.capture(log, name_taken) {
            Some(captured) => self.write_captured(log, captured),
            None => log.checkpoint(self.config.number, None),
        }
    }

    /// The instance as it is now; `None`: it is gone. Callers wait meanwhile, so only what cannot be shared is copied, which
    /// is the state of each process. With 65,536 processes that takes 7 ms (measured, with an access of each waiting),
    /// and it is left so: it comes once for each `log_tail_bytes` of the log at most. Events are decoded, and
    /// everything is encoded, when the lock is free again: there 140 ms.
    pub(super) fn capture(&self, log: &DurableLog, name_taken: bool) -> Option<Captured> {
        if self.inner.is_poisoned() {
            self.abandon();
        }
        let inner = self.lock_poisoned();
        if inner.gone.is_some() {
            return None;
        }
        let now = self.now(&inner);
        let captured = match &inner.lifecycle {
            Lifecycle::Live(live) => {
                // The machine is ahead of the events that are shown by those that are not committed yet.
                let uncommitted: Vec<_> = live.uncommitted.iter().flat_map(Effects::recorded).collect();
                let ends = |recorded: &&Recorded| matches!(recorded.event, Event::Finished | Event::Closed);
                let ended = live.ended.or_else(|| uncommitted.iter().find(ends).map(|recorded| recorded.at));
                Captured {
                    covered: log.covered(),
                    machine: CapturedMachine::Live(Box::new(live.machine.checkpoint())),
                    first: live.events.first(),
                    forgotten: live.events.forgotten(),
                    events: live.events.share_all(),
                    uncommitted,
                    ended,
                    latest: live.latest,
                    served: Duration::ZERO,
                    stopped_until: live.stopped_until,
                    name_taken,
                }
            }
            Lifecycle::Archived(archived) => Captured {
                covered: log.covered(),
                machine: CapturedMachine::Archived(archived.events.trailer()),
                first: archived.events.first(),
                forgotten: archived.events.forgotten(),
                events: archived.events.share_all(),
                uncommitted: Vec::new(),
                ended: Some(archived.ended),
                latest: archived.ended,
                served: Duration::ZERO,
                stopped_until: None,
                name_taken,
            },
        };
        let served = log.served().saturating_sub(now.since(captured.latest));
        Some(Captured { served, ..captured })
    }

    /// Adds a checkpoint of what was captured to the log. Returns how many bytes that takes.
    pub(super) fn write_captured(&self, log: &DurableLog, captured: Captured) -> usize {
        if captured.stopped_until.is_some() {
            // When its time goes on stands in a batch that the log forgets with the next checkpoints.
            log.checkpoint_again(Dirty { number: self.config.number, instance: self.config.id });
        }
        let bytes = log.checkpoint(self.config.number, Some(&self.checkpoint_of(captured)));
        self.lock_poisoned().count_checkpoint(bytes);
        bytes
    }

    /// The instance with its history, as far as it is kept.
    pub(crate) fn dump(&self) -> DumpedInstance {
        let (first_index, events) = match &self.lock_poisoned().lifecycle {
            Lifecycle::Live(live) => (live.events.first(), live.events.share_all()),
            Lifecycle::Archived(archived) => (archived.events.first(), archived.events.share_all()),
        };
        DumpedInstance {
            number: self.config.number,
            created: Some(self.config.to_log()),
            first_index,
            events: events.read().map(|recorded| event_to_wire(0, &recorded)).collect(),
        }
    }

    fn checkpoint_of(&self, captured: Captured) -> Checkpoint {
        let Captured { covered, first, forgotten, events, uncommitted, ended, latest, .. } = captured;
        let events: Vec<Recorded> = events.read().chain(uncommitted).collect();
        // The index of an event follows from that of the first.
        let mut told: Vec<_> = events.iter().map(|recorded| event_to_wire(0, recorded)).collect();
        let surplus = surplus(&told, checkpoint_events(self.params()));
        told.drain(..surplus);
        let newly_forgotten = events[..surplus].iter().rev().find_map(|recorded| step_of(&recorded.event));
        let mut machine = match captured.machine {
            CapturedMachine::Live(machine) => *machine,
            CapturedMachine::Archived(trailer) => restore_machine(&trailer, &self.config).checkpoint(),
        };
        // What is kept of an archived machine does not tell its time.
        machine.time = machine.time.max(latest);
        let (log_index, records) = covered;
        Checkpoint {
            rules: RULES,
            place: log_index,
            records,
            created: Some(self.config.to_log()),
            machine: Some(checkpoint_to_wire(&machine)),
            first_index: first + surplus as u64,
            forgotten_phase: newly_forgotten.or(forgotten).map_or(0, Phase::get),
            events: told,
            ended_nanos: ended.map(Time::as_nanos),
            at_nanos: latest.as_nanos(),
            served_nanos: nanos(captured.served),
            stopped_place: captured.stopped_until.map_or(0, LogIndex::get),
            name_taken: captured.name_taken,
        }
    }
}

/// How many of these events, the oldest, must go so that the others take at most so many bytes in a checkpoint.
fn surplus(events: &[v1::Event], limit: usize) -> usize {
    /// The key and the length in front of an event.
    const FRAME: usize = 6;
    let mut bytes = 0;
    let fits = |event: &&v1::Event| {
        bytes += FRAME + event.encoded_len();
        bytes <= limit
    };
    events.len() - events.iter().rev().take_while(fits).count()
}

#[cfg(test)]
mod tests;
