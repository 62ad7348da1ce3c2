//! Plays one principal's processes on an Attach stream: any number of instances at a time, each on a channel
//! of its own, and everything that follows from one message of the server in one message back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_client::raw::Connection;
use stickycas_model::player::Step;
use stickycas_model::process::{RawOp, SendTime};
use stickycas_model::types::AccessNumber;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use stickycas_proto::v1::server_frame::Frame;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::super::attach_codec::{
    self, DecodedResponse, EncodedRequest, ResponseFrame, encode_access, encode_decision, encode_hello,
};
use super::super::measure::{Histograms, OperationOutcome, Party};
use super::process_task::ProcessTask;
use super::{Shared, until};
use crate::measure::Principal;

/// Frames of one message: within the server's limit.
const FRAMES: usize = 512;
/// After so many channels that no frame of the server has freed a stream takes no more instances.
const LINGERING: usize = 1_024;

/// A command to a stream.
pub(super) enum StreamCommand {
    /// Play this.
    Begin(Box<ProcessTask>),
    /// Some tables are over: leave them.
    Clear,
}

/// A stream, as those see it who give it orders.
#[derive(Clone)]
pub(super) struct StreamHandle {
    orders: UnboundedSender<StreamCommand>,
    /// Whether it takes nothing new: it broke, or has too many channels that will never be free.
    retired: Arc<AtomicBool>,
}

impl StreamHandle {
    /// Opens a stream, in a task of its own, which also says once whether it is open.
    pub(super) fn open(
        connection: Connection,
        shared: Arc<Shared>,
        principal: Principal,
    ) -> (Self, tokio::sync::oneshot::Receiver<Result<(), String>>) {
        let (orders, given) = mpsc::unbounded_channel();
        let (opened, is_open) = tokio::sync::oneshot::channel();
        let retired = Arc::new(AtomicBool::new(false));
        let handle = Self { orders, retired: Arc::clone(&retired) };
        tokio::spawn(async move {
            let (outgoing, requests) = mpsc::unbounded_channel();
            let mut stream = Stream::new(shared, principal, retired, outgoing);
            let requests = UnboundedReceiverStream::new(requests);
            let time_to_open = stream.shared.time_to_open();
            let error = match timeout(time_to_open, attach_codec::attach(connection.identified(), requests)).await {
                Ok(Ok(answers)) => {
                    let _ = opened.send(Ok(()));
                    stream.run(answers.into_inner(), given, &connection).await;
                    return;
                }
                Ok(Err(status)) => connection.error(&status),
                Err(_) => connection.no_answer(
                    "no answer to Attach in time: a server that is busy, or that allows fewer streams on a connection \
                     (streams_per_connection) than there are --principals-per-connection",
                ),
            };
            let _ = opened.send(Err(error.to_string()));
            let fault = stream.shared.ended_by(&error);
            stream.give_up(fault, given);
        });
        (handle, is_open)
    }

    /// Gives an order; the order back if this stream takes no more.
    pub(super) fn give(&self, order: StreamCommand) -> Result<(), StreamCommand> {
        if self.retired.load(Ordering::Acquire) && matches!(order, StreamCommand::Begin(_)) {
            return Err(order);
        }
        self.orders.send(order).map_err(|refused| refused.0)
    }
}

/// An access held back until its moment.
struct Held {
    channel: u32,
    number: AccessNumber,
    op: RawOp,
}

struct Stream {
    shared: Arc<Shared>,
    /// Its owner.
    principal: Principal,
    retired: Arc<AtomicBool>,
    outgoing: UnboundedSender<EncodedRequest>,
    /// By channel. None where a channel is free or lingers.
    tasks: Vec<Option<Box<ProcessTask>>>,
    free: VecDeque<u32>,
    /// Channels that no frame of the server has freed.
    lingering: usize,
    held: BTreeMap<(Instant, u64), Held>,
    /// How many have been held, to tell those apart that fall on one moment.
    holds: u64,
    /// The next message to the server, and the number of its frames.
    message: Vec<u8>,
    frames: usize,
}

impl Stream {
    fn new(
        shared: Arc<Shared>,
        principal: Principal,
        retired: Arc<AtomicBool>,
        outgoing: UnboundedSender<EncodedRequest>,
    ) -> Self {
        Self {
            shared,
            principal,
            retired,
            outgoing,
            tasks: Vec::new(),
            free: VecDeque::new(),
            lingering: 0,
            held: BTreeMap::new(),
            holds: 0,
            message: Vec::new(),
            frames: 0,
        }
    }

