//! Plans, carried out on containers that are none: what is done to them, seen from the program `docker`, and
//! whole plans beside a real server, a real judge and real clients.
//!
//! `docker` is a script that keeps of each container whether it runs, is paused and is on its network;
//! nothing that is done to a client here has any effect on it. With an engine, `scripts/demo perturb` tries
//! that.
#![cfg(unix)]
// Helpers of tests are tests, but clippy cannot tell.
#![allow(clippy::unwrap_used)]

mod containers;
mod engine;
mod plans;
