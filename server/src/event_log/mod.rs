//! The events of one instance that are kept for Watch, as few bytes in memory.
//!
//! An [`EventLog`] grows while its instance lives; when the instance has ended the log becomes a
//! [`ArchivedLog`]. Only committed events are in it ([`crate::commit_log`]), so clients may see all of it
//! (SPEC F13).

mod archived;
mod budget;
mod codec;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod read;
mod segments;

pub(crate) use archived::{ArchivedEvents, ArchivedLog, Trailer};
pub(crate) use budget::Budget;
pub(crate) use read::{EventsView, SharedEvents, Truncated, step_of};
pub(crate) use segments::EventLog;
