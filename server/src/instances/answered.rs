//! An executed access on its way to whoever waits for it.
//!
//! A read's answer is a few numbers and the list that they speak of: its entries are looked up when the answer
//! is sent, without the machine and its lock, for entries never change (SPEC A3, R2). So an answer that nobody
//! fetches costs the same little memory, however many entries it names.

use std::sync::Arc;

use bytes::Bytes;
use stickycas_model::access::Answer;
use stickycas_model::machine::Entry;
use stickycas_model::sticky_cas::StickyCas;
use stickycas_model::types::{AccessNumber, Phase, Position};
use stickycas_proto::convert::answer::answer_frame;
use stickycas_proto::v1;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    /// `None`: outside phases (F10).
    pub(crate) phase: Option<Phase>,
    pub(crate) answer: Answer,
    pub(crate) list: Arc<StickyCas<Entry>>,
}

impl Answered {
    /// The values of the list from a position on.
    pub(crate) fn entries(&self, start: Position) -> impl Iterator<Item = Bytes> {
        self.list.range(start, u32::MAX).map(|entry| entry.value.to_bytes())
    }

    /// As a frame of Attach.
    pub(super) fn to_frame(&self, channel: u32, number: AccessNumber) -> v1::Answer {
        answer_frame(channel, number, self.phase, &self.answer, |start| self.entries(start))
    }
}
