//! A recorded run as frames: the machine goes through it again, so that at each phase it can be asked whom it
//! waits for.

use std::sync::Arc;

use bytes::Bytes;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::Machine;
use stickycas_model::params::Params;
use stickycas_model::sim::replay_observed;
use stickycas_model::types::Time;

use crate::frame::{Framer, Now};

/// The most events in one frame.
const EVENTS: usize = 4_096;

/// A frame as it is sent.
#[derive(Clone, Debug)]
pub struct EncodedFrame {
    /// The index behind its last event.
    pub next: u64,
    /// Its JSON.
    pub json: Bytes,
}

/// The frames of a whole history: one for each phase, and one wherever time passes. Where the machine does
/// not do what the history says, the frames from there on have no state.
#[must_use]
pub fn frames(params: &Arc<Params>, history: &[Recorded]) -> Vec<EncodedFrame> {
    let mut states: Vec<(usize, Now)> = Vec::new();
    // A difference is no error here: `stickycas-loadgen replay` is there to tell it.
    let _ = replay_observed(params, history, &mut |index: usize, machine: &Machine, at: Time| {
        if is_end_of_frame(history, index) {
            states.push((index, Now::new(params, &machine.status(at), at)));
        }
    });
    let mut framer = Framer::new(params, 0);
    let mut states = states.into_iter().peekable();
    let mut frames = Vec::new();
    let mut first = 0;
    for end in 1..=history.len() {
        if !is_end_of_frame(history, end) && end - first < EVENTS {
            continue;
        }
        while states.peek().is_some_and(|(index, _)| *index < end) {
            states.next();
        }
        let now = states.next_if(|(index, _)| *index == end).map(|(_, now)| now);
        let frame = framer.frame(params, &history[first..end], now);
        let json = serde_json::to_vec(&frame).expect("a frame is plain data").into();
        frames.push(EncodedFrame { next: framer.next_index(), json });
        first = end;
    }
    frames
}

/// Whether a frame ends before the event with this index: before each step, and at the end.
fn is_end_of_frame(history: &[Recorded], index: usize) -> bool {
    let Some(next) = history.get(index) else { return true };
    matches!(next.event, Event::Stepped { .. })
        || index.checked_sub(1).is_some_and(|last| history[last].at < next.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_recorded_is_no_frame() {
        let params = Params::try_new(stickycas_model::params::ParamsSpec::new(4, 2, 2)).unwrap();
        assert!(frames(&Arc::new(params), &[]).is_empty());
    }
}
