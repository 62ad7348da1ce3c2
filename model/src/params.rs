//! The parameters of one instance, checked once (SPEC P1 to P4; paper, Table 1).
//!
//! A [`ParamsSpec`] is a request; [`Params::try_new`] checks it and makes a [`Params`], which is always
//! valid. All that is derived from the parameters (W, c, the warp of a process) is computed here and nowhere
//! else.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::{ProcessId, RawValue, Seed, Value, WarpId};

/// The most processes an instance may have (P1).
pub const MAX_PROCESSES: u32 = 65_536;
/// Default for the most bytes of a value (P3).
pub const DEFAULT_MAX_VALUE_BYTES: u32 = 1024;
/// The largest `max_value_bytes` that is allowed.
pub const LARGEST_MAX_VALUE_BYTES: u32 = 64 * 1024;
/// Default for a process's patience (F3).
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(1);
/// Default for the join timeout (F5).
pub const DEFAULT_JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Default for the pace (F9).
pub const DEFAULT_PACE: Duration = Duration::ZERO;
/// Default for how many accesses of one process may wait (F7).
pub const DEFAULT_PIPELINE: u32 = 16;
/// The largest pipeline bound that is allowed.
pub const LARGEST_PIPELINE: u32 = 1024;
/// The longest patience, join timeout or pace that is allowed.
pub const LONGEST_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// The order of the warps in a round (W1, W2). Each is fair: one phase per warp and round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Round robin by increasing warp number (paper, assumption (a)).
    #[default]
    Ascending,
    /// Round robin by decreasing warp number, the other order that the paper names.
    Descending,
    /// Each round a fresh permutation drawn from the seed. Beyond the paper.
    Shuffled,
}

impl Order {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Ascending, Self::Descending, Self::Shuffled];
}

/// Which append of a phase wins (A4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arbiter {
    /// The one that the machine accepted first.
    #[default]
    FirstCome,
    /// The one with the lowest hash of (seed, phase, process): equal chances for all.
    Uniform,
    /// The first in this order of processes; those not named come behind, by number.
    Priority(Vec<ProcessId>),
}

/// When a process may append (A2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppendWindow {
    /// A warp may append only in its own first q phases; the list is sealed when every warp has had them
    /// (K1).
    #[default]
    FirstAccess,
    /// Any phase may append until n entries stand: the paper as printed.
    Open,
}

impl AppendWindow {
    /// Both.
    pub const ALL: [Self; 2] = [Self::FirstAccess, Self::Open];
}

/// The total time for which phases may be held open because of one process (F3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Patience {
    /// This long, over the life of the instance.
    Finite(Duration),
    /// Without end (`none`): for tests and proofs.
    Endless,
}

impl Default for Patience {
    fn default() -> Self {
        Self::Finite(DEFAULT_PATIENCE)
    }
}

/// Parameters as requested, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParamsSpec {
    /// n, the number of processes.
    pub processes: u32,
    /// p, the number of processes in a warp.
    pub warp_size: u32,
    /// r, the most entries that one read returns.
    pub read_size: u32,
    /// The order of warps in a round.
    pub order: Order,
    /// The seed of the shuffled order and the uniform arbiter.
    pub seed: Seed,
    /// The arbiter of appends in one phase.
    pub arbiter: Arbiter,
    /// When appends count.
    pub append_window: AppendWindow,
    /// q, the number of a warp's phases in which it may append under `first_access` (K1).
    pub append_rounds: u32,
    /// Patience of each process.
    pub patience: Patience,
    /// How long phase 1 waits, from the first join, for all to join.
    pub join_timeout: Duration,
    /// A phase opens no earlier than this after the last step.
    pub pace: Duration,
    /// The most accesses of one process that may wait, and the number of answers kept for it.
    pub pipeline: u32,
    /// The most bytes of a value.
    pub max_value_bytes: u32,
}

