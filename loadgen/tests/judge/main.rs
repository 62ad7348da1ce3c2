//! The judge of processes that others have started: real servers, real clients as their command line starts them,
//! in any order, with a server or a judge that goes away in the middle.

// Helpers of tests are tests, but clippy cannot tell.
#![allow(clippy::unwrap_used)]

#[path = "../client_support/mod.rs"]
mod client_support;
mod crowd;
mod losses;
mod program;
mod reports;
mod verdicts;
