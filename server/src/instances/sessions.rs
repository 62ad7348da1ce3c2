//! The open sessions of one instance: the channel of an Attach stream to which each process's answers go.

use std::sync::Arc;

use stickycas_model::types::{AccessNumber, ProcessId, SessionId};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::Replaced;

use super::outbox::{Outbox, Outgoing};
use super::waiters::CompletedAccess;
use crate::gate::{Gate, Uncommitted};

/// One channel of one Attach stream: where the answers of a session go.
#[derive(Clone, Debug)]
pub(crate) struct SessionSink {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) channel: u32,
}

impl SessionSink {
    /// Pushes a frame of this channel, which is sent when its gate is open.
    pub(super) fn push_gated(&self, frame: Outgoing, gate: Gate) {
        let number = frame.access_number();
        self.outbox.push_gated(self.channel, number, Uncommitted::new(frame, gate));
    }

    /// Whether the two are one channel of one stream.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.outbox, &other.outbox) && self.channel == other.channel
    }
}

/// The open sessions of one instance.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// By process; empty until the first session opens.
    by_process: Vec<Option<(SessionId, SessionSink)>>,
    /// The number of open sessions.
    open: usize,
}

impl Sessions {
    /// Opens a session: answers of `process` go to `sink` from now on. An older session of the process ends
    /// and is told so (F8f), and which life of its client opened the newer one. `processes` is n.
    pub(super) fn open(
        &mut self,
        process: ProcessId,
        session: SessionId,
        incarnation: u64,
        sink: SessionSink,
        processes: u32,
    ) {
        if self.by_process.is_empty() {
            self.by_process.resize(processes as usize, None);
        }
        match self.by_process[process.index()].replace((session, sink)) {
            None => self.open += 1,
            Some((_, older)) => {
                older.outbox.release_channel(older.channel);
                let session = session.get();
                older.outbox.push(Replaced { channel: older.channel, session, incarnation });
            }
        }
    }

    /// Closes this session, unless a newer one has replaced it.
    pub(super) fn close(&mut self, process: ProcessId, session: SessionId) {
        if self.is_open(process, session) {
            self.by_process[process.index()] = None;
            self.open -= 1;
        }
    }

    /// Whether no session is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Whether the process has an open session.
    pub(super) fn has_open(&self, process: ProcessId) -> bool {
        self.sink(process).is_some()
    }

    /// Whether this session is open and was not replaced.
    pub(super) fn is_open(&self, process: ProcessId, session: SessionId) -> bool {
        let open = self.by_process.get(process.index()).and_then(Option::as_ref);
        open.is_some_and(|(open, _)| *open == session)
    }

    fn sink(&self, process: ProcessId) -> Option<&SessionSink> {
        self.by_process.get(process.index())?.as_ref().map(|(_, sink)| sink)
    }

    /// An access was executed. `completed` is called only if the process has an open session.
    pub(super) fn complete(
        &self,
        process: ProcessId,
        number: AccessNumber,
        completed: impl FnOnce() -> CompletedAccess,
    ) {
        if let Some(sink) = self.sink(process) {
            sink.outbox.push_outgoing(Outgoing::Answer(sink.channel, number, completed()));
        }
    }

    /// A waiting access was withdrawn.
    pub(super) fn refuse(&self, process: ProcessId, number: AccessNumber, why: &RpcRefusal) {
        if let Some(sink) = self.sink(process) {
            sink.outbox.push(why.to_frame(sink.channel, Some(number)));
        }
    }

    /// Ends all sessions without telling the clients; returns the process and the sink of each.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (ProcessId, SessionSink)> + use<> {
        let sessions = std::mem::take(self).by_process.into_iter().enumerate();
        sessions.filter_map(|(index, session)| Some((ProcessId::from_index(index)?, session?.1)))
    }
}
