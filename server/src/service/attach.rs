//! Attach: one stream of one principal, which carries its accesses for any number of instances (SPEC F7, F8).
//!
//! The stream is one state machine in one task. When it is polled for what to send, it first reads the
//! messages that the client has sent and hands each frame to its instance in one step; then it empties its
//! [`Outbox`], where the instances leave answers, on whichever task their steps run. The transport does not
//! poll the stream of a client that does not read: no further frames of that client are read then, and no
//! other client is affected.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use stickycas_model::access::{Access, Op};
use stickycas_model::history::OffenceKind;
use stickycas_model::process::RawOp;
use stickycas_model::types::{AccessNumber, RawValue};
use stickycas_proto::attach::{DecodedFrame, DecodedRequest, EncodedResponse, MAX_FRAMES};
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::access::{access_from_frame, decision_from_frame};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio_stream::Stream;
use tonic::{Request, Status, Streaming};

use super::Service;
use super::authorization::refused_content;
use super::channels::{Channel, Channels, file_offence};
use super::streams::StreamEnd;
use crate::call_layer::Caller;
use crate::gate::Uncommitted;
use crate::instances::{Instance, Outbox, Outgoing, Polled, Receiver, SessionSink, Submitted};
use crate::poll_clock;
use crate::quota::{Buffer, BufferedBytes, Counter, Permit, Quota};
use crate::transport::{DecodeFailure, oversized, too_many_unread};

/// One Attach stream. See the module.
pub(crate) struct AttachStream {
    service: Service,
    caller: Caller,
    /// `None` once the client has half-closed the stream.
    requests: Option<Streaming<DecodedRequest>>,
    channels: Channels,
    /// Once half-closed: the channels on which answers may still be to come.
    unfinished: Vec<u32>,
    /// The status with which the stream ends as soon as that may be told.
    failed: Option<Uncommitted<Status>>,
    outbox: Arc<Outbox>,
    receiver: Receiver,
    end: StreamEnd,
    /// The charge for the frames that wait and for the channels, and its bytes.
    held: Option<(BufferedBytes, usize)>,
    /// The number of frames that have come. Each is answered by one.
    asked: usize,
    /// The number of frames in the outbox when the stream last yielded before it sent them.
    lingered: usize,
    /// Whether the client has left so much unread that nothing more is read from it.
    stalled: bool,
    ended: bool,
    _permit: Permit,
}

/// Messages that are read before other tasks run: more may come in while these are handled.
const MESSAGES_PER_TURN: usize = 32;

impl AttachStream {
    /// Opens a stream of the caller.
    pub(super) fn open(
        service: &Service,
        request: Request<Streaming<DecodedRequest>>,
    ) -> Result<Self, RpcRefusal> {
        let caller = service.caller(request.extensions())?;
        let permit = caller.account.take(Quota::AttachStreams).inspect_err(|none| {
            if let Some(offence) = none.offence() {
                caller.account.file_offence(offence, &none.refused.message);
            }
        })?;
        let (service, requests) = (service.clone(), request.into_inner());
        let outbox = Arc::new(Outbox::new(service.0.limits.unread_frames));
        let end = StreamEnd::new(&service, &caller, false)?;
        service.0.streams.add(&outbox);
        Ok(Self {
            service,
            caller,
            requests: Some(requests),
            channels: Channels::default(),
            unfinished: Vec::new(),
            failed: None,
            outbox,
            receiver: Receiver::default(),
            end,
            held: None,
            asked: 0,
            lingered: 0,
            stalled: false,
            ended: false,
            _permit: permit,
        })
    }

