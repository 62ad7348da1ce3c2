//! The client of etcd, the only one of the workspace: what [`Store`](crate::store::Store) asks, and the state
//! of the members.
//!
//! It is written over tonic and messages that are compiled as everywhere else in the workspace. The crate
//! `etcd-client` offers the same and more, but its build needs `protoc`; and whether a failed request has
//! taken effect is decided here, in one table (the module `failure`), from what etcd's sources say.
//!
//! - A request is sent once. The exception: etcd refuses a token before it looks at the request, so a new
//!   token is fetched and the request is sent again, once.
//! - After a failure the *next* request goes to the next endpoint of the configuration, and the next one to
//!   the same endpoint on a new connection, for which the files of the credentials are read again. So are
//!   those of the user for each new token.
//! - Every request has a time limit. When it has passed, nobody knows whether a write has taken effect.
//! - Requests carry `hasleader`: a member that is cut off from the majority refuses them at once, and ends
//!   its watches.
//!
//! Tested with etcd 3.4.

mod auth;
mod client;
mod config;
mod convert;
mod endpoints;
mod failure;
mod requests;
mod watch;

pub use client::Client;
pub use config::{Config, ConfigError, Identity, Tls, User};
pub use watch::EtcdWatch;

/// The generated messages and clients, of `proto/etcd.proto`: a subset of etcd's API.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic, clippy::all)]
pub mod wire {
    tonic::include_proto!("etcdserverpb");
}
