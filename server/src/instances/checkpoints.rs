//! Checkpoints: what lets the log forget.
//!
//! Inputs alone could never be trimmed: reads are without number, and one old instance would keep every batch since its
//! creation. So now and then each instance that has records in the log gets a checkpoint, one after the other while all
//! of them are served; then the log before the first of these checkpoints is not needed any more. The work is in
//! proportion to what has changed: an instance without new records keeps its checkpoint.

use prost::Message as _;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::Machine;
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
use crate::commit_log::{Dirty, DurableLog, RULES};
use crate::event_log::{ReadEvents, step_of};
use crate::limits::checkpoint_events;

/// Bytes of checkpoints that are committed together: enough for the disk, and few enough that the inputs behind them do
/// not wait long.
const BYTES_AT_ONCE: usize = 256 * 1024;

impl Instances {
    /// Gives every instance that has new records a checkpoint, and trims the log.
    pub(crate) async fn write_checkpoints(&self, log: &DurableLog) {
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

impl Instance {
    /// Adds the instance as it is now to the log. Returns how many bytes that takes.
    fn write_checkpoint(&self, log: &DurableLog, name_taken: bool) -> usize {
        if self.inner.is_poisoned() {
            self.abandon();
        }
        let mut inner = self.lock_poisoned();
        if inner.gone.is_some() {
            return log.checkpoint(self.config.number, None);
        }
        // The lock is held until the checkpoint has its place in the log: it covers all records before that.
        let mut checkpoint = match &inner.lifecycle {
            Lifecycle::Live(live) => {
                // The machine is ahead of the events that are shown by those that are not committed yet.
                let uncommitted = || live.uncommitted.iter().flat_map(Effects::recorded);
                let ends = |recorded: &Recorded| matches!(recorded.event, Event::Finished | Event::Closed);
                let ended = live.ended.or_else(|| uncommitted().find(ends).map(|recorded| recorded.at));
                let events = live.events.all().chain(uncommitted());
                self.checkpoint_of(&live.machine, &live.events, events, (ended, live.latest))
            }
            Lifecycle::Archived(archived) => {
                let machine = restore_machine(&archived.events.trailer(), &self.config);
                let ended = archived.ended;
                self.checkpoint_of(&machine, &archived.events, archived.events.all(), (Some(ended), ended))
            }
        };
        checkpoint.name_taken = name_taken;
        let age = self.now(&inner).since(Time::from_nanos(checkpoint.at_nanos));
        checkpoint.served_nanos = nanos(log.served().saturating_sub(age));
        let bytes = log.checkpoint(self.config.number, Some(&checkpoint));
        inner.count_checkpoint(bytes);
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

    fn checkpoint_of(
        &self,
        machine: &Machine,
        kept: &impl ReadEvents,
        events: impl Iterator<Item = Recorded>,
        (ended, latest): (Option<Time>, Time),
    ) -> Checkpoint {
        let events: Vec<Recorded> = events.collect();
        // The index of an event follows from that of the first.
        let mut told: Vec<_> = events.iter().map(|recorded| event_to_wire(0, recorded)).collect();
        let surplus = surplus(&told, checkpoint_events(self.params()));
        told.drain(..surplus);
        let forgotten = events[..surplus].iter().rev().find_map(|recorded| step_of(&recorded.event));
        let mut machine = machine.checkpoint();
        // What is kept of an archived machine does not tell its time.
        machine.time = machine.time.max(latest);
        Checkpoint {
            rules: RULES,
            created: Some(self.config.to_log()),
            machine: Some(checkpoint_to_wire(&machine)),
            first_index: kept.first() + surplus as u64,
            forgotten_phase: forgotten.or(kept.forgotten()).map_or(0, Phase::get),
            events: told,
            ended_nanos: ended.map(Time::as_nanos),
            at_nanos: latest.as_nanos(),
            ..Checkpoint::default()
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