    /// Plays until the handle is gone or the stream ends.
    async fn run(
        &mut self,
        mut answers: Streaming<DecodedResponse>,
        mut orders: UnboundedReceiver<StreamCommand>,
        connection: &Connection,
    ) {
        let fault = loop {
            let next = self.held.first_key_value().map(|((at, _), _)| *at);
            tokio::select! {
                order = orders.recv() => {
                    let Some(order) = order else { return };
                    self.take_order(order);
                    while self.frames < FRAMES && let Ok(order) = orders.try_recv() {
                        self.take_order(order);
                    }
                }
                message = answers.message() => match message {
                    Ok(Some(message)) => self.take(&message),
                    Ok(None) => break OperationOutcome::Unreachable,
                    Err(status) => break self.shared.ended_by(&connection.error(&status)),
                },
                () = until(next) => self.send_held(),
            }
            if !self.flush() {
                break OperationOutcome::Unreachable;
            }
        };
        self.give_up(fault, orders);
    }

    /// The stream has ended: so the processes on it end, and those that were to begin on it.
    fn give_up(&mut self, fault: OperationOutcome, mut orders: UnboundedReceiver<StreamCommand>) {
        self.retired.store(true, Ordering::Release);
        orders.close();
        let now = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut shard = shared.meter.shard(self.principal.shard());
        let waiting = std::iter::from_fn(|| orders.try_recv().ok()).filter_map(|order| match order {
            StreamCommand::Begin(task) => Some(task),
            StreamCommand::Clear => None,
        });
        for mut task in self.tasks.drain(..).flatten().chain(waiting) {
            task.ended(fault, now, &mut shard);
            task.end(fault);
        }
    }

    fn take_order(&mut self, order: StreamCommand) {
        match order {
            StreamCommand::Begin(task) => self.begin(task),
            StreamCommand::Clear => self.clear(),
        }
    }

    fn begin(&mut self, task: Box<ProcessTask>) {
        let channel = self.free.pop_front().unwrap_or_else(|| {
            self.tasks.push(None);
            u32::try_from(self.tasks.len() - 1).expect("there are fewer channels")
        });
        encode_hello(&mut self.message, channel, &task.state.id, task.state.number + 1);
        self.frames += 1;
        self.tasks[channel as usize] = Some(task);
        self.perform(channel, Instant::now());
    }

    /// Leaves the instances that are over. Their channels stay taken: the server is not told.
    fn clear(&mut self) {
        for channel in 0..self.tasks.len() {
            if self.tasks[channel].as_ref().is_some_and(|task| task.state.is_over()) {
                self.linger(channel);
            }
        }
    }

    /// The process on this channel has ended, and the channel is not free yet.
    fn linger(&mut self, channel: usize) -> Option<Box<ProcessTask>> {
        self.lingering += 1;
        if self.lingering >= LINGERING {
            self.retired.store(true, Ordering::Release);
        }
        self.tasks[channel].take()
    }

    /// Sends what the process on this channel has to say.
    fn perform(&mut self, channel: u32, now: Instant) {
        let Some(task) = self.tasks[channel as usize].as_mut() else { return };
        loop {
            match task.next(now) {
                Step::Access { number, op, when: SendTime::Ready } => {
                    task.sends(&op, now);
                    encode_access(&mut self.message, channel, number.get(), &op);
                    self.frames += 1;
                }
                Step::Access { number, op, when: SendTime::LastMoment } => {
                    self.holds += 1;
                    let at = now + task.last_moment();
                    self.held.insert((at, self.holds), Held { channel, number, op });
                }
                Step::Decide(value) => {
                    task.sends_decision(now);
                    encode_decision(&mut self.message, channel, value.as_bytes());
                    self.frames += 1;
                }
                Step::Wait => return,
                Step::Stay if task.party == Party::Byzantine => return,
                Step::Stay | Step::Leave => break,
            }
        }
        if let Some(task) = self.linger(channel as usize) {
            task.end(OperationOutcome::Done);
        }
    }

