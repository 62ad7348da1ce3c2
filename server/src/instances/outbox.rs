//! What waits to be sent on one Attach stream.
//!
//! Instances put frames in, whoever's task they run on; the stream takes them out in batches. The two meet at
//! one short lock, and the stream is woken once however many frames there are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use prost::Message as _;
use stickycas_proto::v1::ServerFrame;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    frames: Vec<ServerFrame>,
    /// Accesses of this stream that are accepted and not answered.
    pending: usize,
    overfull: bool,
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
        self.put(frame.into(), 0);
    }

    /// Puts in the answer to an access that was expected.
    pub(crate) fn answer(&self, frame: impl Into<ServerFrame>) {
        self.put(frame.into(), 1);
    }

    fn put(&self, frame: ServerFrame, answered: usize) {
        let mut state = self.state();
        state.pending = state.pending.saturating_sub(answered);
        if state.frames.len() >= self.limit {
            state.overfull = true;
            state.frames.clear();
        }
        if !state.overfull {
            state.frames.push(frame);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How many frames wait to be taken out.
    pub(crate) fn len(&self) -> usize {
        self.state().frames.len()
    }

    /// Takes out at most `limit` frames, and of those no more than fit into `bytes`, but one at least; registers
    /// the task to be woken if there are none.
    pub(crate) fn take(&self, limit: usize, bytes: usize, cx: &Context<'_>) -> Out {
        let mut state = self.state();
        if state.overfull {
            return Out::Overfull;
        }
        if state.frames.is_empty() {
            if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            return if state.pending == 0 { Out::Idle } else { Out::Nothing };
        }
        let count = how_many(state.frames.iter().map(ServerFrame::encoded_len), limit, bytes);
        if state.frames.len() == count {
            return Out::Frames(std::mem::take(&mut state.frames));
        }
        let rest = state.frames.split_off(count);
        Out::Frames(std::mem::replace(&mut state.frames, rest))
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
