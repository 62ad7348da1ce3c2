//! The judge: what a run proves (SPEC V1 to V5, B3, D2).
//!
//! [`judge`] holds the ground truth of a run (its [`Cast`] and [`Expectations`]) against what was seen of it: the history
//! of the instance, and what the correct processes report of themselves. What a Byzantine process says about
//! itself counts for nothing (V5).
//!
//! The whole verdict is the first that applies of
//! - **violation**: a promised property broke, or a rule of SPEC, or a correct process was accused, or missed
//!   a phase that it was in time for, or decided what Algorithm 1 does not decide, or a culprit got away: it was
//!   seen to commit an offence of the closed list, and that is not on record. A bug of ours.
//! - **outside**: a property broke that nobody promised. The witness shows how.
//! - **unknown**: the run proves nothing: something happened that the plan does not name, or did not
//!   happen that it names, or the history is incomplete.
//! - **valid**.
//!
//! A process that the plan kills, pauses or restarts without memory is faulty: it counts in f, and neither its
//! proposal nor its decision is judged. Whether a correct process that died or gave up would have decided
//! cannot be said; it makes the run prove nothing, and termination is judged without it, unless the history
//! shows that it had all the accesses that it needed.

mod analysis;
mod case;
mod evidence;
mod explain;
mod judging;
mod properties;
mod rules;
mod streaming;
mod summary;
mod table;
mod value_counts;
mod verdict;

pub use self::case::{Case, Expectations};
pub use self::explain::{Breach, DecisionGroup, Explanation, FaultReason, FaultyProcess, WonEntry, explain};
pub use self::judging::judge;
pub use self::streaming::StreamingJudge;
pub use self::summary::{Finding, VerdictSummary};
pub use self::value_counts::{Margin, ValueCount, ValueCounts};
pub use self::verdict::{Decision, Observed, Outcome, Property, VERDICT_VERSION, Verdict};
