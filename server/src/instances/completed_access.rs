//! The answer to an executed access, on its way to the session or call that waits for it.
//!
//! The answer to a read is a few numbers and a reference to the list. Its entries are looked up when the answer is
//! encoded, without the machine and its lock, since entries never change (SPEC A3, R2). So an answer that nobody
//! fetches takes the same little memory, however many entries it names.

use std::sync::Arc;

use stickycas_model::access::Answer;
use stickycas_model::machine::Entry;
use stickycas_model::sticky_cas::StickyCas;
use stickycas_model::types::{Phase, Position};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CompletedAccess {
    /// The phase in which the access was executed; `None`: outside phases (F10).
    pub(crate) phase: Option<Phase>,
    /// What the access returned.
    pub(crate) answer: Answer,
    /// The list that a read refers to; `None` for an append, which returns no entries.
    list: Option<Arc<StickyCas<Entry>>>,
}

impl CompletedAccess {
    /// An executed access of the instance with this list.
    pub(crate) fn new(phase: Option<Phase>, answer: Answer, list: &Arc<StickyCas<Entry>>) -> Self {
        let list = matches!(answer, Answer::Read(_)).then(|| list.clone());
        Self { phase, answer, list }
    }

    /// The values that a read returned, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let (start, count) = match self.answer {
            Answer::Read(read) => (read.start.get(), read.count),
            Answer::Append(_) => (0, 0),
        };
        let entries = self.list.iter().flat_map(move |list| list.range(Position::new(start), count));
        entries.map(|entry| entry.value.as_bytes())
    }
}
