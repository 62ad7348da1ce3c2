//! Starts etcd, and compares stores: for the tests and benchmarks of this crate and of others.
//!
//! A feature and not a crate of its own: it asks the started etcd with the client, and compares stores, so
//! both are of no use without this crate, and nothing of them is in a server.

pub mod conformance;
pub mod etcd;
mod lasting_thread;
