//! The fast path: one stream of one principal with its accesses for any number of instances (SPEC F7, F8).
//!
//! The stream is one state machine in one task: polled for what to send, it first takes in all that the client
//! has sent, hands each frame to its instance in one step, and then empties its outbox, where instances
//! leave answers whoever's step brought them about. A client that does not read is not listened to either:
//! the transport stops polling, so its accesses stop coming in, and nobody else notices.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use stickycas_model::history::OffenceKind;
use stickycas_model::process::RawOp;
use stickycas_model::types::{AccessNumber, ProcessId, RawValue, SessionId};
use stickycas_proto::attach::{DecodedFrame, DecodedRequest, EncodedResponse, MAX_FRAMES};
use stickycas_proto::convert::access::{access_from_frame, decision_from_frame};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::calls::{expired, refuse_content};
use super::channels::{Channel, Channels, file_offence};
use super::readers::Reading;
use super::{Service, draining};
use crate::call_layer::Caller;
use crate::instances::{Instance, Opened, Out, Outbox, Outlet, Taken, Taker};
use crate::quota::{Counter, Permit};
use crate::transport::Connection;
use crate::transport::DecodeFailure;
use crate::transport::WaitForDrain;

/// One Attach stream. See the module.
pub(crate) struct AttachStream {
    service: Service,
    caller: Caller,
    /// `None` once the client has said all.
    requests: Option<Streaming<DecodedRequest>>,
    channels: Channels,
    outbox: Arc<Outbox>,
    taker: Taker,
    drain: WaitForDrain,
    /// How many frames were in the outbox when it last let others have their turn before it sent them.
    lingered: usize,
    /// Whether it is not listened to before its client has read.
    stalled: bool,
    over: bool,
    _reading: Option<Reading>,
    _permit: Permit,
}

/// Messages taken in before others have their turn: more may come in while these are handled.
const MESSAGES_IN_A_ROW: usize = 32;

impl AttachStream {
    pub(super) fn new(
        service: Service,
        caller: Caller,
        connection: Option<Connection>,
        requests: Streaming<DecodedRequest>,
        permit: Permit,
    ) -> Self {
        let outbox = Arc::new(Outbox::new(service.0.limits.unread_frames));
        let drain = service.0.drain.wait();
        let reading =
            connection.map(|connection| service.0.readers.join(&outbox, connection, caller.account.clone()));
        Self {
            service,
            caller,
            requests: Some(requests),
            channels: Channels::default(),
            outbox,
            taker: Taker::default(),
            drain,
            lingered: 0,
            stalled: false,
            over: false,
            _reading: reading,
            _permit: permit,
        }
    }

