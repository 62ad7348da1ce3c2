//! The kill test: what a client was told stands, however often the server is killed (SPEC F8a, F11).
//!
//! A [`Round`](RoundPlan) starts a real server on a folder, puts it under load with hundreds of small instances, kills it
//! with SIGKILL at random moments, also while it recovers, and starts it again on the same folder. The clients go on by
//! themselves. What each of them was told is written down outside the server ([`Fact`]); in the end it is compared with
//! the history that the server shows ([`check`]), and the judge judges every instance.
//!
//! | module | what |
//! | --- | --- |
//! | `plan` | what a round does, drawn from its seed |
//! | `outage` | the plan of a server that is started again days later |
//! | `server` | the server as a process: started, killed, started again |
//! | `fault` | the plan of a round for a cluster: which faults befall servers and members of etcd; what they hit |
//! | `cluster` (feature `cluster`) | the servers of a cluster and its etcd, and what befalls them: as processes, or simulated |
//! | `fail_over` | how long clients wait for another owner |
//! | `clocks` | programs whose clocks are ahead |
//! | `facts` | what clients were told |
//! | `instance`, `unary` | the clients of one instance |
//! | `check`, `violation` | the facts against the final history; what can go wrong |
//! | `round`, `run` | one round; many of them |
//! | `result` | what was counted, for people and for programs; the folder of a run |

mod check;
mod clocks;
#[cfg(feature = "cluster")]
mod cluster;
mod cluster_plan;
mod facts;
mod fail_over;
mod fault;
mod instance;
mod lateness;
mod observer;
mod options;
mod outage;
mod plan;
mod result;
mod round;
mod run;
mod server;
mod unary;
mod violation;

pub use self::check::{Checked, Evidence, check};
#[cfg(feature = "cluster")]
pub use self::cluster::{ClusterServers, Machines, client_of_all, server_name};
pub use self::facts::{Fact, MemberStatus};
pub use self::fail_over::FailOver;
pub use self::fault::{ClusterSize, Fault, FaultKind, Hit, Stale};
pub use self::instance::{CONNECTIONS, RETRIES, Site};
pub use self::options::CrashOptions;
pub use self::plan::{InstancePlan, Kill, Load, RoundPlan, Waiting};
pub use self::result::{CrashResult, RoundCounts, RoundResult, table};
pub use self::round::play_round;
pub use self::run::{HAS_CLUSTER, run};
pub use self::server::{CREATOR, Server, ServerProgram};
pub use self::violation::{Violation, ViolationKind};
