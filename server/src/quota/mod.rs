//! What the server keeps of each principal: what it may still use, and what it has done so far.
//!
//! Quotas and rates are per principal, so that none can use up another's (SPEC B1). All that a principal does is counted in its
//! [`Account`]; a call or a connection holds the account and never looks it up again.

mod account;
mod context;
mod counts;
mod offence_sink;
mod principals;
mod rate;

pub(crate) use account::{Account, Permit, Quota};
pub(crate) use counts::Counter;
pub(crate) use offence_sink::OffenceSink;
pub(crate) use principals::Principals;
