//! The server over the network: generated clients and raw HTTP/2 against a server of their own in each test.

mod harness;

mod attach;
mod binary;
mod limits;
mod living;
mod refusals;
mod stopping;
mod vanishing;
mod watch;
