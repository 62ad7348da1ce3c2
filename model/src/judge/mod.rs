//! The judge: the verdict of a run (SPEC V1 to V5, B3, D2).
//!
//! [`judge`] compares the ground truth of a run (its [`GroundTruth`](crate::ground_truth::GroundTruth) and
//! [`Expectations`]) with the evidence: the history of the instance, and the reports of the correct
//! processes. The report of a Byzantine process counts for nothing (V5). Whether a correct process follows
//! Algorithm 1 is judged by the history: by the accesses that it has of the process, and by the entries that
//! it shows the process was given (D1).
//!
//! The verdict as a whole is the first that applies of
//! - **violation**, a bug of ours: a promised property broke, or a rule of SPEC; a correct process was
//!   accused, or missed a phase for which its access had been accepted in time, or decided a value that
//!   Algorithm 1 does not decide; or an attacker is not on record with an offence of the closed list that it
//!   was observed to commit.
//! - **unknown**, since the assignment of roles is false: a correct process that others started did not act
//!   as Algorithm 1 says. Only a rule that the server broke comes before.
//! - **outside**: a property broke that was not promised. The witness shows how.
//! - **unknown**: the run proves nothing: something happened that the plan does not name, or something that
//!   it names did not happen, or the history is incomplete.
//! - **valid**.
//!
//! A process that the plan kills, pauses or restarts without memory is faulty: it counts in f, and neither
//! its proposal nor its decision is judged.
//!
//! A correct process that has not decided breaks termination if the server owed it an answer: the history has
//! an access of it accepted and never answered, and its own report says that it waited for this answer on a
//! session that stood. If it failed for another reason, nobody can say whether it would have decided:
//! termination is neither held nor violated, and the run proves nothing.

mod algorithm;
mod analysis;
mod case;
mod evidence;
mod explain;
mod properties;
mod rules;
mod streaming;
mod table;
mod value_counts;
mod verdict;
mod verdict_builder;

pub use self::case::{Case, Expectations};
pub use self::explain::{
    Breach, DecisionGroup, Explanation, FaultReason, FaultyProcess, ServerRestart, WonEntry, explain,
};
pub use self::streaming::{Finding, StreamingJudge, VerdictSummary};
pub use self::value_counts::{Margin, ValueCount, ValueCounts};
pub use self::verdict::{Decision, Observed, Outcome, VERDICT_VERSION, Verdict};
pub use self::verdict_builder::judge;
pub use crate::bounds::Property;