    fn send_held(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > now {
                return;
            }
            let Held { channel, number, op } = first.remove();
            // No channel is used again while an access is held on it; but its process may have ended.
            if let Some(task) = self.tasks[channel as usize].as_mut() {
                task.sends(&op, now);
                encode_access(&mut self.message, channel, number.get(), &op);
                self.frames += 1;
            }
            if self.frames >= FRAMES {
                self.flush();
            }
        }
    }

    fn take(&mut self, response: &DecodedResponse) {
        let now = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut shard = shared.meter.shard(self.principal.shard());
        let mut answered = 0;
        for frame in response.frames() {
            match frame {
                ResponseFrame::Append { channel, phase, .. } | ResponseFrame::Read { channel, phase, .. } => {
                    answered += 1;
                    shared.meter.phase(*phase);
                    self.answer(*channel, frame, response, now, &mut shard);
                }
                ResponseFrame::Decided { channel } => self.decided(*channel, now, &mut shard),
                ResponseFrame::Other(Some(frame)) => self.rare_frame(frame, now, &mut shard),
                ResponseFrame::Other(None) => {}
            }
            // A message of many answers may be answered by several.
            if self.frames >= FRAMES {
                self.flush();
            }
        }
        shared.meter.accesses(answered);
    }

    /// A frame that comes once in an instance or never.
    fn rare_frame(&mut self, frame: &Frame, now: Instant, into: &mut Histograms) {
        match frame {
            Frame::Refusal(refusal) => self.refusal(refusal, now, into),
            Frame::Welcome(welcome) => self.welcome(welcome, now, into),
            Frame::Replaced(v1::Replaced { channel, .. }) => {
                let reason = v1::RefusalReason::SessionReplaced;
                self.fail(*channel, OperationOutcome::Refused(reason), now, into);
            }
            Frame::Answer(_) | Frame::Decided(_) => {}
        }
    }

    fn task(&mut self, channel: u32) -> Option<&mut ProcessTask> {
        self.tasks.get_mut(channel as usize)?.as_deref_mut()
    }

    fn answer(
        &mut self,
        channel: u32,
        frame: &ResponseFrame,
        response: &DecodedResponse,
        now: Instant,
        into: &mut Histograms,
    ) {
        let Some(task) = self.task(channel) else { return };
        match response.answer(frame, &task.state.drawn.params) {
            Ok((number, received)) => {
                task.answered(number, received, now, into);
                self.perform(channel, now);
            }
            Err(error) => {
                self.shared.meter.said(OperationOutcome::Protocol, &error.to_string());
                self.fail(channel, OperationOutcome::Protocol, now, into);
            }
        }
    }

    fn decided(&mut self, channel: u32, now: Instant, into: &mut Histograms) {
        let Some(mut task) = self.tasks.get_mut(channel as usize).and_then(Option::take) else { return };
        task.taken(now, into);
        task.end(OperationOutcome::Done);
        self.free.push_back(channel);
    }

    fn refusal(&mut self, refusal: &v1::Refusal, now: Instant, into: &mut Histograms) {
        let RpcRefusal { reason, message, .. } = RpcRefusal::from_frame(refusal);
        self.shared.meter.refused(self.principal, reason);
        self.shared.meter.said(OperationOutcome::Refused(reason), &message);
        let Some(task) = self.task(refusal.channel) else { return };
        match task.refused(AccessNumber::new(refusal.access_number), reason, &message, now, into) {
            Ok(()) => self.perform(refusal.channel, now),
            Err(ended) => self.fail(refusal.channel, ended, now, into),
        }
    }

    fn welcome(&mut self, welcome: &v1::Welcome, now: Instant, into: &mut Histograms) {
        if self.task(welcome.channel).is_some_and(|task| !task.is_as_expected(welcome)) {
            self.fail(welcome.channel, OperationOutcome::Protocol, now, into);
        }
    }

    fn fail(&mut self, channel: u32, ended: OperationOutcome, now: Instant, into: &mut Histograms) {
        if let Some(mut task) = self.linger(channel as usize) {
            task.ended(ended, now, into);
            task.end(ended);
        }
    }

    /// Sends what is to be sent; false if the stream is gone.
    fn flush(&mut self) -> bool {
        if self.frames == 0 {
            return true;
        }
        // The next one will be about as long.
        let room = Vec::with_capacity(self.message.len());
        self.frames = 0;
        self.outgoing.send(EncodedRequest(std::mem::replace(&mut self.message, room))).is_ok()
    }
}
