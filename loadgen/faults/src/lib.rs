//! Faults, and what stays true beside them.
//!
//! A [`Plan`] says what is done to which service and when. It is read from a file or drawn from a seed
//! ([`draw`]), and carried out on a [`platform`]: on the containers of a compose project, on processes that
//! are started here, or on machines in virtual time (`loadgen/virtual`).
//!
//! - [`perturb`](fn@perturb) carries out a plan beside the judge of a compose project. The record of the run
//!   must show that the plan hit, and the verdict must be the expected one.
//! - The kill test ([`run`](fn@run), SPEC F8a, F11) starts a real server or cluster, puts it under load with
//!   hundreds of small instances, and carries out a plan that a seed draws. The clients go on by themselves.
//!   All answers and events that they receive are recorded outside the server ([`Fact`]); in the end they are
//!   compared with the server's history ([`check`](fn@check)), and the judge judges every instance.
//!
//! | module | what |
//! | --- | --- |
//! | [`plan`] | the language of plans: steps, moments, services, expectations; files |
//! | [`draw`] | the steps and the instances of a round, drawn from its seed |
//! | [`platform`] | the operations on services: containers, processes, clusters |
//! | `facts` | the answers and events that clients received |
//! | `check`, `violation` | the comparison of facts and expectations with the final history; the kinds of violations |
//! | `round`, `run` | one round of the kill test and its clients; many of them |
//! | `fail_over`, `result` | how long clients wait for another owner; the counts, for people and for programs |
//! | `perturb` | a plan on containers |

mod check;
pub mod draw;
mod facts;
mod fail_over;
mod perturb;
pub mod plan;
pub mod platform;
mod result;
mod round;
mod run;
mod violation;

pub use self::check::{Checked, Evidence, Expected, Observed, check};
pub use self::draw::{ClusterSize, FaultKind, InstancePlan, Load, RoundPlan, Waiting};
pub use self::facts::{Fact, MemberStatus};
pub use self::fail_over::FailOver;
pub use self::perturb::{PlanOutcome, Target, perturb, table as table_of_plans};
pub use self::plan::{Action, Plan, Service, Step, When};
pub use self::platform::processes::ServerProgram;
pub use self::platform::{CREATOR, Hit, Injected, Machines, RETRIES, Server, Stale, server_name};
#[cfg(feature = "cluster")]
pub use self::platform::{ClusterServers, client_of_all, revoke};
pub use self::result::{CrashResult, RoundCounts, RoundResult, table};
pub use self::round::{CONNECTIONS, Site, play_round};
pub use self::run::{CrashOptions, HAS_CLUSTER, run};
pub use self::violation::{Violation, ViolationKind};
