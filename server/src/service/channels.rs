//! The instances that are open on one Attach stream, by the number that its client has given each.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::types::{AccessNumber, ProcessId, SessionId};

use crate::instances::Instance;

/// See the module. The numbers come from outside: they are hashed with a key that nobody knows.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_number: HashMap<u32, Channel, RandomState>,
    /// How many of them the client may use again.
    free: usize,
}

/// An instance that is open on the stream.
#[derive(Debug)]
pub(super) struct Channel {
    /// Does not keep it alive once it has expired.
    instance: Weak<Instance>,
    pub(super) process: ProcessId,
    pub(super) session: SessionId,
    /// Whether the client may use it again. What is still sent to it is refused by the right reason.
    free: bool,
}

impl Channels {
    /// The channel of this number, free or not.
    pub(super) fn get(&self, number: u32) -> Option<&Channel> {
        self.by_number.get(&number)
    }

    /// All of them, free or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &Channel> {
        self.by_number.values()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Whether the number is one that the client may not use.
    pub(super) fn is_taken(&self, number: u32) -> bool {
        self.get(number).is_some_and(|channel| !channel.free)
    }

    /// How many are in use.
    pub(super) fn taken(&self) -> usize {
        self.by_number.len() - self.free
    }

    /// The client may use this one again.
    pub(super) fn free(&mut self, number: u32) {
        if let Some(channel) = self.by_number.get_mut(&number)
            && !channel.free
        {
            channel.free = true;
            self.free += 1;
        }
    }

    /// Lets go of what a free channel was used for, and of another free one if there are as many as may be, so
    /// that nothing of it can come on the channel any more.
    pub(super) fn make_room(&mut self, number: u32, limit: usize) {
        self.forget(number);
        if self.by_number.len() >= limit
            && let Some((&other, _)) = self.by_number.iter().find(|(_, channel)| channel.free)
        {
            self.forget(other);
        }
    }

    fn forget(&mut self, number: u32) {
        if let Some(channel) = self.by_number.remove(&number) {
            self.free -= usize::from(channel.free);
            channel.hang_up();
        }
    }

    /// Opens one. There is room for it.
    pub(super) fn open(&mut self, number: u32, channel: Channel) {
        self.by_number.insert(number, channel);
    }
}

impl Channel {
    /// Of this session.
    pub(super) fn new(instance: &Arc<Instance>, process: ProcessId, session: SessionId) -> Self {
        Self { instance: Arc::downgrade(instance), process, session, free: false }
    }

    /// The instance, unless it has expired.
    pub(super) fn instance(&self) -> Option<Arc<Instance>> {
        self.instance.upgrade()
    }

    /// Files an offence of the process.
    pub(super) fn file_offence(&self, kind: OffenceKind, number: Option<AccessNumber>, detail: &str) {
        if let Some(instance) = self.instance() {
            file_offence(&instance, self.process, kind, number, detail);
        }
    }

    /// Nobody listens for the answers of this session any more. Its accesses stay (F8a).
    pub(super) fn hang_up(&self) {
        if let Some(instance) = self.instance() {
            instance.hang_up(self.process, self.session);
        }
    }
}

/// Files an offence of a process.
pub(super) fn file_offence(
    instance: &Instance,
    process: ProcessId,
    kind: OffenceKind,
    number: Option<AccessNumber>,
    detail: &str,
) {
    instance.file_offence(Offence { process, kind, number, phase: None, detail: detail.to_owned() });
}
