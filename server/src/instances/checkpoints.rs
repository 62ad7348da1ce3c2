//! Checkpoints: states of instances, which make the log before them unnecessary.
//!
//! Inputs alone could never be trimmed: reads are without number, and one old instance would keep every batch
//! since its creation. So now and then each instance that has records in the log gets a checkpoint, one after
//! the other while all of them are served; then the log before the first of these checkpoints is not needed
//! any more. The work is in proportion to what has changed: an instance without new records keeps its
//! checkpoint.

use std::time::Duration;

use prost::Message as _;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::Checkpoint as MachineCheckpoint;
use stickycas_model::types::{Phase, Time};
use stickycas_proto::convert::checkpoint::checkpoint_to_wire;
use stickycas_proto::convert::history::event_to_wire;
use stickycas_proto::log::v1::Checkpoint;
use stickycas_proto::v1;

use super::archive::restore_machine;
use super::config::nanos;
use super::effects::Effects;
use super::instance::Instance;
use super::lifecycle::Lifecycle;
use crate::commit_log::{Dirty, DurableLog, LogIndex, RULES};
use crate::event_log::{ArchivedEvents, EventsView, SharedEvents, Trailer, step_of};
use crate::limits::checkpoint_events;

/// An instance as it is at one moment, of which a checkpoint is made when its lock is free again.
pub(super) struct Captured {
    /// The end of the part of the log that the checkpoint covers: a place, and a number of records of the
    /// batch there.
    covered: (u64, u32),
    state: CapturedState,
    ended: Option<Time>,
    latest: Time,
    served: Duration,
    /// The time of the instance stands still until the effects of this place have left.
    stopped_until: Option<LogIndex>,
    name_taken: bool,
}

/// The machine and the events of an instance, or its archive.
enum CapturedState {
    Unpacked {
        machine: CapturedMachine,
        /// The index of the oldest event kept, and the last phase whose step is not kept.
        first: u64,
        forgotten: Option<Phase>,
        events: SharedEvents,
        uncommitted: Vec<Recorded>,
    },
    Archived(ArchivedEvents),
}

/// A machine, or the snapshot of it.
enum CapturedMachine {
    Live(Box<MachineCheckpoint>),
    Archived(Trailer),
}

impl CapturedState {
    fn unpacked(machine: CapturedMachine, events: EventsView<'_>, uncommitted: Vec<Recorded>) -> Self {
        let (first, forgotten) = (events.first, events.forgotten);
        Self::Unpacked { machine, first, forgotten, events: events.share_all(), uncommitted }
    }
}

impl Captured {
    /// The instance as it is now; `None`: it is gone. Callers wait meanwhile, so only what cannot be shared
    /// is copied, which is the state of each process. With 65,536 processes that takes 7 ms (measured, with
    /// an access of each waiting), and it is left so: it comes once for each `log_tail_bytes` of the log at
    /// most. Events are decoded, and everything is encoded, when the lock is free again: there 140 ms.
    pub(super) fn of(instance: &Instance, log: &DurableLog, name_taken: bool) -> Option<Self> {
        if instance.inner.is_poisoned() {
            instance.abandon();
        }
        let inner = instance.lock_poisoned();
        if inner.gone.is_some() {
            return None;
        }
        let (now, latest) = (instance.now(&inner), inner.latest());
        let (state, ended, stopped_until) = match &inner.lifecycle {
            Lifecycle::Live(live) => {
                // The machine is ahead of the events that are shown by those that are not committed yet.
                let uncommitted: Vec<_> = live.uncommitted.iter().flat_map(Effects::recorded).collect();
                let ends = |recorded: &&Recorded| matches!(recorded.event, Event::Finished | Event::Closed);
                let ended = live.ended.or_else(|| uncommitted.iter().find(ends).map(|recorded| recorded.at));
                let machine = CapturedMachine::Live(Box::new(live.machine.checkpoint()));
                let state = CapturedState::unpacked(machine, live.events.view(), uncommitted);
                (state, ended, live.stopped_until)
            }
            Lifecycle::Archived(archived) => {
                let state = archived.to_log(&instance.config).map(CapturedState::Archived);
                let state = state.unwrap_or_else(|| {
                    let machine = CapturedMachine::Archived(archived.events.trailer());
                    CapturedState::unpacked(machine, archived.events.view(), Vec::new())
                });
                (state, Some(archived.ended), None)
            }
        };
        Some(Self {
            covered: log.covered(),
            state,
            ended,
            latest,
            served: log.served().saturating_sub(now.since(latest)),
            stopped_until,
            name_taken,
        })
    }

    /// Adds a checkpoint of it to the log. Returns how many bytes that takes.
    pub(super) fn write(self, instance: &Instance, log: &DurableLog) -> usize {
        let (number, id) = (instance.config.number, instance.config.id);
        if self.stopped_until.is_some() {
            // When its time goes on stands in a batch that the log forgets with the next checkpoints.
            log.checkpoint_again(Dirty { number, instance: id });
        }
        let bytes = log.checkpoint(number, Some(&self.checkpoint(instance)));
        instance.lock_poisoned().count_checkpoint(bytes);
        bytes
    }

    fn checkpoint(self, instance: &Instance) -> Checkpoint {
        let (place, records) = self.covered;
        let checkpoint = Checkpoint {
            rules: RULES,
            place,
            records,
            created: Some(instance.config.to_log()),
            ended_nanos: self.ended.map(Time::as_nanos),
            at_nanos: self.latest.as_nanos(),
            served_nanos: nanos(self.served),
            stopped_place: self.stopped_until.map_or(0, LogIndex::get),
            name_taken: self.name_taken,
            ..Checkpoint::default()
        };
        match self.state {
            CapturedState::Unpacked { machine, first, forgotten, events, uncommitted } => {
                let events: Vec<Recorded> = events.read().chain(uncommitted).collect();
                // The index of an event follows from that of the first.
                let mut told: Vec<_> = events.iter().map(|recorded| event_to_wire(0, recorded)).collect();
                let surplus = surplus(&told, checkpoint_events(instance.params()));
                told.drain(..surplus);
                let newly_forgotten =
                    events[..surplus].iter().rev().find_map(|recorded| step_of(&recorded.event));
                let mut machine = match machine {
                    CapturedMachine::Live(machine) => *machine,
                    CapturedMachine::Archived(trailer) => {
                        restore_machine(&trailer, &instance.config).checkpoint()
                    }
                };
                // The archive of a machine does not tell its time.
                machine.time = machine.time.max(self.latest);
                Checkpoint {
                    machine: Some(checkpoint_to_wire(&machine)),
                    first_index: first + surplus as u64,
                    forgotten_phase: newly_forgotten.or(forgotten).map_or(0, Phase::get),
                    events: told,
                    ..checkpoint
                }
            }
            CapturedState::Archived(ArchivedEvents { first, forgotten, archive }) => Checkpoint {
                first_index: first,
                forgotten_phase: forgotten.map_or(0, Phase::get),
                archive: Some(archive),
                ..checkpoint
            },
        }
    }
}

/// The number of these events, the oldest, that must go so that the others take at most so many bytes in a
/// checkpoint.
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
