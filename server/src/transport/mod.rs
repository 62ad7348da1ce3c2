//! Connections: accepting them, whose they are, their end, and the bodies of requests and responses.

mod accept;
mod connection;
mod deadline;
mod drain;
mod last_words;
mod permit_body;
mod request_body;

pub(crate) use accept::accept;
pub(crate) use connection::Connection;
pub(crate) use deadline::DeadlineLayer;
pub(crate) use drain::{Drain, WaitForDrain};
pub(crate) use permit_body::PermitBody;
pub(crate) use request_body::{BodyState, DecodeFailure, LimitedBody, oversized, undecodable};
