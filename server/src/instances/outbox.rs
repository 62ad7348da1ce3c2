//! The frames that wait to be sent on one Attach stream.
//!
//! Instances push frames, on whichever task an instance's step runs; the stream takes them out in batches.
//! Both sides meet at one short lock, and one wake-up serves however many frames there are.
//!
//! It stands in the place of a channel of tokio, which keeps blocks of 32 places for each stream even when it
//! is empty: 8 % more memory for each principal. It also counts its bound in frames over all senders, drops
//! everything at once when the bound is reached, and puts frames back that do not fit into a message. A test
//! compares the two.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use stickycas_model::machine::Welcome;
use stickycas_model::types::{AccessNumber, ProcessId, Seed, SessionId};
use stickycas_proto::attach::{EncodedResponse, encode_answer, encode_decided, encode_frame, encode_welcome};
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{self, ServerFrame};

use super::config::{InstanceConfig, SharedConfig};
use super::waiters::CompletedAccess;
use crate::gate::Uncommitted;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// The numbers of frames that can be sent and of those that cannot be yet, for readers that need not know
    /// them to the moment.
    ready: AtomicUsize,
    unconfirmed: AtomicUsize,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Outgoing>,
    /// Frames that may be told when their gates are open, in the order in which they came.
    unconfirmed: VecDeque<Unconfirmed>,
    /// The same of frames that were refused before an instance was asked. They wait for the logs of all
    /// shards, and hold up no frame of an instance.
    refused: VecDeque<Unconfirmed>,
    /// Whether more frames were pushed than may wait.
    overflowed: bool,
    /// Channels whose sessions have ended: the client may use them again.
    released: Vec<u32>,
    waker: Option<Waker>,
}

/// A frame that waits for its gate. If that does not open, the client is told the reason on this channel, for
/// this access.
#[derive(Debug)]
struct Unconfirmed {
    channel: u32,
    number: Option<AccessNumber>,
    frame: Uncommitted<Outgoing>,
}

impl State {
    /// Whether there is room for a frame. Without it all frames are dropped, and the stream ends.
    fn make_room(&mut self, limit: usize) -> bool {
        if self.frames.len() + self.waiting() >= limit {
            self.overflowed = true;
            self.frames.clear();
            self.unconfirmed.clear();
            self.refused.clear();
        }
        !self.overflowed
    }

    /// The number of frames that may not be told yet.
    fn waiting(&self) -> usize {
        self.unconfirmed.len() + self.refused.len()
    }

    /// Frames that are confirmed, or cannot be, can be sent. The stream is woken when there are more.
    fn confirm(&mut self, cx: &mut Context<'_>) {
        for queue in [&mut self.unconfirmed, &mut self.refused] {
            while let Some(Unconfirmed { channel, number, frame }) = queue.pop_front() {
                match frame.poll(cx) {
                    Ok(told) => {
                        let refusal = |why: RpcRefusal| Outgoing::frame(why.to_frame(channel, number));
                        self.frames.push_back(told.unwrap_or_else(refusal));
                    }
                    Err(frame) => {
                        queue.push_front(Unconfirmed { channel, number, frame });
                        break;
                    }
                }
            }
        }
    }
}

/// One frame that waits to be sent.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Any frame. Boxed, since the frequent kinds are below and small.
    Frame(Box<ServerFrame>),
    /// A session is open.
    Welcome(Box<PendingWelcome>),
    /// The decision on this channel was accepted.
    Decided(u32),
    /// The answer to this access on this channel; its entries are looked up when it is encoded.
    Answer(u32, AccessNumber, CompletedAccess),
}

impl Outgoing {
    /// A frame of any kind.
    pub(crate) fn frame(frame: impl Into<ServerFrame>) -> Self {
        Self::Frame(Box::new(frame.into()))
    }

    /// The access that the frame answers or refuses; `None` if it is another frame.
    pub(super) fn access_number(&self) -> Option<AccessNumber> {
        match self {
            Self::Answer(_, number, _) => Some(*number),
            Self::Frame(frame) => match &frame.frame {
                Some(Frame::Refusal(refusal)) => AccessNumber::new(refusal.access_number),
                _ => None,
            },
            Self::Welcome(_) | Self::Decided(_) => None,
        }
    }