impl ParamsSpec {
    /// n, p and r with every default.
    #[must_use]
    pub fn new(processes: u32, warp_size: u32, read_size: u32) -> Self {
        Self {
            processes,
            warp_size,
            read_size,
            order: Order::default(),
            seed: Seed::default(),
            arbiter: Arbiter::default(),
            append_window: AppendWindow::default(),
            append_rounds: 1,
            patience: Patience::default(),
            join_timeout: DEFAULT_JOIN_TIMEOUT,
            pace: DEFAULT_PACE,
            pipeline: DEFAULT_PIPELINE,
            max_value_bytes: DEFAULT_MAX_VALUE_BYTES,
        }
    }
}

/// Why parameters are refused. Each message names the fault and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// n is 0 or too large.
    #[error("n = {0} processes: give 1 to {MAX_PROCESSES}")]
    Processes(u32),
    /// p is 0 or above n.
    #[error("warp size p = {warp_size}: give 1 to n = {processes}")]
    WarpSize {
        /// p as requested.
        warp_size: u32,
        /// n.
        processes: u32,
    },
    /// r is 0 or above n.
    #[error("read size r = {read_size}: give 1 to n = {processes}")]
    ReadSize {
        /// r as requested.
        read_size: u32,
        /// n.
        processes: u32,
    },
    /// q is 0 or above p.
    #[error("append rounds q = {append_rounds}: give 1 to p = {warp_size}")]
    AppendRounds {
        /// q as requested.
        append_rounds: u32,
        /// p.
        warp_size: u32,
    },
    /// q is above 1 in a window that has no rounds.
    #[error("append rounds q = {0}: give 1, or the append window first_access")]
    OpenAppendRounds(u32),
    /// The priority order names a process that does not exist.
    #[error("priority arbiter: there is no process {process} among n = {processes}")]
    UnknownPriority {
        /// The process named.
        process: ProcessId,
        /// n.
        processes: u32,
    },
    /// The priority order names a process twice.
    #[error("priority arbiter: process {0} is named twice")]
    RepeatedPriority(ProcessId),
    /// A duration is too long, or must not be zero and is.
    #[error("{name} = {given:?}: give {least:?} to {LONGEST_DURATION:?}")]
    Duration {
        /// The name of the parameter.
        name: &'static str,
        /// The requested duration.
        given: Duration,
        /// The shortest that is allowed.
        least: Duration,
    },
    /// The pipeline bound is 0 or too large.
    #[error("pipeline = {0}: give 1 to {LARGEST_PIPELINE}")]
    Pipeline(u32),
    /// The value limit is 0 or too large.
    #[error("max_value_bytes = {0}: give 1 to {LARGEST_MAX_VALUE_BYTES}")]
    MaxValueBytes(u32),
}

/// Why bytes are not a value of this instance (P3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// No bytes at all: the paper's NULL.
    #[error("the value is empty: give at least one byte")]
    Empty,
    /// More bytes than the instance allows.
    #[error("the value has {length} bytes: this instance takes at most {limit}")]
    TooLarge {
        /// Bytes given.
        length: usize,
        /// `max_value_bytes` of the instance.
        limit: u32,
    },
}

/// The parameters of an instance, always valid (P4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Params(ParamsSpec);

impl Params {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn try_new(spec: ParamsSpec) -> Result<Self, ParamsError> {
        let processes = spec.processes;
        if !(1..=MAX_PROCESSES).contains(&processes) {
            return Err(ParamsError::Processes(processes));
        }
        if !(1..=processes).contains(&spec.warp_size) {
            return Err(ParamsError::WarpSize { warp_size: spec.warp_size, processes });
        }
        if !(1..=processes).contains(&spec.read_size) {
            return Err(ParamsError::ReadSize { read_size: spec.read_size, processes });
        }
        if !(1..=spec.warp_size).contains(&spec.append_rounds) {
            let (append_rounds, warp_size) = (spec.append_rounds, spec.warp_size);
            return Err(ParamsError::AppendRounds { append_rounds, warp_size });
        }
        if spec.append_window == AppendWindow::Open && spec.append_rounds > 1 {
            return Err(ParamsError::OpenAppendRounds(spec.append_rounds));
        }
        if let Arbiter::Priority(order) = &spec.arbiter {
            check_priority(order, processes)?;
        }
        if let Patience::Finite(patience) = spec.patience {
            check_duration("patience", patience, Duration::ZERO)?;
        }
        check_duration("join_timeout", spec.join_timeout, Duration::from_nanos(1))?;
        check_duration("pace", spec.pace, Duration::ZERO)?;
        if !(1..=LARGEST_PIPELINE).contains(&spec.pipeline) {
            return Err(ParamsError::Pipeline(spec.pipeline));
        }
        if !(1..=LARGEST_MAX_VALUE_BYTES).contains(&spec.max_value_bytes) {
            return Err(ParamsError::MaxValueBytes(spec.max_value_bytes));
        }
        Ok(Self(spec))
    }

