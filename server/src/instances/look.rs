//! Looking at an instance: Get, List, Watch (SPEC F12, F13).

use std::task::Waker;

use stickycas_model::machine::{Entry, Machine, MemberStatus, State, Status};
use stickycas_model::types::{Phase, ProcessId, Time};
use stickycas_proto::v1;

use super::ended::unpack;
use super::house::WatcherId;
use super::instance::Instance;
use super::life::Life;
use crate::store::events::{Events as _, NotKept};

/// How an instance stands, and where its record goes on.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) entries: Vec<Entry>,
    pub(crate) next_index: u64,
}

/// What a watcher finds.
#[derive(Debug)]
pub(crate) enum Next {
    /// What happened next.
    Events(Vec<v1::Event>),
    /// Nothing yet.
    Nothing,
    /// The instance has ended, and everything was told.
    End,
    /// The next event is not kept any more; from this phase on everything is.
    TooSlow(Phase),
}

impl Instance {
    /// How it stands (F12), and where a member stands itself (F8e).
    pub(crate) fn status(&self, process: Option<ProcessId>) -> (Status, Option<MemberStatus>) {
        self.look(|machine, now, _| (machine.status(now), process.map(|process| machine.member(process))))
    }

    /// Looks at the machine, which touches the instance; and at the index that the next event will have.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Machine, Time, u64) -> T) -> T {
        let now = self.now();
        let (also, next_index) = match &mut self.core().life {
            Life::Awake(awake) => {
                awake.touched = awake.touched.max(now);
                return look(&awake.machine, now, awake.record.next_index());
            }
            Life::Ended(ended) => (ended.past.also(), ended.past.next_index()),
        };
        // The lock is free again: nobody waits until the machine is unpacked.
        look(&unpack(&also, &self.definition), now, next_index)
    }

    /// Where it is in its life.
    pub(crate) fn state(&self) -> State {
        match &self.core().life {
            Life::Awake(awake) => awake.machine.state(),
            Life::Ended(ended) => ended.state,
        }
    }

    /// How it stands, every entry included, and where its record goes on.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.look(|machine, now, next_index| Snapshot {
            status: machine.status(now),
            entries: machine.list().iter().cloned().collect(),
            next_index,
        })
    }

    /// Where in the record a watcher begins that wants everything from `phase` on.
    pub(crate) fn start_of(&self, phase: Option<Phase>) -> Result<u64, NotKept> {
        match &self.core().life {
            Life::Awake(awake) => awake.record.start_of(phase),
            Life::Ended(ended) => ended.past.start_of(phase),
        }
    }

    /// A new watcher.
    pub(crate) fn watcher(&self) -> WatcherId {
        self.house.watcher()
    }

    /// The stream of this watcher is gone.
    pub(crate) fn forget_watcher(&self, watcher: WatcherId) {
        // Also called while a panic unwinds, and a second one would end the server.
        if let Ok(core) = &mut self.core.lock()
            && let Life::Awake(awake) = &mut core.life
        {
            awake.watchers.remove(&watcher);
        }
    }

    /// The next events for a watcher, at most `limit`; if there are none yet, `waker` is woken when there are.
    pub(crate) fn events_from(&self, index: u64, limit: usize, watcher: WatcherId, waker: &Waker) -> Next {
        let core = &mut *self.core();
        let events = match &core.life {
            Life::Awake(awake) => awake.record.from(index, limit).ok_or_else(|| awake.record.oldest_phase()),
            Life::Ended(ended) => ended.past.from(index, limit).ok_or_else(|| ended.past.oldest_phase()),
        };
        let events = match events {
            Ok(events) => events,
            Err(oldest) => return Next::TooSlow(oldest),
        };
        let events: Vec<v1::Event> = (index..)
            .zip(&events)
            .map(|(index, recorded)| stickycas_proto::convert::history::event_to_wire(index, recorded))
            .collect();
        match &mut core.life {
            _ if !events.is_empty() => Next::Events(events),
            Life::Awake(awake) if awake.ended.is_none() && !core.expired => {
                awake.watchers.insert(watcher, waker.clone());
                Next::Nothing
            }
            Life::Awake(_) | Life::Ended(_) => Next::End,
        }
    }
}
