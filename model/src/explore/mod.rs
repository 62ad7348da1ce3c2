//! Exhaustive search of small instances: every state of the real machine that any adversary can reach.
//!
//! A [`Setup`] fixes n, p, r and the append window. [`search`] then tries everything else: who is Byzantine, who
//! proposes what, which warp comes next, what each Byzantine process does in each phase, whose append is accepted
//! first, and, where asked, who misses its first phases. [`tasks`] lists the searches that decide each claim of SPEC.
//!
//! # What is real
//! A state holds a clone of [`crate::machine::Machine`], one [`crate::process::View`] with
//! [`crate::process::Correct`] for each correct process, and a clone of [`crate::invariants::Invariants`], to which
//! every event is shown. A step gives the next phase to a warp and sends the machine the accesses of its members, in
//! an order of acceptance, by which `first_come` arbitrates; patience and pace of a nanosecond let it open when the
//! search says so, and pass whoever has nothing ready. Nothing of the rules is written down here a second time. The
//! one seam is the schedule: the calendar of the machine is given phase by phase, so that there can be orders that no
//! scheduler of W1 and W2 makes.
//!
//! # What is checked
//! In every state: all rules of [`crate::invariants`]; that what correct processes hold stands in the list; under
//! `first_access`, that each decision is the mode of the sealed list (D1); agreement (V1), unless the setup passes it
//! over; the time to decide (D2), where the order is round-based; that nobody correct is accused (B3), and that the
//! promise of strong validity is kept (V3).
//!
//! # What is taken together, and why that is right
//! Each line but the first two is checked by a test against a search that does without it.
//!
//! 1. *Roles are chosen when a warp has its first phase.* Before, no process has done anything that depends on them.
//! 2. *Correct processes are always ready*, but for the first phases that they may miss. To be given up on at the join
//!    timeout and in the first phase come to the same: the process is not awaited (F3, F5).
//! 3. *A state is what its key says.* Left out are numbers of phases and accesses, who won an entry, answers
//!    kept, offences counted: the machine answers nothing by them, and the processes decide nothing by them.
//! 4. *Warps of one size are interchangeable, and so are members of one warp.* The machine knows their numbers, and uses
//!    them only to look up whose phase it is. (The arbiters that rank processes choose among the same
//!    winners as `first_come`, of which all are tried.)
//! 5. *A lean adversary appends only where it wins, and reads where it does not.* An append that loses, a read and
//!    silence leave the same list; and of what comes when the window is over, one append stands for all.
//! 6. *For validity a list is its counts, and from round 2 on one order of warps is enough.* Only the mode of the
//!    sealed list is asked for.
//!
//! One thing is not tried: that a warp passes because nobody in it is ready, and has the very next phase that is
//! executed. Phases pass only while something waits (F4), and what waits is of another warp.
//!
//! # Why not stateright
//! It would carry the machine. But it tells states apart by hashes of 64 bits, so a collision hides a state without a
//! trace, where the keys here are exact; it brings threads, a clock and a web server, which this crate must do
//! without; and there are hundreds of small searches here, not a large one. What is left to write is a loop.

mod check;
mod claims;
mod key;
mod search;
mod setup;
mod steps;
#[cfg(test)]
mod tests;
mod world;

pub use self::check::ValidityOutcome;
pub use self::claims::{Claim, Expected, Task, section_9, tasks};
pub use self::search::{SearchOrder, SearchResult, Witness, search};
pub use self::setup::{Adversary, ProcessKind, ScheduleClass, Setup, SetupError};
pub use self::steps::{Action, Transition};
pub use self::world::RuleViolation;
