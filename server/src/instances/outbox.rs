//! What waits to be sent on one Attach stream.
//!
//! Instances put frames in, whoever's task they run on; the stream takes them out in batches. The two meet at
//! one short lock, and the stream is woken once however many frames there are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use stickycas_model::types::AccessNumber;
use stickycas_proto::attach::{EncodedResponse, encode_answer, encode_decided, encode_frame};
use stickycas_proto::v1::ServerFrame;

use super::answered::Answered;
use super::outlets::Welcoming;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// How many frames are in it, for those who need not know it to the moment.
    length: AtomicUsize,
    limit: usize,
}

/// One frame, as it waits.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// Any frame. Boxed, because those that come often are below and small.
    Frame(Box<ServerFrame>),
    /// A session is open.
    Welcome(Box<Welcoming>),
    /// The decision on this channel was taken.
    Decided(u32),
    /// The answer to this access on this channel; its entries are looked up when it is sent.
    Answer(u32, AccessNumber, Answered),
}

impl Parcel {
    fn write(&self, message: &mut Vec<u8>) {
        match self {
            Self::Frame(frame) => encode_frame(message, frame),
            Self::Welcome(welcome) => welcome.write(message),
            Self::Decided(channel) => encode_decided(message, *channel),
            Self::Answer(channel, number, answered) => {
                let Answered { phase, answer, .. } = answered;
                encode_answer(message, *channel, *number, *phase, answer, answered.values());
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    parcels: VecDeque<Parcel>,
    /// Answers that are still to come, as far as the outbox knows: the stream tells what it has asked for when it
    /// takes something out, so in between it may be less than nothing.
    owed: isize,
    overfull: bool,
    /// How many times the stream has taken frames out.
    taken: u64,
    /// Channels whose sessions have ended: the client may use them again.
    freed: Vec<u32>,
    waker: Option<Waker>,
}

/// What a stream finds in its outbox.
#[derive(Debug)]
pub(crate) enum Out {
    /// Frames to send.
    Frames(EncodedResponse),
    /// The client has left more frames unread than it may.
    Overfull,
    /// Nothing, and nothing will come unless the client sends more.
    Idle,
    /// Nothing yet.
    Nothing,
}

/// What the stream that takes out keeps for it.
#[derive(Debug, Default)]
pub(crate) struct Taker {
    /// Its accesses that were accepted since it took out last: their answers are still to come.
    pub(crate) accepted: isize,
    /// Used again and again.
    parcels: VecDeque<Parcel>,
}

impl Outbox {
    /// Empty; holds at most `limit` frames.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), length: AtomicUsize::new(0), limit }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many answers are still to come to accesses that the stream did not ask for itself.
    pub(crate) fn expect(&self, answers: usize) {
        self.state().owed += answers.cast_signed();
    }

    /// So many accesses of this stream are answered elsewhere.
    pub(crate) fn expect_no_more(&self, answers: usize) {
        self.state().owed -= answers.cast_signed();
    }

    /// The session on this channel has ended.
    pub(crate) fn free(&self, channel: u32) {
        self.state().freed.push(channel);
    }

    /// The channels whose sessions have ended since this was asked last.
    pub(crate) fn take_freed(&self) -> Vec<u32> {
        std::mem::take(&mut self.state().freed)
    }

    /// Puts in a frame that is no answer to an expected access.
    pub(crate) fn push(&self, frame: impl Into<ServerFrame>) {
        self.put(Parcel::Frame(Box::new(frame.into())), 0);
    }

    /// Puts in that a session is open.
    pub(super) fn welcome(&self, welcome: Welcoming) {
        self.put(Parcel::Welcome(Box::new(welcome)), 0);
    }

    /// Puts in that the decision on this channel was taken.
    pub(crate) fn push_decided(&self, channel: u32) {
        self.put(Parcel::Decided(channel), 0);
    }

    /// Puts in the answer once more of an access that is not expected any more.
    pub(crate) fn repeat(&self, channel: u32, number: AccessNumber, answered: Answered) {
        self.put(Parcel::Answer(channel, number, answered), 0);
    }

    /// Puts in the answer to an access that was expected.
    pub(super) fn answer(&self, channel: u32, number: AccessNumber, answered: Answered) {
        self.put(Parcel::Answer(channel, number, answered), 1);
    }

    /// Puts in why an access that was expected is withdrawn.
    pub(super) fn withdraw(&self, frame: impl Into<ServerFrame>) {
        self.put(Parcel::Frame(Box::new(frame.into())), 1);
    }

    fn put(&self, parcel: Parcel, answered: isize) {
        let mut state = self.state();
        state.owed -= answered;
        if state.parcels.len() >= self.limit {
            state.overfull = true;
            state.parcels.clear();
        }
        if !state.overfull {
            state.parcels.push_back(parcel);
        }
        self.length.store(state.parcels.len(), Ordering::Relaxed);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How many frames wait to be taken out.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// How many times frames were taken out: whether the client reads.
    pub(crate) fn taken(&self) -> u64 {
        self.state().taken
    }

    /// Takes out at most `limit` frames, and of those no more than fit into `bytes`, but one at least; registers
    /// the task to be woken if there are none. Only the stream takes out.
    pub(crate) fn take(&self, taker: &mut Taker, limit: usize, bytes: usize, cx: &Context<'_>) -> Out {
        let mut state = self.state();
        state.owed += std::mem::take(&mut taker.accepted);
        if state.overfull {
            return Out::Overfull;
        }
        if state.parcels.is_empty() {
            if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            return if state.owed > 0 { Out::Nothing } else { Out::Idle };
        }
        state.taken += 1;
        if state.parcels.len() <= limit {
            std::mem::swap(&mut state.parcels, &mut taker.parcels);
        } else {
            taker.parcels.extend(state.parcels.drain(..limit));
        }
        self.length.store(state.parcels.len(), Ordering::Relaxed);
        drop(state);
        // Entries are looked up here, while the instances go on.
        let message = taker.write(bytes);
        if !taker.parcels.is_empty() {
            self.put_back(&mut taker.parcels);
        }
        Out::Frames(message)
    }

    /// What does not fit into a message is the beginning of the next.
    fn put_back(&self, rest: &mut VecDeque<Parcel>) {
        let mut state = self.state();
        rest.drain(..).rev().for_each(|parcel| state.parcels.push_front(parcel));
        self.length.store(state.parcels.len(), Ordering::Relaxed);
    }
}

impl Taker {
    /// Writes a message of as many parcels as fit into `bytes`, but one at least. The others stay.
    fn write(&mut self, bytes: usize) -> EncodedResponse {
        /// About as long is an answer.
        const FRAME: usize = 64;
        let mut message = Vec::with_capacity(self.parcels.len() * FRAME);
        let mut written = 0;
        for parcel in &self.parcels {
            let before = message.len();
            parcel.write(&mut message);
            if message.len() > bytes && before > 0 {
                message.truncate(before);
                break;
            }
            written += 1;
        }
        self.parcels.drain(..written);
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
    use stickycas_proto::v1::server_frame::Frame;
    use stickycas_proto::v1::{AttachResponse, Replaced};

    use super::*;
    use crate::counting_waker::CountingWaker;

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
            other => panic!("{other:?}"),
        };
        frames.into_iter().map(|frame| channel(frame.frame)).collect()
    }

    /// Takes out what is there.
    fn take(outbox: &Outbox, taker: &mut Taker, limit: usize, bytes: usize) -> Option<Vec<u32>> {
        match outbox.take(taker, limit, bytes, &Context::from_waker(Waker::noop())) {
            Out::Frames(message) => Some(channels(&message)),
            Out::Idle | Out::Nothing => None,
            Out::Overfull => panic!("it holds too much"),
        }
    }

    #[test]
    fn a_stream_that_waits_is_woken_once_whatever_comes_and_again_when_it_waits_again() {
        let (outbox, mut taker, woken) =
            (Outbox::new(100), Taker::default(), Arc::new(CountingWaker::default()));
        let waker = Waker::from(woken.clone());
        let cx = Context::from_waker(&waker);
        for round in 1..=3 {
            // To ask more often changes nothing.
            for _ in 0..round {
                assert!(matches!(outbox.take(&mut taker, 9, 999, &cx), Out::Idle));
            }
            assert_eq!(woken.wake_count(), round - 1);
            outbox.push(Replaced { channel: 1, session: 1 });
            outbox.push_decided(2);
            assert_eq!(woken.wake_count(), round);
            let Out::Frames(message) = outbox.take(&mut taker, 9, 999, &cx) else { panic!() };
            assert_eq!(channels(&message), [1, 2]);
        }
    }

    #[test]
    fn who_asked_last_is_woken() {
        let (outbox, mut taker) = (Outbox::new(100), Taker::default());
        let tasks: [Arc<CountingWaker>; 2] = Default::default();
        for task in &tasks {
            let waker = Waker::from(task.clone());
            let out = outbox.take(&mut taker, 9, 999, &Context::from_waker(&waker));
            assert!(matches!(out, Out::Idle));
        }
        outbox.push_decided(0);
        assert_eq!(tasks.map(|task| task.wake_count()), [0, 1]);
    }

    #[test]
    fn frames_come_out_in_the_order_in_which_they_were_put_in_however_few_fit() {
        for (limit, bytes) in
            [(1, usize::MAX), (3, usize::MAX), (100, usize::MAX), (100, 1), (4, 20), (7, 13)]
        {
            let (outbox, mut taker, mut taken) = (Outbox::new(1_000), Taker::default(), Vec::new());
            for put in 0..40 {
                (0..3).for_each(|more| outbox.push_decided(3 * put + more));
                let some = take(&outbox, &mut taker, limit, bytes).unwrap();
                assert!((1..=limit).contains(&some.len()), "{some:?}");
                taken.extend(some);
                assert_eq!(outbox.len() + taken.len(), 3 * put as usize + 3);
            }
            while let Some(rest) = take(&outbox, &mut taker, limit, bytes) {
                taken.extend(rest);
            }
            assert!(taken.iter().copied().eq(0..120), "limit {limit}, {bytes} bytes: {taken:?}");
        }
    }

    #[test]
    fn nothing_is_lost_and_no_order_changes_while_others_put_in() {
        const EACH: u32 = 20_000;
        const THREADS: u32 = 3;
        for (limit, bytes) in [(100, usize::MAX), (5, 12)] {
            let outbox = Arc::new(Outbox::new(usize::MAX));
            let threads = (0..THREADS).map(|thread| {
                let outbox = outbox.clone();
                thread::spawn(move || {
                    for number in 0..EACH {
                        outbox.push_decided(thread * EACH + number);
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
            let (mut taker, mut next) = (Taker::default(), [0; THREADS as usize]);
            while next != [EACH; THREADS as usize] {
                let some = match outbox.take(&mut taker, limit, bytes, &Context::from_waker(&waker)) {
                    Out::Frames(message) => channels(&message),
                    // Woken by nobody, it would wait for ever.
                    Out::Idle => {
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
    fn a_stream_is_idle_only_if_no_answer_is_still_to_come() {
        let (outbox, mut taker) = (Outbox::new(100), Taker::default());
        let mut out = |accepted| {
            taker.accepted += accepted;
            outbox.take(&mut taker, 9, 999, &Context::from_waker(Waker::noop()))
        };
        let refused = || Replaced { channel: 1, session: 1 };
        assert!(matches!(out(0), Out::Idle));
        assert!(matches!(out(1), Out::Nothing), "the stream has asked for one");
        outbox.expect(2);
        outbox.expect_no_more(1);
        for _ in 0..2 {
            assert!(matches!(out(0), Out::Nothing));
            outbox.withdraw(refused());
            assert!(matches!(out(0), Out::Frames(_)));
        }
        assert!(matches!(out(0), Out::Idle));
        // An answer may come before the stream tells that it has asked.
        outbox.withdraw(refused());
        assert!(matches!(out(1), Out::Frames(_)));
        assert!(matches!(out(0), Out::Idle));
    }

    #[test]
    fn an_outbox_that_is_too_full_wakes_its_stream_to_tell_it_and_holds_nothing() {
        let (outbox, mut taker, woken) =
            (Outbox::new(2), Taker::default(), Arc::new(CountingWaker::default()));
        let waker = Waker::from(woken.clone());
        let mut out = || outbox.take(&mut taker, 9, 999, &Context::from_waker(&waker));
        assert!(matches!(out(), Out::Idle));
        (0..5).for_each(|channel| outbox.push_decided(channel));
        assert_eq!((woken.wake_count(), outbox.len()), (1, 0));
        assert!(matches!(out(), Out::Overfull));
    }
}
