//! Errors and gRPC statuses (SPEC section 11), the one place for them.
//!
//! A refusal of the model or an error of a conversion becomes an [`RpcRefusal`] (`from_errors`), which has a
//! [`RefusalReason`](crate::v1::RefusalReason). The reason alone decides about the gRPC code, about "may it
//! have happened?" and about "may I retry?" (`code`). An [`RpcRefusal`] travels as a [`tonic::Status`] with
//! `google.rpc` details, or as a frame on Attach, and reads back from both (`rpc_refusal`). No match here has
//! a wildcard.

mod code;
mod from_errors;
mod rpc_refusal;

pub use self::rpc_refusal::{ERROR_DOMAIN, Owner, RefusalDetails, RpcRefusal};
