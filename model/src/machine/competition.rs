//! The appends of a phase, which name the same position: they compete for it on the list, and at most one
//! wins (SPEC A1, A4, A5).

use crate::access::AppendAnswer;
use crate::params::{Arbiter, Params};
use crate::scheduler::arbiter_hash;
use crate::types::{AccessNumber, Phase, ProcessId, Value};

use super::list::{Entry, List};
use super::queues::OptionalSession;

/// An append that competes in the phase.
#[derive(Clone, Debug)]
pub(super) struct CompetingAppend {
    pub(super) process: ProcessId,
    pub(super) number: AccessNumber,
    pub(super) session: OptionalSession,
    pub(super) value: Value,
    /// The append's place in the order of acceptance.
    pub(super) accepted: u64,
    /// Whether it takes no part in who wins though the window is open, as its process has won before (K1).
    pub(super) excluded: bool,
    /// `LimitReached` until the append competes, which it does only inside the append window (A2).
    pub(super) answer: AppendAnswer,
}

/// The rank of each process under a `priority` arbiter, else empty: the named processes in their order, the
/// others behind (A4).
#[derive(Clone, Debug)]
pub(super) struct ArbiterRanks(Box<[u32]>);

impl ArbiterRanks {
    pub(super) fn new(params: &Params) -> Self {
        let Arbiter::Priority(order) = &params.spec().arbiter else { return Self(Box::default()) };
        let named = u32::try_from(order.len()).unwrap_or(u32::MAX);
        let mut ranks: Box<[u32]> =
            (0..params.processes()).map(|index| named.saturating_add(index)).collect();
        for (rank, process) in (0..).zip(order) {
            ranks[process.index()] = rank;
        }
        Self(ranks)
    }

    /// Puts the appends of the phase in the order in which they compete (A4). Only the first that takes part
    /// can win, so the order of the others does not matter.
    pub(super) fn arrange(&self, params: &Params, phase: Phase, appends: &mut [CompetingAppend]) {
        let seed = params.spec().seed;
        let appending = appends.iter().enumerate().filter(|(_, append)| !append.excluded);
        let first = match params.spec().arbiter {
            Arbiter::FirstCome => appending.min_by_key(|(_, append)| append.accepted),
            Arbiter::Uniform => appending
                .min_by_key(|(_, append)| (arbiter_hash(seed, phase, append.process), append.process)),
            Arbiter::Priority(_) => appending.min_by_key(|(_, append)| self.0[append.process.index()]),
        };
        if let Some((first, _)) = first {
            appends.swap(0, first);
        }
    }
}

/// The appends of a phase compete on the list itself, in the order in which they stand. The others fail.
pub(super) fn compete(phase: Phase, list: &List, appends: &mut [CompetingAppend]) {
    let turn = list.turn();
    for CompetingAppend { process, value, answer, excluded, .. } in appends.iter_mut() {
        *answer = match excluded {
            true => AppendAnswer::Failed,
            false => turn.append(Entry { value: value.clone(), process: *process, phase }),
        };
    }
}
