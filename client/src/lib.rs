//! A client of StickyCAS: plays one process of an instance, or sets up and observes instances.
//!
//! A correct process is one call. It proposes a value, takes part in every phase of its warp as Algorithm 1
//! of the paper says, and returns the decision and the entries that it was decided from:
//!
//! ```no_run
//! use stickycas_client::Client;
//!
//! # async fn example() -> Result<(), stickycas_client::Error> {
//! let client = Client::builder("http://127.0.0.1:7420").principal("ann").connect().await?;
//! let decision = client.propose("demo", "tea").await?;
//! println!("{} from {:?}", decision.value, decision.from);
//! # Ok(())
//! # }
//! ```
//!
//! A coordinator creates the instance first, and an observer watches it to its end:
//!
//! ```no_run
//! use stickycas_client::Client;
//! use stickycas_client::watch::{WatchFrom, Watched};
//!
//! # async fn example() -> Result<(), stickycas_client::Error> {
//! let client = Client::builder("http://127.0.0.1:7420").principal("alice").connect().await?;
//! let created = client.create_instance().name("demo").roster(["ann", "bob", "eve"]).send().await?;
//! let mut watch = client.watch(created.instance.id, WatchFrom::Start);
//! while let Some(watched) = watch.try_next().await? {
//!     if let Watched::Event(index, recorded) = watched {
//!         println!("{index} {:?}", recorded.event);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`Client`]: connect, [`propose`](Client::propose), [`play`](Client::play) for Byzantine processes too,
//!   and every single operation.
//! - [`CreateInstance`]: the parameters of a new instance. [`info`]: an instance and its status.
//! - [`watch`]: the events of an instance, as a stream. [`counts`]: the server's counts of its callers'
//!   conduct.
//! - [`error`] and [`retry`]: the errors of calls, whether a call may have happened, when to ask again.
//! - [`Client::report`]: telling the judge of a run how a process has ended.
//!
//! The types of values, phases, parameters and events are those of the crates `stickycas_model` and
//! `stickycas_proto`; this crate exports all that stand in its signatures.
//!
//! # Clusters
//! Where several servers share the instances, give [`ClientBuilder::server`] their addresses. Each operation
//! goes to the owner of its instance, as servers tell it (`NOT_OWNER`), over one connection to each owner; an
//! owner of an older epoch than a known one is ignored, and at most [`MAX_REDIRECTS`] redirects are followed
//! without a pause. When an owner dies or loses an instance, the same access goes with the same number to the
//! next one. While there is none, and while a server is down, the client asks the others, with pauses.
//! [`Client::list`] and [`Client::counts`] ask all servers.
//!
//! # Retries
//! Every access carries the process's own number, so asking again is the same access (SPEC F8). A lost reply
//! or a broken connection therefore never makes a process fail or append twice. Retries are bounded by the
//! time without progress ([`RetryPolicy`]), and end at once where they cannot help: an instance that the
//! server has lost stays lost (F11).

mod address;
mod builder;
mod client;
mod cluster;
mod cluster_info;
mod connection;
mod convert;
pub mod counts;
mod create;
mod credentials;
mod driver;
pub mod error;
pub mod info;
mod operations;
pub mod retry;
mod servers;
mod table;
mod tokens;
pub mod watch;

pub use stickycas_model::access::{AppendAnswer, Op};
pub use stickycas_model::byzantine::Strategy;
pub use stickycas_model::history::{Event, OffenceKind, Recorded};
pub use stickycas_model::judge::Outcome;
pub use stickycas_model::machine::State;
pub use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
pub use stickycas_model::process::{Behaviour, ProcessEnd, Report};
pub use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, Time, Value, WarpId};
pub use stickycas_proto::convert::member_state::MemberState;
pub use stickycas_proto::convert::report::ProcessReport;
pub use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
pub use stickycas_proto::status::{Owner, RefusalDetails};
/// The reasons of refusals: the closed list of SPEC section 11. The enum is the one of the wire format, since
/// each reason and its two answers stand once.
pub use stickycas_proto::v1::RefusalReason;

pub use self::builder::ClientBuilder;
pub use self::client::{Client, Decision};
pub use self::cluster::MAX_REDIRECTS;
pub use self::cluster_info::{ClusterInfo, ClusterServer, OwnedShard};
pub use self::connection::{DEFAULT_KEEP_ALIVE, KEEP_ALIVE_OF_CLUSTER};
pub use self::convert::IntoInstance;
pub use self::create::{CreateInstance, Created};
pub use self::credentials::Credentials;
pub use self::driver::{LAST_MOMENT, Played, ProcessSpec};
pub use self::error::{Error, Refusal};
pub use self::operations::{Appended, InstanceEnd, Read, WaitMode};
pub use self::retry::RetryPolicy;
pub use self::servers::Listed;
pub use self::table::{TablePage, TablePlace, TableQuery};
pub use self::watch::{Watch, WatchFrom, Watched};

/// The connection with its generated clients, for programs of this project that send what no client sends:
/// the wire attacks and the load generator. Its types are those of tonic, and it may change at any time.
#[doc(hidden)]
pub mod raw {
    pub use crate::connection::{ClientConfig, Connection, Identified, Identify};
    pub use crate::driver::Told;
}
