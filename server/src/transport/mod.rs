//! From TCP to calls: accepting connections, HTTP/2, deadlines, and the bodies of requests and responses.

mod acceptor;
#[cfg(feature = "otlp")]
mod call_span;
mod connection;
mod connection_io;
mod fair_queue;
mod frame_headers;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod grpc_timeout;
mod handshake;
mod http2;
mod listener;
mod message_framing;
mod permit_body;
mod request_body;
mod serve;
mod silent_client;
mod unclaimed;
mod windows;
mod work_time;

pub use acceptor::{ClientAcceptor, ProvenClient};
#[cfg(feature = "otlp")]
pub(crate) use call_span::CallSpans;
pub(crate) use connection::Connection;
pub(crate) use grpc_timeout::{GrpcTimeout, refuse_malformed_timeout};
pub use listener::{Listener, listen};
pub(crate) use listener::{Security, accept_in_turns};
pub(crate) use message_framing::PREFIX;
pub(crate) use permit_body::{HeldAnswer, ResponseHold, held_body, too_many_unread};
pub(crate) use request_body::{BodyState, DecodeFailure, LimitedBody, RequestLimits, oversized};
pub(crate) use serve::{GrpcListener, serve};
pub(crate) use unclaimed::{Pool, PoolLimits, Source};
