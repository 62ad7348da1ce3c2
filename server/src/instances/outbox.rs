//! What waits to be sent on one Attach stream.
//!
//! Instances put frames in, whoever's task they run on; the stream takes them out in batches. The two meet at
//! one short lock, and the stream is woken once however many frames there are.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use prost::Message as _;
use stickycas_model::types::AccessNumber;
use stickycas_proto::v1::ServerFrame;

use super::answered::Answered;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    limit: usize,
}

/// One frame, as it waits.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// Ready to be sent.
    Frame(ServerFrame),
    /// The answer to this access on this channel; becomes a frame when it is sent.
    Answer(u32, AccessNumber, Answered),
}

impl Parcel {
    fn unpack(self) -> ServerFrame {
        match self {
            Self::Frame(frame) => frame,
            Self::Answer(channel, number, answered) => answered.to_frame(channel, number).into(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    parcels: VecDeque<Parcel>,
    /// Accesses of this stream that are accepted and not answered.
    pending: usize,
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
    Frames(Vec<ServerFrame>),
    /// The client has left more frames unread than it may.
    Overfull,
    /// Nothing, and nothing will come unless the client sends more.
    Idle,
    /// Nothing yet.
    Nothing,
}

impl Outbox {
    /// Empty; holds at most `limit` frames.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), limit }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An access of this stream was accepted: its answer is still to come.
    pub(crate) fn expect(&self, answers: usize) {
        self.state().pending += answers;
    }

    /// So many accesses of this stream are answered elsewhere.
    pub(crate) fn expect_no_more(&self, answers: usize) {
        let mut state = self.state();
        state.pending = state.pending.saturating_sub(answers);
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
        self.put(Parcel::Frame(frame.into()), 0);
    }

    /// Puts in the answer once more of an access that is not expected any more.
    pub(crate) fn repeat(&self, channel: u32, number: AccessNumber, answered: Answered) {
        self.put(Parcel::Answer(channel, number, answered), 0);
    }

    /// Puts in the answer to an access that was expected, or why it is withdrawn.
    pub(super) fn answer(&self, parcel: Parcel) {
        self.put(parcel, 1);
    }

    fn put(&self, parcel: Parcel, answered: usize) {
        let mut state = self.state();
        state.pending = state.pending.saturating_sub(answered);
        if state.parcels.len() >= self.limit {
            state.overfull = true;
            state.parcels.clear();
        }
        if !state.overfull {
            state.parcels.push_back(parcel);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How many frames wait to be taken out.
    pub(crate) fn len(&self) -> usize {
        self.state().parcels.len()
    }

    /// How many times frames were taken out: whether the client reads.
    pub(crate) fn taken(&self) -> u64 {
        self.state().taken
    }

    /// Takes out at most `limit` frames, and of those no more than fit into `bytes`, but one at least; registers
    /// the task to be woken if there are none. Only the stream takes out.
    pub(crate) fn take(&self, limit: usize, bytes: usize, cx: &Context<'_>) -> Out {
        let parcels: Vec<Parcel> = {
            let mut state = self.state();
            if state.overfull {
                return Out::Overfull;
            }
            if state.parcels.is_empty() {
                if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                    state.waker = Some(cx.waker().clone());
                }
                return if state.pending == 0 { Out::Idle } else { Out::Nothing };
            }
            state.taken += 1;
            let count = state.parcels.len().min(limit);
            state.parcels.drain(..count).collect()
        };
        // Entries are looked up here, while the instances go on.
        let mut frames = Vec::with_capacity(parcels.len());
        let mut parcels = parcels.into_iter();
        let mut size = 0;
        while let Some(parcel) = parcels.next() {
            let frame = parcel.unpack();
            size += frame.encoded_len();
            if size > bytes && !frames.is_empty() {
                self.put_back(frame, parcels);
                break;
            }
            frames.push(frame);
        }
        Out::Frames(frames)
    }

    /// What does not fit into a message is the beginning of the next.
    fn put_back(&self, first: ServerFrame, rest: impl DoubleEndedIterator<Item = Parcel>) {
        let mut state = self.state();
        rest.rev().for_each(|parcel| state.parcels.push_front(parcel));
        state.parcels.push_front(Parcel::Frame(first));
    }
}

/// How many of these sizes make one message: at most `limit`, no more than fit into `bytes`, but one at least.
pub(crate) fn how_many(sizes: impl Iterator<Item = usize>, limit: usize, bytes: usize) -> usize {
    let mut sum = 0_usize;
    let fitting = sizes.take(limit).take_while(|size| {
        sum += size;
        sum <= bytes
    });
    fitting.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_holds_what_fits_and_one_at_least() {
        assert_eq!(how_many([3, 3, 3].into_iter(), 9, 6), 2);
        assert_eq!(how_many([3, 3, 3].into_iter(), 1, 6), 1);
        assert_eq!(how_many([7, 3].into_iter(), 9, 6), 1);
        assert_eq!(how_many([3, 3, 3].into_iter(), 9, 9), 3);
    }
}