    fn encode(&self, message: &mut Vec<u8>) {
        match self {
            Self::Frame(frame) => encode_frame(message, frame),
            Self::Welcome(welcome) => welcome.encode(message),
            Self::Decided(channel) => encode_decided(message, *channel),
            Self::Answer(channel, number, completed) => {
                let CompletedAccess { phase, answer, .. } = completed;
                encode_answer(message, *channel, *number, *phase, answer, completed.values());
            }
        }
    }
}

/// The welcome of a session, encoded when it is sent.
#[derive(Debug)]
pub(crate) struct PendingWelcome {
    channel: u32,
    session: SessionId,
    own: v1::Own,
    config: Arc<SharedConfig>,
    seed: Seed,
}

impl PendingWelcome {
    /// The answer to a hello on this channel.
    pub(super) fn new(channel: u32, process: ProcessId, welcome: Welcome, config: &InstanceConfig) -> Self {
        let Welcome { session, next, waiting, append, decided } = welcome;
        let own = v1::Own::from(&MemberState { process, next, waiting, append, decided });
        Self { channel, session, own, config: config.shared.clone(), seed: config.seed }
    }

    fn encode(&self, message: &mut Vec<u8>) {
        let Self { channel, session, own, config, seed } = self;
        encode_welcome(message, *channel, session.get(), own, &config.encoded, seed.get());
    }
}

/// The result of a poll of an outbox.
#[derive(Debug)]
pub(crate) enum Polled {
    /// Frames to send.
    Frames(EncodedResponse),
    /// The client has left more frames unread than it may.
    Overflow,
    /// Nothing yet; the stream is woken when a frame comes.
    Empty,
}

/// The stream's side of an outbox: buffers that are used again and again.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    frames: VecDeque<Outgoing>,
    sent: usize,
}

impl Outbox {
    /// An empty outbox that holds at most `limit` frames.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), ready: AtomicUsize::new(0), unconfirmed: AtomicUsize::new(0), limit }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session on this channel has ended.
    pub(crate) fn release_channel(&self, channel: u32) {
        self.state().released.push(channel);
    }

    /// The channels whose sessions have ended since the last call.
    pub(crate) fn take_released(&self) -> Vec<u32> {
        std::mem::take(&mut self.state().released)
    }

    /// Pushes a frame of any kind.
    pub(crate) fn push(&self, frame: impl Into<ServerFrame>) {
        self.push_outgoing(Outgoing::frame(frame));
    }

    /// Pushes a frame and wakes the stream. An outbox that is full drops all frames instead, and its stream
    /// ends.
    pub(super) fn push_outgoing(&self, frame: Outgoing) {
        let mut state = self.state();
        if state.make_room(self.limit) {
            state.frames.push_back(frame);
        }
        self.wake(state);
    }

    /// The same when the frame may be told. If it may not, the client is told the reason in its place: on
    /// this channel, for this access.
    pub(crate) fn push_gated(
        &self,
        channel: u32,
        number: Option<AccessNumber>,
        frame: Uncommitted<Outgoing>,
    ) {
        self.push_waiting(channel, number, frame, |state| &mut state.unconfirmed);
    }

    /// The same of a frame that was refused before an instance was asked.
    pub(crate) fn push_refused(
        &self,
        channel: u32,
        number: Option<AccessNumber>,
        frame: Uncommitted<Outgoing>,
    ) {
        self.push_waiting(channel, number, frame, |state| &mut state.refused);
    }

