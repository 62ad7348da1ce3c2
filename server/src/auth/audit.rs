//! The audit log of identities: admitted principals with their proofs, and refusals with their reasons.
//!
//! These are lines of the server's log with a target of their own, [`TARGET`], so that `--log` can send them
//! away or keep them alone. Like all lines they are limited by kind, and a line tells how many more there
//! were.

use std::fmt::Display;
use std::net::SocketAddr;

use super::certificate::ClientIdentity;
use super::token_cache::VerifiedToken;

/// The target of these lines.
macro_rules! target {
    () => {
        "stickycas_server::audit"
    };
}

/// A client has proven its principal by a certificate.
pub(crate) fn certificate_admitted(identity: &ClientIdentity, address: SocketAddr) {
    let (principal, serial) = (identity.principal.as_str(), &identity.serial);
    tracing::info!(target: target!(), %address, principal, serial, "admitted by certificate");
}

/// A client has shown no certificate that proves a principal.
pub(crate) fn handshake_refused(reason: &dyn Display, address: SocketAddr) {
    tracing::warn!(target: target!(), %address, %reason, "handshake refused");
}

/// A client has proven a principal for which there is nothing to do here.
pub(crate) fn unexpected(principal: &str, address: SocketAddr) {
    tracing::warn!(target: target!(), %address, principal, "not expected: closed");
}

/// A token has proven a principal, on a connection or at a moment where it had not done so.
pub(crate) fn token_admitted(token: &VerifiedToken, address: SocketAddr) {
    let (principal, key_id, expires) = (token.principal.as_str(), &token.key_id, token.expires);
    tracing::info!(target: target!(), %address, principal, key_id, expires, "admitted by token");
}

/// A call has no credentials that prove a principal.
pub(crate) fn call_refused(reason: &dyn Display, address: SocketAddr) {
    tracing::warn!(target: target!(), %address, %reason, "call refused");
}

/// The proof of a client does not count any more: its connection or its stream ends.
pub(crate) fn ended(what: &str, principal: &str, reason: &dyn Display) {
    tracing::warn!(target: target!(), principal, %reason, "{what} ended");
}

/// Other credentials are in force.
pub(crate) fn generation(number: u64) {
    tracing::info!(target: target!(), generation = number, "new credentials are in force");
}