    /// Reads and handles the messages of the client. An error ends the stream.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..MESSAGES_PER_TURN {
            let pause = self.service.0.limits.unread_frames_to_pause;
            let waiting = self.outbox.len() + self.outbox.unconfirmed();
            if self.is_stalled() || waiting >= pause || !self.hold(0, 0) {
                // The next poll comes when there is room to send, or when refusals may be told.
                return Ok(());
            }
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match Pin::new(requests).poll_next(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Ok(request))) => self.handle_request(request)?,
                Poll::Ready(Some(Err(status))) => return Err(self.request_failed(&status)),
                Poll::Ready(None) => {
                    let body = &self.caller.request;
                    if let Some(refused) = body.overload() {
                        return Err(refused.into());
                    }
                    if body.is_too_long() {
                        return Err(self.request_failed(&oversized("a message is too large")));
                    }
                    self.requests = None;
                    self.unfinished = self.channels.numbers().collect();
                }
            }
        }
        // There may be more; it is read when other tasks have had their turn.
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Whether the client has left so much unread that nothing more is read from it.
    fn is_stalled(&mut self) -> bool {
        let stalled = self.outbox.len() >= self.service.0.limits.unread_frames_to_pause;
        if stalled && !self.stalled {
            self.caller.account.count(Counter::StreamStalled);
        }
        self.stalled = stalled;
        stalled
    }

    /// Charges the frames that wait on the stream, so many frames more that may be answered, and so many
    /// channels more. False: there is no room for it.
    fn hold(&mut self, frames: usize, channels: usize) -> bool {
        /// The number of frames, and of channels, that each stream may have without a charge.
        const FREE: usize = 32;
        /// The bytes of a refusal or of a channel, about.
        const BYTES: usize = 256;
        /// The charge grows in steps of so many bytes.
        const GRAIN: usize = 16 * 1024;
        let frames = self.outbox.len() + self.outbox.unconfirmed() + frames;
        let channels = self.channels.len() + channels;
        let bytes = (frames.saturating_sub(FREE) + channels.saturating_sub(FREE)) * BYTES;
        if bytes == 0 {
            self.held = None;
            return true;
        }
        let new = || (BufferedBytes::new(self.caller.account.clone(), Buffer::Answers), 0);
        let (charge, held) = self.held.get_or_insert_with(new);
        let more = bytes.saturating_sub(*held).next_multiple_of(GRAIN);
        let fits = more == 0 || charge.grow(more);
        if fits {
            *held += more;
        }
        fits
    }

    fn handle_request(&mut self, DecodedRequest(frames): DecodedRequest) -> Result<(), Status> {
        // All frames of a message come at one moment, and are charged at once. A message without frames costs
        // as much as a message with one.
        let (count, now) = (frames.len(), poll_clock::now());
        let granted = self.caller.account.charge_frames(count.max(1), now);
        let limit = self.service.0.limits.frames_per_message.min(MAX_FRAMES - 1);
        if count > limit {
            let why = format!("{count} frames or more in one message: at most {limit} may be");
            self.file_offence(OffenceKind::Oversized, &why);
            return Err(RpcRefusal::new(RefusalReason::Malformed, why).into());
        }
        if !self.hold(count, 0) {
            return Err(too_many_unread().into());
        }
        self.asked += count;
        let mut frames = frames.into_iter();
        frames.by_ref().take(granted).for_each(|frame| self.handle_frame(frame, now));
        if frames.len() > 0 {
            let refused = self.caller.account.rate_exceeded(1);
            for frame in frames {
                self.refuse_for_rate(&frame, &refused);
            }
        }
        Ok(())
    }

    /// Refuses a frame above the rate of its principal, which is an offence. The frames behind it on its
    /// channel are none (F8d).
    fn refuse_for_rate(&mut self, frame: &DecodedFrame, refused: &RpcRefusal) {
        let (channel, number) = match *frame {
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
        self.refuse(channel, number, refused.clone().into());
    }

    /// Files an offence that names no channel with every instance that is open on the stream; if none is,
    /// with those where the principal acted last.
    fn file_offence(&self, kind: OffenceKind, detail: &str) {
        if self.channels.is_empty() {
            self.caller.account.file_offence(kind, detail);
        }
        self.channels.all().for_each(|channel| channel.file_offence(kind, None, detail));
    }

    /// The status with which the stream ends because reading from the client has failed. Bytes that are no
    /// message are an offence; a stream that the client has reset is none.
    fn request_failed(&self, status: &Status) -> Status {
        let body = &self.caller.request;
        let Some(failure) = DecodeFailure::of(status, body).filter(|_| !body.is_broken()) else {
            return Status::cancelled("the client is gone");
        };
        self.caller.account.count(failure.counter());
        self.file_offence(failure.offence(), status.message());
        DecodeFailure::refusal(status, body).into()
    }

    /// Handles one frame, which came at the moment `now`.
    fn handle_frame(&mut self, frame: DecodedFrame, now: Instant) {
        let (channel, number, handled) = match frame {
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
                (0, None, Err(refused.into()))
            }
        };
        if let Err(refused) = handled {
            self.refuse(channel, number, refused);
        }
    }

    // In the following an error is a refusal before the instance is asked. The instance tells the client its
    // own refusals itself; they are only counted here.

    fn hello(
        &mut self,
        channel: u32,
        instance: Option<InstanceId>,
        incarnation: u64,
        now: Instant,
    ) -> Result<(), Uncommitted<RpcRefusal>> {
        let (instance, process) =
            self.service.member(&self.caller, instance).map_err(|why| self.no_member(instance, why))?;
        let limits = &self.service.0.limits;
        if self.channels.is_in_use(channel) || self.channels.in_use() >= limits.channels_per_stream {
            // Channels whose sessions have ended since.
            self.outbox.take_released().into_iter().for_each(|channel| self.channels.free(channel));
        }
        if self.channels.is_in_use(channel) {
            let why = format!("channel {channel} is in use");
            file_offence(&instance, process, OffenceKind::Malformed, None, &why);
            return Err(RpcRefusal::new(RefusalReason::Malformed, why).into());
        }
        if !self.hold(0, 1) {
            return Err(too_many_unread().into());
        }
        let limits = &self.service.0.limits;
        if self.channels.in_use() >= limits.channels_per_stream {
            let why = format!("the stream has {} channels, as many as it may", limits.channels_per_stream);
            file_offence(&instance, process, OffenceKind::QuotaExceeded, None, &why);
            let refused = RpcRefusal::new(RefusalReason::TooManyStreams, why);
            return Err(refused.with_retry_after(limits.retry_after).into());
        }
        self.channels.make_room(channel, limits.channels_per_stream);
        let sink = SessionSink { outbox: self.outbox.clone(), channel };
        match instance.hello(process, incarnation, &sink, now) {
            Ok(opened) => {
                if opened.replaces {
                    self.caller.account.count(Counter::SessionReplaced);
                }
                self.channels.insert(channel, Channel::new(&instance, process, opened.session, sink));
            }
            Err(reason) => self.caller.account.count_refusal(reason),
        }
        Ok(())
    }

    fn access(
        &self,
        channel: u32,
        number: Option<AccessNumber>,
        op: Option<RawOp>,
        now: Instant,
    ) -> Result<(), Uncommitted<RpcRefusal>> {
        let (channel, instance) = self.channel(channel)?;
        let params = instance.params();
        let access = match access_from_frame(number, op, channel.process, channel.session, params) {
            Ok(access) => access,
            Err(error) => {
                self.refuse_content(channel, &instance, number, &error, now);
                return Ok(());
            }
        };
        let charge = channel.admit(access.number, || {
            charge_round(&self.caller, &instance)?;
            instance.charge_log(&self.caller.account, logged_bytes(&access))
        })?;
        match instance.access(access, &channel.sink, now) {
            Ok(Submitted::New) => instance.keep_charge(charge),
            Ok(Submitted::Repeated) => self.caller.account.count(Counter::AccessRepeated),
            Err(reason) => self.caller.account.count_refusal(reason),
        }
        Ok(())
    }

    /// The refusal of a hello whose sender is no member of the instance for the reason `why`, also because
    /// there is none.
    fn no_member(&self, id: Option<InstanceId>, why: RpcRefusal) -> Uncommitted<RpcRefusal> {
        match id.filter(|_| why.reason == RefusalReason::InstanceUnknown) {
            Some(id) => self.service.0.instances.not_found_reason(id),
            None => why.into(),
        }
    }

    fn decide(&self, number: u32, value: RawValue, now: Instant) -> Result<(), Uncommitted<RpcRefusal>> {
        let (channel, instance) = self.channel(number)?;
        let value = match decision_from_frame(value, instance.params()) {
            Ok(value) => value,
            Err(error) => {
                self.refuse_content(channel, &instance, None, &error, now);
                return Ok(());
            }
        };
        let charge = instance.charge_log(&self.caller.account, value.as_bytes().len())?;
        match instance.decide(channel.process, channel.session, value, &channel.sink, now) {
            // The channel is free when the client has been told so.
            Ok(()) => instance.keep_charge(charge),
            Err(reason) => self.caller.account.count_refusal(reason),
        }
        Ok(())
    }

    /// Refuses the content of a frame, which is an offence (B2).
    fn refuse_content(
        &self,
        channel: &Channel,
        instance: &Instance,
        number: Option<AccessNumber>,
        error: &WireError,
        now: Instant,
    ) {
        let (offence, refused) = refused_content(channel.process, number, error);
        self.caller.account.count_refusal(instance.refuse(offence, refused, &channel.sink, now));
    }

    /// The channel with this number and its instance.
    fn channel(&self, number: u32) -> Result<(&Channel, Arc<Instance>), Uncommitted<RpcRefusal>> {
        let Some(channel) = self.channels.get(number) else {
            let why = format!("channel {number} is not open: say hello first");
            return Err(RpcRefusal::new(RefusalReason::Malformed, why).into());
        };
        Ok((channel, channel.instance().ok_or_else(|| self.service.gone(channel))?))
    }

    /// Refuses a frame before an instance is asked. Most of it is an offence (B2), filed at one instance or
    /// at several: so it is told when everything is committed that was logged before it.
    fn refuse(&self, channel: u32, number: Option<AccessNumber>, refused: Uncommitted<RpcRefusal>) {
        self.caller.account.count_refusal(refused.reason());
        let refused = refused.behind(self.service.0.instances.gates().everything_committed());
        let frame = refused.map(|why| Outgoing::frame(why.to_frame(channel, number)));
        self.outbox.push_refused(channel, number, frame);
    }

    /// Whether the client has half-closed the stream and every answer is in the outbox. No access comes on
    /// the stream any more, so a channel that owes no answer will owe none later.
    fn is_finished(&mut self) -> bool {
        if self.requests.is_some() || self.failed.is_some() {
            return false;
        }
        while let Some(number) = self.unfinished.last() {
            if self.channels.get(*number).is_some_and(Channel::owes_answer) {
                return false;
            }
            self.unfinished.pop();
        }
        true
    }

    /// The next message, or the end of the stream.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<EncodedResponse, Status>>> {
        if let Poll::Ready(refused) = self.end.poll(&self.service, cx) {
            return Poll::Ready(Some(Err(refused.into())));
        }
        let gates = self.service.0.instances.gates();
        if let Some(failure) = gates.failure() {
            return Poll::Ready(Some(Err(failure.clone().into())));
        }
        if let Err(status) = self.poll_requests(cx) {
            self.requests = None;
            let gate = self.service.0.instances.gates().everything_committed();
            self.failed = Some(Uncommitted::new(status, gate));
        }
        match self.failed.take().map(|failed| failed.poll(cx)) {
            Some(Ok(told)) => return Poll::Ready(Some(Err(told.unwrap_or_else(Status::from)))),
            failed => self.failed = failed.and_then(Result::err),
        }
        let limits = &self.service.0.limits;
        // Where more is to come, one answer seldom comes alone: other streams, whose turn is now, complete
        // further phases. The frames that they add go out in the same message and the same write; an idle
        // runtime comes back at once.
        let waiting = self.outbox.len();
        let owed = self.asked.saturating_sub(self.receiver.sent());
        if (self.lingered + 1..limits.frames_per_answer.min(owed)).contains(&waiting) {
            self.lingered = waiting;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.lingered = 0;
        let (frames, bytes) = (limits.frames_per_answer, limits.bytes_per_answer);
        // Before the outbox is looked at: an answer that comes in between is then found in it.
        let finished = self.is_finished();
        match self.outbox.poll(&mut self.receiver, frames, bytes, cx) {
            Polled::Frames(message) => Poll::Ready(Some(Ok(message))),
            Polled::Overflow => {
                let limits = &self.service.0.limits;
                let why = format!("{} frames were left unread", limits.unread_frames);
                let refused = RpcRefusal::new(RefusalReason::ReaderTooSlow, why);
                Poll::Ready(Some(Err(refused.with_retry_after(limits.retry_after).into())))
            }
            Polled::Empty if finished && self.outbox.unconfirmed() == 0 => Poll::Ready(None),
            Polled::Empty => Poll::Pending,
        }
    }
}

/// About how many bytes an access brings to the log.
pub(super) fn logged_bytes(access: &Access) -> usize {
    match &access.op {
        Op::Append(value) => value.as_bytes().len(),
        Op::Read { .. } => 0,
    }
}

/// Charges the most that an access of this instance may cost beyond the usual.
pub(super) fn charge_round(caller: &Caller, instance: &Instance) -> Result<(), RpcRefusal> {
    match instance.round_work() {
        0 => Ok(()),
        work => caller.account.charge_work(work),
    }
}

impl Stream for AttachStream {
    type Item = Result<EncodedResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = self.poll_response(cx);
        if let Poll::Ready(Some(Err(status))) = &next {
            self.caller.account.count_status(status);
        }
        self.ended = matches!(next, Poll::Ready(None | Some(Err(_))));
        next
    }
}

impl Drop for AttachStream {
    fn drop(&mut self) {
        if !self.ended || self.caller.request.is_broken() {
            self.caller.account.count(Counter::StreamAbandoned);
        }
        self.channels.all().for_each(Channel::close);
    }
}
