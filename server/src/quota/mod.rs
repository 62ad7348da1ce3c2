//! The accounts of principals: their quotas and rates, and the counts of their calls and offences.
//!
//! Quotas and rates are per principal, so that none can use up another's (SPEC B1). All that a principal does
//! is counted in its [`Account`]; a call or a connection holds the account and never looks it up again.

/// An enum with all of its values and the name of each, as metrics have it.
macro_rules! named_values {
    ($(#[$about:meta])* $name:ident { $($(#[$about_value:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$about_value])* $value,)*
        }

        impl $name {
            /// All of them, in their order.
            pub(crate) const ALL: [Self; [$($text),*].len()] = [$(Self::$value),*];

            /// The name, as metrics have it.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    };
}

mod account;
mod admission;
mod allowance;
mod buffers;
mod context;
mod counts;
mod ended_calls;
mod frames;
mod known;
mod log_bytes;
mod method;
mod offences;
mod principals;
mod processor;
mod rate;
mod reserve_cache;
mod resources;
mod share;

pub(crate) use account::{Account, ChargedVerification, NoPermit, Permit};
pub(crate) use admission::Bound;
pub(crate) use buffers::BufferedBytes;
pub(crate) use counts::Counter;
pub(crate) use frames::{ConnectionFrames, FRAME_TYPES, FrameType, FramesRead};
pub(crate) use known::KnownPrincipals;
pub(crate) use log_bytes::{LogBytes, RETRY_AFTER};
pub(crate) use method::Method;
pub(crate) use offences::OffenceSink;
pub(crate) use principals::Principals;
pub(crate) use processor::Rounds;
pub(crate) use resources::{Buffer, Quota};
pub(crate) use share::may_take;
