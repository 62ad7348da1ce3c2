//! The client against a real server, over real sockets.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

mod ahead;
mod cluster;
mod connections;
mod examples;
mod identity;
mod impersonation;
mod plays;
mod reload;
mod scripted_server;
mod site;
mod support;
