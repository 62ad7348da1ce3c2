//! Log and election in simulation: their pure parts, over instances that are the machine of the model.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test helper fails the test"
)]

mod election;
mod log;
mod world;
