//! The effects of a step of an instance, kept until the step is committed.

use std::cell::RefCell;

use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::OutcomeDigest;
use stickycas_model::types::{ProcessId, SessionId, Time};
use stickycas_proto::log::v1::Record;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::ServerFrame;
use tokio::sync::oneshot;

use super::outbox::{Outgoing, PendingWelcome};
use super::sessions::{SessionSink, Sessions};
use crate::commit_log::LogIndex;
use crate::gate::{CommitReceiver, Gate};

thread_local! {
    /// Empty buffers for the events of steps.
    static SPARE_BUFFERS: RefCell<Vec<Vec<Event>>> = const { RefCell::new(Vec::new()) };
}

/// As many as the steps of several instances that wait for one commit.
const MOST_SPARE_BUFFERS: usize = 1_024;
/// Events for which such a buffer has room, at most.
const SPARE_EVENTS: usize = 16;

/// The effects of one step. They leave through the one exit, `Instance::commit`, in the order of the fields:
/// the events are recorded; then everybody is told, in the order of the events; then the sender of the
/// request.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The time of the instance at which the machine took the step.
    pub(super) at: Time,
    /// The record of the step's input, in which the rest is not set, for a log that keeps inputs.
    pub(super) record: Option<Box<Record>>,
    /// Whether the input is logged even if it changes nothing: the time of the instance goes on with it.
    pub(super) always_logged: bool,
    /// Whether the machine refused the input.
    pub(super) refused: bool,
    /// The place of the step in the log, once it has one. A step that changed nothing has the place of the
    /// last one before it.
    pub(super) log_index: LogIndex,
    /// The events of the step, in order. Answers and withdrawals among them go to the session and the waiting
    /// calls that their process has when the effects leave.
    pub(super) events: Vec<Event>,
    /// The number of phases that have opened, which no event tells.
    pub(super) opened_phases: u32,
    /// A session that opens with the `Session` event among the events.
    pub(super) opening: Option<Box<OpeningSession>>,
    /// The frame with which the request is answered on its session.
    pub(super) reply: Option<(SessionSink, Outgoing)>,
    /// Opens when the reply may be told, if that is a refusal without an input to be logged.
    pub(super) gate: Gate,
    /// Unary calls that tell something that follows from the steps up to this one.
    pub(super) commit_waiters: Vec<oneshot::Sender<Result<(), Box<RpcRefusal>>>>,
}

/// A session that is open as soon as the step of its hello is committed.
#[derive(Debug)]
pub(super) struct OpeningSession {
    pub(super) process: ProcessId,
    pub(super) session: SessionId,
    pub(super) sink: SessionSink,
    pub(super) welcome: PendingWelcome,
    /// Whether the stream of the session has ended in the meantime.
    pub(super) stream_ended: bool,
}

impl Effects {
    /// No effects yet of a step at this time.
    pub(super) fn new(at: Time) -> Self {
        let events = SPARE_BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default();
        Self { at, events, ..Self::default() }
    }

    /// Notes the input, for a log that keeps inputs.
    pub(super) fn note(&mut self, input: Input) {
        debug_assert!(self.record.is_none(), "a step has one input");
        self.record = Some(Box::new(Record { input: Some(input), ..Record::default() }));
    }

    /// The events have left.
    pub(super) fn clear_events(&mut self) {
        self.events.clear();
        if (1..=SPARE_EVENTS).contains(&self.events.capacity()) {
            let events = std::mem::take(&mut self.events);
            SPARE_BUFFERS.with_borrow_mut(|spare| {
                if spare.len() < MOST_SPARE_BUFFERS {
                    spare.push(events);
                }
            });
        }
    }

    /// The events of the step as they will be recorded.
    pub(super) fn recorded(&self) -> impl Iterator<Item = Recorded> {
        self.events.iter().map(|event| Recorded { at: self.at, event: event.clone() })
    }

    /// About how much memory they take until they leave.
    pub(super) fn bytes(&self) -> usize {
        /// A frame, most often a refusal with its text.
        const REPLY: usize = 512;
        let reply = if self.reply.is_some() { REPLY } else { 0 };
        size_of::<Self>() + self.events.len() * size_of::<Event>() + reply
    }

    /// The digest of the outcome of the step's input, which a replay is compared with.
    pub(super) fn digest(&self) -> u32 {
        let mut digest = OutcomeDigest::default();
        digest.add(self.at, self.refused, &self.events);
        let value = digest.value();
        #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
        let folded = (value ^ value >> 32) as u32;
        folded
    }