    fn push_waiting(
        &self,
        channel: u32,
        number: Option<AccessNumber>,
        frame: Uncommitted<Outgoing>,
        queue: impl FnOnce(&mut State) -> &mut VecDeque<Unconfirmed>,
    ) {
        let frame = match frame.if_open() {
            Ok(frame) => return self.push_outgoing(frame),
            Err(frame) => frame,
        };
        let mut state = self.state();
        if state.make_room(self.limit) {
            queue(&mut state).push_back(Unconfirmed { channel, number, frame });
        }
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        self.count(&state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn count(&self, state: &State) {
        self.ready.store(state.frames.len(), Ordering::Relaxed);
        self.unconfirmed.store(state.waiting(), Ordering::Relaxed);
    }

    /// The number of frames that wait to be taken out.
    pub(crate) fn len(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }

    /// The number of frames that may not be told yet.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Takes out at most `limit` frames, no more than fit into `bytes` but at least one, as one message. If
    /// there are none it registers the task to be woken. Only the stream takes frames out.
    pub(crate) fn poll(
        &self,
        receiver: &mut Receiver,
        limit: usize,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Polled {
        let mut state = self.state();
        if state.overflowed {
            return Polled::Overflow;
        }
        if state.waiting() > 0 {
            state.confirm(cx);
            self.count(&state);
        }
        if state.frames.is_empty() {
            if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            return Polled::Empty;
        }
        if state.frames.len() <= limit {
            std::mem::swap(&mut state.frames, &mut receiver.frames);
        } else {
            receiver.frames.extend(state.frames.drain(..limit));
        }
        self.count(&state);
        drop(state);
        // Entries are looked up here, while the instances go on.
        let message = receiver.encode(bytes);
        if !receiver.frames.is_empty() {
            self.put_back(&mut receiver.frames);
        }
        Polled::Frames(message)
    }

    /// Frames that do not fit into a message are the first of the next.
    fn put_back(&self, rest: &mut VecDeque<Outgoing>) {
        let mut state = self.state();
        rest.drain(..).rev().for_each(|frame| state.frames.push_front(frame));
        self.count(&state);
    }
}

impl Receiver {
    /// The number of frames in all messages until now.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Encodes as many frames as fit into `bytes`, at least one. The others stay.
    fn encode(&mut self, bytes: usize) -> EncodedResponse {
        /// About the length of an answer.
        const FRAME: usize = 64;
        let mut message = Vec::with_capacity(self.frames.len() * FRAME);
        let mut encoded = 0;
        for frame in &self.frames {
            let before = message.len();
            frame.encode(&mut message);
            if message.len() > bytes && before > 0 {
                message.truncate(before);
                break;
            }
            encoded += 1;
        }
        self.frames.drain(..encoded);
        self.sent += encoded;
        EncodedResponse(message)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::task::Wake;
    use std::thread;
    use std::time::Duration;

    use prost::Message as _;
    use stickycas_proto::v1::{AttachResponse, RefusalReason, Replaced};
    use tokio::sync::oneshot;

    use super::*;
    use crate::commit_log::engine::{EngineError, ManualEngine, Outcome};
    use crate::counting_waker::CountingWaker;
    use crate::gate::Gate;
    use crate::limits::Limits;
    use crate::quota::KnownPrincipals;
    use crate::storage::Storage;

    /// Rings when it is woken.
    struct Bell(mpsc::Sender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
        }
    }

    /// The channels of which the frames in a message speak.
    fn channels(EncodedResponse(bytes): &EncodedResponse) -> Vec<u32> {
        let frames = AttachResponse::decode(&**bytes).unwrap().frames;
        let channel = |frame| match frame {
            Some(Frame::Decided(decided)) => decided.channel,
            Some(Frame::Replaced(replaced)) => replaced.channel,
            Some(Frame::Refusal(refusal)) => refusal.channel,
            other => panic!("{other:?}"),
        };
        frames.into_iter().map(|frame| channel(frame.frame)).collect()
    }

    fn push_decided(outbox: &Outbox, channel: u32) {
        outbox.push_outgoing(Outgoing::Decided(channel));
    }

    /// Takes out the frames that are there.
    fn take(outbox: &Outbox, receiver: &mut Receiver, limit: usize, bytes: usize) -> Option<Vec<u32>> {
        match outbox.poll(receiver, limit, bytes, &mut Context::from_waker(Waker::noop())) {
            Polled::Frames(message) => Some(channels(&message)),
            Polled::Empty => None,
            Polled::Overflow => panic!("it holds too much"),
        }
    }

    #[test]
    fn a_waiting_stream_is_woken_once_each_time_that_it_waits() {
        let (outbox, mut receiver, woken) =
            (Outbox::new(100), Receiver::default(), Arc::new(CountingWaker::default()));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        for round in 1..=3 {
            // To ask more often changes nothing.
            for _ in 0..round {
                assert!(matches!(outbox.poll(&mut receiver, 9, 999, &mut cx), Polled::Empty));
            }
            assert_eq!(woken.wake_count(), round - 1);
            outbox.push(Replaced { channel: 1, session: 1, incarnation: 1 });
            push_decided(&outbox, 2);
            assert_eq!(woken.wake_count(), round);
            let Polled::Frames(message) = outbox.poll(&mut receiver, 9, 999, &mut cx) else { panic!() };
            assert_eq!(channels(&message), [1, 2]);
        }
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let (outbox, mut receiver) = (Outbox::new(100), Receiver::default());
        let tasks: [Arc<CountingWaker>; 2] = Default::default();
        for task in &tasks {
            let waker = Waker::from(task.clone());
            let out = outbox.poll(&mut receiver, 9, 999, &mut Context::from_waker(&waker));
            assert!(matches!(out, Polled::Empty));
        }
        push_decided(&outbox, 0);
        assert_eq!(tasks.map(|task| task.wake_count()), [0, 1]);
    }

    #[test]
    fn frames_keep_their_order_however_few_fit_into_a_message() {
        for (limit, bytes) in
            [(1, usize::MAX), (3, usize::MAX), (100, usize::MAX), (100, 1), (4, 20), (7, 13)]
        {
            let (outbox, mut receiver, mut taken) = (Outbox::new(1_000), Receiver::default(), Vec::new());
            for put in 0..40 {
                (0..3).for_each(|more| push_decided(&outbox, 3 * put + more));
                let some = take(&outbox, &mut receiver, limit, bytes).unwrap();
                assert!((1..=limit).contains(&some.len()), "{some:?}");
                taken.extend(some);
                assert_eq!(outbox.len() + taken.len(), 3 * put as usize + 3);
            }
            while let Some(rest) = take(&outbox, &mut receiver, limit, bytes) {
                taken.extend(rest);
            }
            assert!(taken.iter().copied().eq(0..120), "limit {limit}, {bytes} bytes: {taken:?}");
        }
    }

    #[test]
    fn concurrent_pushes_lose_nothing_and_keep_their_order() {
        const EACH: u32 = 20_000;
        const THREADS: u32 = 3;
        for (limit, bytes) in [(100, usize::MAX), (5, 12)] {
            let outbox = Arc::new(Outbox::new(usize::MAX));
            let threads = (0..THREADS).map(|thread| {
                let outbox = outbox.clone();
                thread::spawn(move || {
                    for number in 0..EACH {
                        push_decided(&outbox, thread * EACH + number);
                        // So that the stream finds nothing now and then, and waits.
                        if number % 64 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            });
            let threads: Vec<_> = threads.collect();
            let (bell, rings) = mpsc::channel();
            let waker = Waker::from(Arc::new(Bell(bell)));
            let (mut receiver, mut next) = (Receiver::default(), [0; THREADS as usize]);
            while next != [EACH; THREADS as usize] {
                let some = match outbox.poll(&mut receiver, limit, bytes, &mut Context::from_waker(&waker)) {
                    Polled::Frames(message) => channels(&message),
                    // Woken by nobody, it would wait for ever.
                    Polled::Empty => {
                        rings.recv_timeout(Duration::from_secs(60)).expect("the stream was not woken");
                        continue;
                    }
                    other => panic!("{other:?}"),
                };
                for channel in some {
                    let (thread, number) = ((channel / EACH) as usize, channel % EACH);
                    assert_eq!(number, next[thread], "of thread {thread}");
                    next[thread] += 1;
                }
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    }

    #[test]
    fn a_frame_refused_before_an_instance_holds_up_none_of_an_instance() {
        let (outbox, mut receiver) = (Outbox::new(9), Receiver::default());
        let (step, committed) = oneshot::channel();
        let refused = Uncommitted::new(Outgoing::Decided(1), Gate::of_step(Some(committed)));
        outbox.push_refused(1, None, refused);
        let (other, confirmed) = oneshot::channel();
        let answer = Uncommitted::new(Outgoing::Decided(2), Gate::of_step(Some(confirmed)));
        outbox.push_gated(2, None, answer);
        assert_eq!(take(&outbox, &mut receiver, 9, 999), None);
        other.send(Ok(())).unwrap();
        assert_eq!(take(&outbox, &mut receiver, 9, 999), Some(vec![2]));
        assert_eq!(outbox.unconfirmed(), 1);
        step.send(Ok(())).unwrap();
        assert_eq!(take(&outbox, &mut receiver, 9, 999), Some(vec![1]));
    }

    #[tokio::test]
    async fn after_the_log_has_failed_that_is_told_in_place_of_what_waits() {
        let engine = Arc::new(ManualEngine::new(1));
        let storage = Storage::durable(engine.clone(), None, &Limits::default()).unwrap();
        let instances = storage.instances(Limits::default(), KnownPrincipals::default());
        let (outbox, mut receiver) = (Outbox::new(9), Receiver::default());
        storage.durable_log().unwrap().checkpoint(1, None);
        let gate = instances.gates().everything_committed();
        outbox.push_refused(7, None, Uncommitted::new(Outgoing::Decided(7), gate));
        assert_eq!(take(&outbox, &mut receiver, 9, 999), None);
        let (_, done) = engine.next();
        done(Outcome::Unknown(EngineError::failed("the disk is gone")));
        assert!(instances.log_failure().is_some());
        let mut cx = Context::from_waker(Waker::noop());
        let Polled::Frames(EncodedResponse(told)) = outbox.poll(&mut receiver, 9, 999, &mut cx) else {
            panic!()
        };
        let told = AttachResponse::decode(&told[..]).unwrap();
        let Some(Frame::Refusal(refusal)) = &told.frames[0].frame else { panic!("{told:?}") };
        assert_eq!((refusal.channel, refusal.reason()), (7, RefusalReason::LogFailed));
    }

    #[test]
    fn a_frame_waits_for_its_gate_and_else_the_reason_is_told() {
        let (outbox, mut receiver) = (Outbox::new(9), Receiver::default());
        let gated = |channel| {
            let (step, committed) = oneshot::channel();
            let frame = Uncommitted::new(Outgoing::Decided(channel), Gate::of_step(Some(committed)));
            outbox.push_gated(channel, None, frame);
            step
        };
        let (first, second) = (gated(1), gated(2));
        push_decided(&outbox, 3);
        outbox.push_gated(4, None, Uncommitted::new(Outgoing::Decided(4), Gate::OPEN));
        assert_eq!((outbox.len(), outbox.unconfirmed()), (2, 2));
        assert_eq!(take(&outbox, &mut receiver, 9, 999), Some(vec![3, 4]));
        second.send(Ok(())).unwrap();
        assert_eq!(take(&outbox, &mut receiver, 9, 999), None, "the first is not committed");
        first.send(Err(Box::new(RpcRefusal::internal()))).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let Polled::Frames(EncodedResponse(told)) = outbox.poll(&mut receiver, 9, 999, &mut cx) else {
            panic!()
        };
        let told = AttachResponse::decode(&*told).unwrap().frames;
        let [Some(Frame::Refusal(refusal)), Some(Frame::Decided(decided))] =
            [0, 1].map(|at: usize| told[at].frame.clone())
        else {
            panic!("{told:?}")
        };
        assert_eq!((refusal.channel, decided.channel, outbox.unconfirmed()), (1, 2, 0));
    }

    #[test]
    fn a_full_outbox_drops_its_frames_and_wakes_its_stream() {
        let (outbox, mut receiver, woken) =
            (Outbox::new(2), Receiver::default(), Arc::new(CountingWaker::default()));
        let waker = Waker::from(woken.clone());
        let mut out = || outbox.poll(&mut receiver, 9, 999, &mut Context::from_waker(&waker));
        assert!(matches!(out(), Polled::Empty));
        (0..5).for_each(|channel| push_decided(&outbox, channel));
        assert_eq!((woken.wake_count(), outbox.len()), (1, 0));
        assert!(matches!(out(), Polled::Overflow));
    }
}
