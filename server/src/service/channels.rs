//! The channels of one Attach stream: the instances that are open on it, by the numbers that its client has
//! chosen.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::types::{AccessNumber, ProcessId, SessionId};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use crate::instances::{Instance, SessionSink, ShardContext};
use crate::quota::RETRY_AFTER;

/// See the module. Clients choose the numbers, so they are hashed with a random key.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_number: HashMap<u32, Channel, RandomState>,
    /// The number of channels that are free.
    free: usize,
}

/// A session of an instance that is open on the stream.
#[derive(Debug)]
pub(super) struct Channel {
    /// Weak: a channel does not keep an expired instance in memory.
    instance: Weak<Instance>,
    shard: Arc<ShardContext>,
    pub(super) process: ProcessId,
    pub(super) session: SessionId,
    /// The receiver of the session's answers.
    pub(super) sink: SessionSink,
    /// The access that was refused before its instance was asked, which therefore does not know of it.
    refused: Cell<Option<AccessNumber>>,
    /// Whether the client may use the number again. The channel stays until it does, so that a late frame is
    /// refused for the right reason.
    free: bool,
}

impl Channels {
    /// The channel with this number, free or not.
    pub(super) fn get(&self, number: u32) -> Option<&Channel> {
        self.by_number.get(&number)
    }

    /// All channels, free or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &Channel> {
        self.by_number.values()
    }

    /// The numbers of all channels, free or not.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.by_number.keys().copied()
    }

    /// Whether there is no channel.
    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// The number of channels, free or not.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Whether the number is in use.
    pub(super) fn is_in_use(&self, number: u32) -> bool {
        self.get(number).is_some_and(|channel| !channel.free)
    }

    /// The count of numbers in use.
    pub(super) fn in_use(&self) -> usize {
        self.by_number.len() - self.free
    }

    /// Makes this number free for the client to use again.
    pub(super) fn free(&mut self, number: u32) {
        if let Some(channel) = self.by_number.get_mut(&number)
            && !channel.free
        {
            channel.free = true;
            self.free += 1;
        }
    }

    /// Makes room for a channel with this free number: removes the channel that had it, and another free one
    /// if there are as many as may be. Their sessions are closed, so that nothing more comes from them.
    pub(super) fn make_room(&mut self, number: u32, limit: usize) {
        self.remove(number);
        if self.by_number.len() >= limit
            && let Some((&other, _)) = self.by_number.iter().find(|(_, channel)| channel.free)
        {
            self.remove(other);
        }
    }

    fn remove(&mut self, number: u32) {
        if let Some(channel) = self.by_number.remove(&number) {
            self.free -= usize::from(channel.free);
            channel.close();
        }
    }

    /// Adds a channel. There is room for it.
    pub(super) fn insert(&mut self, number: u32, channel: Channel) {
        self.by_number.insert(number, channel);
    }
}

impl Channel {
    /// A channel of this session.
    pub(super) fn new(
        instance: &Arc<Instance>,
        process: ProcessId,
        session: SessionId,
        sink: SessionSink,
    ) -> Self {
        Self {
            instance: Arc::downgrade(instance),
            shard: instance.shard().clone(),
            process,
            session,
            sink,
            refused: Cell::new(None),
            free: false,
        }
    }

    /// The shard of the instance.
    pub(super) fn shard(&self) -> &ShardContext {
        &self.shard
    }

    /// The instance, unless it has expired, or the server has lost its shard.
    pub(super) fn instance(&self) -> Option<Arc<Instance>> {
        self.instance.upgrade()
    }

    /// The answer of `charge` for the access with this number. Once one is refused, those behind it are
    /// refused until it comes again: to the instance they would be skips, of which the client is not guilty
    /// (F8d).
    ///
    /// # Errors
    /// The error of `charge`; or that an access before this one was refused.
    pub(super) fn admit<T>(
        &self,
        number: AccessNumber,
        charge: impl FnOnce() -> Result<T, RpcRefusal>,
    ) -> Result<T, RpcRefusal> {
        if let Some(refused) = self.refused.get().filter(|refused| *refused < number) {
            let why = format!("access {number} follows {refused}, which was refused: send that again first");
            return Err(RpcRefusal::new(RefusalReason::RateExceeded, why).with_retry_after(RETRY_AFTER));
        }
        let charged = charge();
        match (&charged, self.refused.get()) {
            (Err(_), _) => self.refused.set(Some(number)),
            (Ok(_), Some(refused)) if refused == number => self.refused.set(None),
            (Ok(_), _) => {}
        }
        charged
    }

    /// Whether an answer is still to come on this channel.
    pub(super) fn owes_answer(&self) -> bool {
        self.instance().is_some_and(|instance| instance.owes_answer(self.process, self.session, &self.sink))
    }

    /// Files an offence of the process (B2).
    pub(super) fn file_offence(&self, kind: OffenceKind, number: Option<AccessNumber>, detail: &str) {
        if let Some(instance) = self.instance() {
            file_offence(&instance, self.process, kind, number, detail);
        }
    }

    /// Closes the session: its answers have nowhere to go any more. Its accesses stay (F8a).
    pub(super) fn close(&self) {
        if let Some(instance) = self.instance() {
            instance.close_session(self.process, self.session);
        }
    }
}

/// Files an offence of a process (B2).
pub(super) fn file_offence(
    instance: &Instance,
    process: ProcessId,
    kind: OffenceKind,
    number: Option<AccessNumber>,
    detail: &str,
) {
    instance.file_offence(Offence { process, kind, number, phase: None, detail: detail.to_owned() });
}
