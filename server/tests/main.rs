//! The server over the network: generated clients and raw HTTP/2 against a server of their own in each test.

// A test that finds something else than it expects is to end.
#![allow(clippy::unwrap_used)]

mod harness;

mod attach;
mod binary;
mod calls;
mod counts;
mod limits;
mod living;
mod offences;
mod refusals;
mod shares;
mod stopping;
mod vanishing;
mod watch;
