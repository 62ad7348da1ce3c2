//! Exhaustive search of small instances: every state of the real machine that any adversary can reach.
//!
//! A [`Setup`] fixes n, p, r and the append window. [`search`] then tries everything else: which processes
//! are Byzantine, what the others propose, which warp comes next, what each Byzantine process does in each
//! phase, which append is accepted first, and, if the setup says so, which processes miss their first phases
//! and when the server restarts. [`tasks`] lists the searches that decide each claim of SPEC.
//!
//! # What is real
//! A state holds a clone of [`crate::machine::Machine`], one [`crate::process::View`] with
//! [`crate::process::Correct`] for each correct process, and a clone of [`crate::invariants::Invariants`], to
//! which every event is shown. A transition schedules a warp for the next phase and sends the machine the
//! accesses of its members, in an order of acceptance, by which `first_come` arbitrates. Patience and pace
//! are a nanosecond: a phase opens when the search says so, and a member without an access misses it. No rule
//! is written down here a second time. Only the schedule differs: machine and invariants have a
//! `ScriptedSchedule`, so that there can be orders that no scheduler of W1 and W2 makes.
//!
//! # What is checked
//! In every state: all rules of [`crate::invariants`]; that the entries which correct processes hold stand in
//! the list; under `first_access`, that each decision is the mode of the sealed list (D1); agreement (V1), if
//! the setup asks for it; the time to decide (D2), where the order is round-based; that no correct process is
//! accused (B3); and the promise of strong validity (V3).
//!
//! # Which cases are treated as one, and why that is right
//! Each reduction but the first two is checked by a test against a search that does without it.
//!
//! 1. *The kinds of processes are chosen when their warp has its first phase.* Before, no process has done
//!    anything that depends on its kind.
//! 2. *Correct processes are always ready*, but for the first phases that they may miss. A process is not
//!    awaited any more after the join timeout or after its first phase: both have the same effect (F3, F5).
//! 3. *A state is what its key says.* Left out are numbers of phases and accesses, the winner of an entry,
//!    kept answers, counts of offences: no answer of the machine and no decision of a process depends on
//!    them.
//! 4. *Warps of one size are interchangeable, and so are members of one warp.* The machine uses their numbers
//!    only to look up which warp a phase belongs to. (The arbiters that rank processes choose among the same
//!    winners as `first_come`, of which all are tried.)
//! 5. *A lean adversary appends only where it wins, and reads where it does not.* An append that loses, a
//!    read and silence leave the same list; and after the window one append stands for all.
//! 6. *For validity a list is its counts, and from round 2 on one order of warps is enough.* Only the mode of
//!    the sealed list matters.
//!
//! 7. *A restart leaves no trace but in time.* Which members are away, and until when, is not in the key: it
//!    moves the moments at which patience is spent, and no other answer or decision.
//!
//! One order is not tried: that a warp passes because no member is ready, and has the very next phase that is
//! executed. Phases pass only while an access waits (F4), and that access is of another warp.
//!
//! # Why not stateright
//! It could hold the machine. But it identifies states by hashes of 64 bits, so a collision hides a state
//! without a trace, where the keys here are exact; it brings threads, a clock and a web server, which this
//! crate must not have; and there are hundreds of small searches here, not a large one. The loop that remains
//! is short.

mod check;
mod claims;
mod key;
mod search;
mod search_state;
mod setup;
mod successors;
#[cfg(test)]
mod tests;

pub use self::check::ValidityOutcome;
pub use self::claims::{Claim, Expected, Task, section_9, tasks};
pub use self::search::{SearchOrder, SearchResult, Witness, search};
pub use self::search_state::RuleViolation;
pub use self::setup::{Action, Transition};
pub use self::setup::{Adversary, ProcessKind, ScheduleClass, Setup, SetupError};
