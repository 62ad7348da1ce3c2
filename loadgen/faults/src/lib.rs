//! The kill test: every answer to a client stays true, however often the server is killed (SPEC F8a, F11).
//!
//! A [`Round`](RoundPlan) starts a real server on a folder, puts it under load with hundreds of small
//! instances, kills it with SIGKILL at random moments, also while it recovers, and starts it again on the
//! same folder. The clients go on by themselves. All answers and events that they receive are recorded
//! outside the server ([`Fact`]); in the end they are compared with the server's history ([`check`]), and the
//! judge judges every instance.
//!
//! | module | what |
//! | --- | --- |
//! | `plan` | the plan of a round, drawn from its seed |
//! | `outage` | the plan of a server that is started again days later |
//! | `server` | the server as a process: started, killed, started again |
//! | `fault` | the plan of a round for a cluster: the faults of servers and members of etcd; their effects |
//! | `cluster` (feature `cluster`) | the servers of a cluster and its etcd, and their faults: as processes, or simulated |
//! | `fail_over` | how long clients wait for another owner |
//! | `clocks` | programs whose clocks are ahead |
//! | `facts` | the answers and events that clients received |
//! | `instance`, `unary` | the clients of one instance |
//! | `check`, `violation` | the comparison of the facts with the final history; the kinds of violations |
//! | `round`, `run` | one round; many of them |
//! | `result` | the counts, for people and for programs; the folder of a run |

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
