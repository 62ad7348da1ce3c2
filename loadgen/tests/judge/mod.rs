//! The judge of processes that others have started: real servers, real clients as their command line starts
//! them, in any order, with a server or a judge that goes away in the middle.

// Helpers of tests are tests, but clippy cannot tell.
#![allow(clippy::unwrap_used)]

mod certificates;
#[allow(dead_code, reason = "the tests of the client use the rest")]
#[path = "../../../client/tests/network/support.rs"]
mod client_support;
mod external_run;
mod losses;
mod program;
mod reports;
mod verdicts;