    /// The parameters one by one, with every default filled in.
    #[must_use]
    pub fn spec(&self) -> &ParamsSpec {
        &self.0
    }

    /// n, the number of processes.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.0.processes
    }

    /// p, the number of processes in a warp; the last warp may be smaller.
    #[must_use]
    pub fn warp_size(&self) -> u32 {
        self.0.warp_size
    }

    /// r, the most entries that one read returns.
    #[must_use]
    pub fn read_size(&self) -> u32 {
        self.0.read_size
    }

    /// W = ceil(n/p), the number of warps and so the number of phases in a round.
    #[must_use]
    pub fn warps(&self) -> u32 {
        self.0.processes.div_ceil(self.0.warp_size)
    }

    /// q, the number of a warp's phases in which it may append under `first_access` (K1).
    #[must_use]
    pub fn append_rounds(&self) -> u32 {
        self.0.append_rounds
    }

    /// T, the most entries that a decision counts: of each warp as many as it has append rounds or members,
    /// whichever are fewer (SPEC section 12). W for q = 1.
    #[must_use]
    pub fn counted_entries(&self) -> u32 {
        let whole = self.warps() - 1;
        let in_last = self.0.processes - whole * self.0.warp_size;
        whole * self.0.append_rounds + in_last.min(self.0.append_rounds)
    }

    /// c = ceil(T/r), the reads that a correct process needs for a full list.
    #[must_use]
    pub fn reads(&self) -> u32 {
        self.counted_entries().div_ceil(self.0.read_size)
    }

    /// The most entries that can ever stand in the list: T under `first_access`, n under `open` (A1, A2, K1).
    #[must_use]
    pub fn list_limit(&self) -> u32 {
        match self.0.append_window {
            AppendWindow::FirstAccess => self.counted_entries(),
            AppendWindow::Open => self.0.processes,
        }
    }

    /// The same with another seed. Every number is a seed, so there is nothing to check.
    #[must_use]
    pub fn with_seed(&self, seed: Seed) -> Self {
        Self(ParamsSpec { seed, ..self.0.clone() })
    }

    /// Whether this process is one of the n.
    #[must_use]
    pub fn contains(&self, process: ProcessId) -> bool {
        process.get() <= self.0.processes
    }

    /// The warp of a process: ceil(i/p) (P1).
    #[must_use]
    pub fn warp_of(&self, process: ProcessId) -> WarpId {
        // Counted from 0 it is one division.
        WarpId::from_index(process.index() / self.0.warp_size as usize).unwrap_or(WarpId::FIRST)
    }

    /// The processes of a warp, in order.
    pub fn members(&self, warp: WarpId) -> impl DoubleEndedIterator<Item = ProcessId> + Clone + use<> {
        let first = (warp.get() - 1) * self.0.warp_size + 1;
        let last = (first - 1 + self.0.warp_size).min(self.0.processes);
        (first..=last).filter_map(ProcessId::new)
    }

    /// These bytes as a value of this instance (P3).
    ///
    /// # Errors
    /// When there are none or too many.
    pub fn value(&self, bytes: &[u8]) -> Result<Value, ValueError> {
        self.check_length(bytes)?;
        Value::new(bytes).ok_or(ValueError::Empty)
    }

    /// Raw bytes as a value of this instance (P3).
    ///
    /// # Errors
    /// When it has no bytes or too many.
    pub fn checked(&self, raw: RawValue) -> Result<Value, ValueError> {
        self.check_length(raw.as_bytes())?;
        raw.into_value().ok_or(ValueError::Empty)
    }

    fn check_length(&self, bytes: &[u8]) -> Result<(), ValueError> {
        let (length, limit) = (bytes.len(), self.0.max_value_bytes);
        if length > limit as usize { Err(ValueError::TooLarge { length, limit }) } else { Ok(()) }
    }
}