    /// Sends the reply, and tells those who wait that the step is committed.
    pub(super) fn reply_now(&mut self) {
        if let Some((sink, reply)) = self.reply.take() {
            if let Outgoing::Decided(channel) = &reply {
                sink.outbox.release_channel(*channel);
            }
            sink.push_gated(reply, std::mem::take(&mut self.gate));
        }
        for waiter in self.commit_waiters.drain(..) {
            let _ = waiter.send(Ok(()));
        }
    }

    /// Resolves when the effects leave.
    pub(super) fn commit_receiver(&mut self) -> CommitReceiver {
        let (sender, receiver) = oneshot::channel();
        if self.commit_waiters.len() == self.commit_waiters.capacity() {
            // Cancelled calls leave their senders behind.
            self.commit_waiters.retain(|waiter| !waiter.is_closed());
        }
        self.commit_waiters.push(sender);
        receiver
    }

    /// The log refuses the step: clients that wait for its effects are told why these will not come. Answers
    /// and withdrawals go to the `open` sessions.
    pub(super) fn refuse(self, why: &RpcRefusal, open: &Sessions) {
        for event in &self.events {
            if let Event::Answered { process, number, .. } | Event::Withdrawn { process, number } = event {
                open.refuse(*process, *number, why);
            }
        }
        if let Some(OpeningSession { sink, .. }) = self.opening.map(|opening| *opening) {
            sink.outbox.push(why.to_frame(sink.channel, None));
            sink.outbox.release_channel(sink.channel);
        }
        if let Some((sink, reply)) = self.reply {
            sink.outbox.push(why.to_frame(sink.channel, reply.access_number()));
        }
        for waiter in self.commit_waiters {
            let _ = waiter.send(Err(Box::new(why.clone())));
        }
    }

    /// Whether the client of this session will be told something on `sink` when the effects leave.
    pub(super) fn concern(&self, process: ProcessId, session_open: bool, sink: &SessionSink) -> bool {
        let of_process = |event: &Event| match event {
            Event::Answered { process: whose, .. } | Event::Withdrawn { process: whose, .. } => {
                *whose == process
            }
            _ => false,
        };
        let opens = self.opening.as_ref().is_some_and(|opening| opening.sink.is(sink));
        let replies = self.reply.as_ref().is_some_and(|(to, _)| to.is(sink));
        opens || replies || (session_open && self.events.iter().any(of_process))
    }

    /// Refuses the request.
    pub(super) fn reply(&mut self, to: &SessionSink, refusal: impl Into<ServerFrame>) {
        self.reply_outgoing(to, Outgoing::frame(refusal));
    }

    /// Whether the request is refused on its session.
    pub(super) fn refuses(&self) -> bool {
        matches!(self.reply, Some((_, Outgoing::Frame(_))))
    }

    /// Answers the request.
    pub(super) fn reply_outgoing(&mut self, to: &SessionSink, frame: Outgoing) {
        self.reply = Some((to.clone(), frame));
    }
}

/// Logs an event for operators and developers.
pub(super) fn trace_event(id: InstanceId, event: &Event) {
    match event {
        Event::Offence(offence) => tracing::warn!(
            instance = %id, process = %offence.process, kind = ?offence.kind, detail = ?offence.detail, "offence"
        ),
        Event::GatheringEnded { joined } => tracing::debug!(instance = %id, joined, "gathering ended"),
        // One join may spend the patience of all others: one line of the step tells of all.
        Event::PatienceSpent { process } => tracing::trace!(instance = %id, %process, "patience spent"),
        Event::Stepped { phase, warp, length } => {
            tracing::trace!(instance = %id, %phase, %warp, length, "phase executed");
        }
        Event::Added { position, process, phase, .. } => {
            tracing::trace!(instance = %id, %position, %process, %phase, "entry added");
        }
        Event::Sealed { phase, length } => tracing::debug!(instance = %id, %phase, length, "list sealed"),
        Event::Finished => tracing::info!(instance = %id, "finished"),
        Event::Closed => tracing::info!(instance = %id, "closed"),
        Event::Restarted { rejoin } => {
            tracing::debug!(instance = %id, ?rejoin, "restarted: processes may reconnect");
        }
        Event::Joined { .. }
        | Event::Session { .. }
        | Event::Accepted { .. }
        | Event::Refused { .. }
        | Event::Answered { .. }
        | Event::Decided { .. }
        | Event::Withdrawn { .. }
        | Event::Rejoined { .. } => {}
    }
}
