//! The server over the network: generated clients and raw HTTP/2 against a server of their own in each test.

// A test that finds what it does not expect is to end.
#![allow(clippy::unwrap_used)]

mod harness;

mod attach;
mod border;
mod cancellation;
mod counts;
mod credentials;
mod disconnects;
mod draining;
mod floods;
mod handshakes;
mod lifecycle;
mod limits;
mod offences;
mod operators;
mod program;
mod program_backups;
mod program_credentials;
mod program_data;
mod program_folders;
mod program_operations;
mod quotas;
mod refusals;
mod restarts;
mod slow_disk;
mod unary_calls;
mod watch;
