//! A client of StickyCAS: one process of an instance, or a person who looks at it.
//!
//! A correct process is one call. It proposes a value, takes part in every phase of its warp as Algorithm 1 of
//! the paper says, and comes back with the decision and what it was decided from:
//!
//! ```no_run
//! use stickycas_client::{Client, Target};
//! use stickycas_model::types::Value;
//!
//! # async fn example() -> Result<(), stickycas_client::Error> {
//! let client = Client::connect(Target::new("http://127.0.0.1:7420", "p1")?).await?;
//! let instance = client.find("demo").await?;
//! let proposal = Value::new(b"apple").expect("it is not empty");
//! let decision = client.propose(instance, proposal).await?;
//! println!("{} from {:?}", decision.value, decision.from);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Client`]: connect, [`propose`](Client::propose), [`play`](Client::play) for Byzantine processes too, and
//!   every operation by hand.
//! - [`driver`]: performs the model's [`Player`](stickycas_model::player::Player) on a stream, across broken
//!   connections.
//! - [`info`]: an instance and how it stands, as a client sees it. [`watch`]: what happens at it, as it happens.
//! - [`wire_attack`]: what a Byzantine process does below the protocol.
//! - [`counts`]: what the server has counted of its callers' conduct.
//! - [`error`] and [`retry`]: what can go wrong, whether it may have happened, whether and when to ask again.
//! - [`Client::report`]: telling the judge of a run how a process has ended.
//! - [`cli`]: the command line, callable from other programs.
//!
//! # Retries
//! Every access carries the process's own number, so asking again is the same access (SPEC F8). A lost reply or
//! a broken connection therefore never makes a process fail or append twice. Retries are bounded by the time
//! without progress ([`RetryPolicy`]), and end at once where they cannot help: an instance that the server has
//! lost stays lost (F11).

pub mod cli;
mod client;
pub mod connection;
pub mod counts;
pub mod driver;
pub mod error;
mod hand;
pub mod info;
mod over;
pub mod record;
mod report;
pub mod retry;
pub mod watch;
pub mod wire_attack;

pub use client::{Client, Decision};
pub use connection::{Connection, Target};
pub use driver::{Conduct, Played};
pub use error::Error;
pub use hand::{Appended, Read};
pub use record::PlayRecord;
pub use retry::RetryPolicy;