    /// Takes in what the client has sent. An error ends the stream.
    fn take_in(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..MESSAGES_IN_A_ROW {
            if self.is_stalled() {
                // The next poll comes when there is room to send.
                return Ok(());
            }
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match Pin::new(requests).poll_next(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Ok(request))) => self.take(request)?,
                Poll::Ready(Some(Err(status))) => return Err(self.broken(&status)),
                Poll::Ready(None) => self.requests = None,
            }
        }
        // There may be more; come back when others have had their turn.
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Whether the client has left too much unread to be listened to.
    fn is_stalled(&mut self) -> bool {
        let stalled = self.outbox.len() >= self.service.0.limits.unread_frames_to_pause;
        if stalled && !self.stalled {
            self.caller.account.count(Counter::StreamStalled);
        }
        self.stalled = stalled;
        stalled
    }

    fn take(&mut self, DecodedRequest(frames): DecodedRequest) -> Result<(), Status> {
        // What comes in one message comes at one moment, and is charged at once. A message without frames costs as
        // much as one with one.
        let (count, now) = (frames.len(), Instant::now());
        let granted = self.caller.account.charge_frames(count.max(1), now);
        let limit = self.service.0.limits.frames_per_message.min(MAX_FRAMES - 1);
        if count > limit {
            let why = format!("{count} frames or more in one message: at most {limit} may be");
            self.file_offence(OffenceKind::Oversized, &why);
            return Err(RpcRefusal::new(RefusalReason::Malformed, why).into());
        }
        let mut frames = frames.into_iter();
        frames.by_ref().take(granted).for_each(|asked| self.handle(asked, now));
        if frames.len() > 0 {
            let refused = self.caller.account.rate_exceeded(1);
            frames.for_each(|asked| self.refuse_for_rate(&asked, &refused));
        }
        Ok(())
    }

    /// A frame above the rate of its principal: refused, and an offence. What follows it on its channel is none.
    fn refuse_for_rate(&self, asked: &DecodedFrame, refused: &RpcRefusal) {
        let (channel, number) = match *asked {
            DecodedFrame::Access { channel, number, .. } => (channel, AccessNumber::new(number)),
            DecodedFrame::Hello { channel, .. } | DecodedFrame::Decision { channel, .. } => (channel, None),
            DecodedFrame::Unknown => (0, None),
        };
        let kind = OffenceKind::QuotaExceeded;
        match self.channels.get(channel) {
            Some(channel) if self.caller.account.may_file_offence(kind) => {
                channel.file_offence(kind, number, &refused.message);
            }
            Some(_) => {}
            None => self.caller.account.file_offence(kind, &refused.message),
        }
        self.refuse(channel, number, refused);
    }

    /// Files an offence that names no channel with every instance that is open here; if none is, with those where
    /// the principal was at work last.
    fn file_offence(&self, kind: OffenceKind, detail: &str) {
        if self.channels.is_empty() {
            self.caller.account.file_offence(kind, detail);
        }
        self.channels.all().for_each(|channel| channel.file_offence(kind, None, detail));
    }

    /// The client's side of the stream failed: its bytes are no message, unless it broke off.
    fn broken(&self, status: &Status) -> Status {
        let unreadable =
            DecodeFailure::of(status, &self.caller.request).filter(|_| !self.caller.request.is_broken());
        let Some(unreadable) = unreadable else { return Status::cancelled("the client is gone") };
        self.caller.account.count(unreadable.counter());
        self.file_offence(unreadable.offence(), status.message());
        DecodeFailure::refused(status, &self.caller.request).into()
    }

    /// One frame, which came at the moment `now`.
    fn handle(&mut self, asked: DecodedFrame, now: Instant) {
        let (channel, number, handled) = match asked {
            DecodedFrame::Access { channel, number, op } => {
                let number = AccessNumber::new(number);
                (channel, number, self.access(channel, number, op, now))
            }
            DecodedFrame::Hello { channel, instance, incarnation } => {
                (channel, None, self.hello(channel, instance, incarnation, now))
            }
            DecodedFrame::Decision { channel, value } => (channel, None, self.decide(channel, value, now)),
            DecodedFrame::Unknown => {
                let refused = RpcRefusal::new(RefusalReason::Malformed, "the frame says nothing");
                self.file_offence(OffenceKind::Malformed, &refused.message);
                (0, None, Err(refused))
            }
        };
        if let Err(refused) = handled {
            self.refuse(channel, number, &refused);
        }
    }

    fn hello(
        &mut self,
        channel: u32,
        instance: Option<InstanceId>,
        incarnation: u64,
        now: Instant,
    ) -> Result<(), RpcRefusal> {
        let (instance, process) = self.service.member(&self.caller, instance)?;
        let limits = &self.service.0.limits;
        if self.channels.is_taken(channel) || self.channels.taken() >= limits.channels_per_stream {
            // Those whose sessions have ended since.
            self.outbox.take_freed().into_iter().for_each(|channel| self.channels.free(channel));
        }
        if self.channels.is_taken(channel) {
            let why = format!("channel {channel} is in use");
            file_offence(&instance, process, OffenceKind::Malformed, None, &why);
            return Err(RpcRefusal::new(RefusalReason::Malformed, why));
        }
        if self.channels.taken() >= limits.channels_per_stream {
            let why = format!("the stream has {} channels, as many as it may", limits.channels_per_stream);
            file_offence(&instance, process, OffenceKind::QuotaExceeded, None, &why);
            return Err(
                RpcRefusal::new(RefusalReason::TooManyStreams, why).with_retry_after(limits.retry_after)
            );
        }
        self.channels.make_room(channel, limits.channels_per_stream);
        let outlet = Outlet { outbox: self.outbox.clone(), channel };
        let Opened { session, replaced } = instance
            .hello(process, incarnation, &outlet, now)
            .map_err(|error| self.service.not_taken(&error))?;
        if replaced {
            self.caller.account.count(Counter::SessionReplaced);
        }
        self.channels.open(channel, Channel::new(&instance, process, session));
        Ok(())
    }

    fn access(
        &mut self,
        channel: u32,
        number: Option<AccessNumber>,
        op: Option<RawOp>,
        now: Instant,
    ) -> Result<(), RpcRefusal> {
        let (instance, process, session) = self.channel(channel)?;
        let access = access_from_frame(number, op, process, session, instance.params())
            .map_err(|error| refuse_content(&instance, process, number, &error))?;
        let number = access.number;
        match instance.access(access, now).map_err(|error| self.service.not_taken(&error))? {
            Taken::Waits(()) => self.taker.accepted += 1,
            Taken::WaitedBefore(()) => self.caller.account.count(Counter::AccessRepeated),
            Taken::Answered(answered) => self.outbox.repeat(channel, number, answered),
            Taken::AnsweredBefore(answered) => {
                self.caller.account.count(Counter::AccessRepeated);
                self.outbox.repeat(channel, number, answered);
            }
        }
        Ok(())
    }

    fn decide(&mut self, channel: u32, value: RawValue, now: Instant) -> Result<(), RpcRefusal> {
        let (instance, process, session) = self.channel(channel)?;
        let value = decision_from_frame(value, instance.params())
            .map_err(|error| refuse_content(&instance, process, None, &error))?;
        instance
            .decide(process, Some(session), value, now)
            .map_err(|error| self.service.not_taken(&error))?;
        // Its process has left, so the client may use the channel for another instance.
        self.channels.free(channel);
        self.outbox.push_decided(channel);
        Ok(())
    }

    fn channel(&self, channel: u32) -> Result<(Arc<Instance>, ProcessId, SessionId), RpcRefusal> {
        let Some(open) = self.channels.get(channel) else {
            let why = format!("channel {channel} is not open: say hello first");
            return Err(RpcRefusal::new(RefusalReason::Malformed, why));
        };
        Ok((open.instance().ok_or_else(expired)?, open.process, open.session))
    }

    fn refuse(&self, channel: u32, number: Option<AccessNumber>, refused: &RpcRefusal) {
        self.caller.account.count_refusal(refused.reason);
        self.outbox.push(refused.to_frame(channel, number));
    }

    /// What ends the stream, if anything does; else what to send.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<EncodedResponse, Status>>> {
        if Pin::new(&mut self.drain).poll(cx).is_ready() {
            return Poll::Ready(Some(Err(draining().into())));
        }
        if let Err(status) = self.take_in(cx) {
            return Poll::Ready(Some(Err(status)));
        }
        let limits = &self.service.0.limits;
        // One answer seldom comes alone: other streams, whose turn is now, complete further phases. What they
        // add goes out in the same message and the same write, and an idle runtime comes back at once.
        let waiting = self.outbox.len();
        if (self.lingered + 1..limits.frames_per_answer).contains(&waiting) {
            self.lingered = waiting;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.lingered = 0;
        match self.outbox.take(&mut self.taker, limits.frames_per_answer, limits.bytes_per_answer, cx) {
            Out::Frames(message) => Poll::Ready(Some(Ok(message))),
            Out::Overfull => {
                let why = format!("{} frames were left unread", limits.unread_frames);
                let refused = RpcRefusal::new(RefusalReason::ReaderTooSlow, why);
                Poll::Ready(Some(Err(refused.with_retry_after(limits.retry_after).into())))
            }
            Out::Idle if self.requests.is_none() => Poll::Ready(None),
            Out::Idle | Out::Nothing => Poll::Pending,
        }
    }
}

impl Stream for AttachStream {
    type Item = Result<EncodedResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let next = self.next(cx);
        if let Poll::Ready(Some(Err(status))) = &next {
            self.caller.account.count_status(status);
        }
        self.over = matches!(next, Poll::Ready(None | Some(Err(_))));
        next
    }
}

impl Drop for AttachStream {
    fn drop(&mut self) {
        if !self.over || self.caller.request.is_broken() {
            self.caller.account.count(Counter::StreamAbandoned);
        }
        self.channels.all().for_each(Channel::hang_up);
    }
}
