//! A whole run in one thread: the same machine that the server runs, and the same processes that the clients
//! run, under a virtual clock. A seed repeats it event by event.
//!
//! The order of arrival, which a network decides, is drawn here: of all messages that processes have ready, the next
//! one to arrive is drawn at random, as long as there is any. So within the rules of the machine every order of
//! acceptance can come up. Messages take no time and none is lost; only waiting does: when nothing is left to arrive,
//! the clock jumps to the machine's next deadline.
//!
//! [`run`] keeps the whole history. A [`Simulator`] makes one run after another in the same memory and can do
//! without: then a [judge](crate::judge::StreamingJudge) reads the events and only the
//! [`VerdictSummary`](crate::judge::VerdictSummary) is left.
//!
//! Connections break only where the server restarts ([`run_with_restarts`]). Those that break one by one and clients that
//! restart are left out: [`crate::player`] covers them, and runs over the network show them.

mod plan;
mod replay;
mod sim_run;
mod simulator;

pub use self::plan::{SimPlan, SimRestart};
pub use self::replay::{Difference, replay, replay_observed};
pub use self::simulator::{SimOutcome, Simulator, run, run_with_restarts};
