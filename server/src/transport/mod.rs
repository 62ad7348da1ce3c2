//! From TCP to calls: accepting connections, HTTP/2, deadlines, the bodies of requests and responses, and draining.

mod connection;
mod connection_io;
mod deadline;
mod drain;
mod goaway;
mod permit_body;
mod request_body;
mod serve;

pub(crate) use connection::Connection;
pub(crate) use deadline::DeadlineLayer;
pub(crate) use drain::{Drain, WaitForDrain};
pub(crate) use permit_body::permit_body;
pub(crate) use request_body::{BodyState, DecodeFailure, LimitedBody, oversized, undecodable};
pub(crate) use serve::serve;
