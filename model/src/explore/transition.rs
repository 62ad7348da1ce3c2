//! One phase of a run, as the search chooses it.

use super::setup::ProcessKind;
use crate::types::{ProcessId, WarpId};

/// What a process does with its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A correct process: what Algorithm 1 says.
    Follow,
    /// A Byzantine process: appends the value with this index.
    Append(u8),
    /// A Byzantine process: reads.
    Read,
}

/// One phase. A member of the warp that is not named has no access ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The warp of the phase.
    pub warp: WarpId,
    /// What its members are, if it is the warp's first phase.
    pub kinds: Vec<(ProcessId, ProcessKind)>,
    /// The accesses of the phase, in the order of acceptance.
    pub accesses: Vec<(ProcessId, Action)>,
    /// The server restarts when so many of the accesses were accepted (F3).
    pub restart: Option<usize>,
}
