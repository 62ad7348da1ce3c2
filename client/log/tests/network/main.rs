//! Log and election over real sockets, against a real server.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test helper fails the test"
)]

mod election;
mod kills;
mod linearizable;
mod members;
mod support;