fn check_priority(order: &[ProcessId], processes: u32) -> Result<(), ParamsError> {
    let mut named = BTreeSet::new();
    for &process in order {
        if process.get() > processes {
            return Err(ParamsError::UnknownPriority { process, processes });
        }
        if !named.insert(process) {
            return Err(ParamsError::RepeatedPriority(process));
        }
    }
    Ok(())
}

fn check_duration(name: &'static str, given: Duration, least: Duration) -> Result<(), ParamsError> {
    if (least..=LONGEST_DURATION).contains(&given) {
        Ok(())
    } else {
        Err(ParamsError::Duration { name, given, least })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(processes: u32, warp_size: u32, read_size: u32) -> Params {
        Params::try_new(ParamsSpec::new(processes, warp_size, read_size)).unwrap()
    }

    #[test]
    fn the_last_warp_may_be_smaller() {
        let params = params(7, 3, 2);
        assert_eq!((params.warps(), params.reads()), (3, 2));
        let warps: Vec<u32> = ProcessId::all(7).map(|process| params.warp_of(process).get()).collect();
        assert_eq!(warps, [1, 1, 1, 2, 2, 2, 3]);
        let last: Vec<u32> = params.members(WarpId::new(3).unwrap()).map(ProcessId::get).collect();
        assert_eq!(last, [7]);
    }

    #[test]
    fn each_bad_parameter_is_named() {
        let refused = |change: fn(&mut ParamsSpec)| {
            let mut spec = ParamsSpec::new(4, 2, 2);
            change(&mut spec);
            Params::try_new(spec).unwrap_err().to_string()
        };
        assert_eq!(refused(|spec| spec.processes = 0), "n = 0 processes: give 1 to 65536");
        assert_eq!(refused(|spec| spec.warp_size = 5), "warp size p = 5: give 1 to n = 4");
        assert_eq!(refused(|spec| spec.read_size = 0), "read size r = 0: give 1 to n = 4");
        assert_eq!(refused(|spec| spec.append_rounds = 0), "append rounds q = 0: give 1 to p = 2");
        assert_eq!(refused(|spec| spec.append_rounds = 3), "append rounds q = 3: give 1 to p = 2");
        let in_open = |spec: &mut ParamsSpec| {
            (spec.append_window, spec.append_rounds) = (AppendWindow::Open, 2);
        };
        assert_eq!(refused(in_open), "append rounds q = 2: give 1, or the append window first_access");
        assert_eq!(refused(|spec| spec.pipeline = 0), "pipeline = 0: give 1 to 1024");
        let twice = |spec: &mut ParamsSpec| {
            spec.arbiter = Arbiter::Priority(vec![ProcessId::FIRST, ProcessId::FIRST]);
        };
        assert_eq!(refused(twice), "priority arbiter: process 1 is named twice");
        assert!(refused(|spec| spec.join_timeout = Duration::ZERO).starts_with("join_timeout = 0ns"));
    }

    #[test]
    fn a_value_has_one_byte_to_the_limit() {
        let params = params(1, 1, 1);
        assert_eq!(params.value(b""), Err(ValueError::Empty));
        assert!(params.value(&[0; 1024]).is_ok());
        assert_eq!(params.value(&[0; 1025]), Err(ValueError::TooLarge { length: 1025, limit: 1024 }));
    }
}
