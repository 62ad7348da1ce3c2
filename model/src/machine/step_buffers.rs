//! The accesses of one step, in buffers that every step uses again.

use crate::access::AppendAnswer;
use crate::types::{AccessNumber, Position, ProcessId, Value};

use super::member::DueAccess;
use super::session::OptionalSession;

/// The appends and the reads of a phase.
#[derive(Clone, Debug, Default)]
pub(super) struct StepBuffers {
    pub(super) appends: Vec<CompetingAppend>,
    pub(super) reads: Vec<DueRead>,
}

/// An append that competes in the phase.
#[derive(Clone, Debug)]
pub(super) struct CompetingAppend {
    pub(super) process: ProcessId,
    pub(super) number: AccessNumber,
    pub(super) session: OptionalSession,
    pub(super) value: Value,
    /// The append's place in the order of acceptance.
    pub(super) accepted: u64,
    /// `LimitReached` until the append competes, which it does only inside the append window (A2).
    pub(super) answer: AppendAnswer,
}

/// A read of the phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueRead {
    pub(super) process: ProcessId,
    pub(super) number: AccessNumber,
    pub(super) session: OptionalSession,
    pub(super) start: Position,
}

impl DueRead {
    pub(super) fn new(process: ProcessId, access: DueAccess) -> Self {
        let DueAccess { number, session, content, .. } = access;
        Self { process, number, session, start: Position::new(content) }
    }
}
