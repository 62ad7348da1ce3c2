//! One instance: the scheduler, the list and the admission of accesses, as a state machine without I/O.
//!
//! # What it is
//! The paper's model (section 2) in which a phase admits one warp, and the StickyCAS object (section 4) that the
//! warp's members access in lock step, brought to processes that arrive when they like. A [`Machine`] takes one
//! [`Input`] and the time, and does all that follows from it in one synchronous step: it never waits, never reads a
//! clock and nothing is half done between two inputs. The results come out as [`Event`](crate::history::Event)s in
//! order; a caller that waits for an access finds its answer among them.
//!
//! Each kind of input has a method of its own, such as [`Machine::access`], which returns what its sender is answered
//! at once. [`Machine::apply`] takes them all, for a replay.
//!
//! # Time
//! All that was due before the moment of an input happens first. What is due exactly then is not yet overdue: an
//! access that arrives at the very end of its process's patience is in time (F3), unless a [`Machine::tick`] of the
//! same moment came first. Should a moment be earlier than the last one, no time has passed.
//!
//! # Restarts of a server
//! A server that keeps a log replays the inputs ([`Machine::take_changed`] says which it must log,
//! [`Machine::take_counts`] what of the others counts), from a [`Checkpoint`] on, and compares what they lead to
//! ([`OutcomeDigest`]). Then it tells the machine that it has restarted ([`Machine::restart`]): no patience drains until
//! the processes had time to reconnect. That is an input like all others.
//!
//! # How phases go
//! ```text
//!  gathering --- all joined, or join timeout (F5) ---> running
//!  running:   no access waits .......... no phase is open, no phase passes (F4)
//!             an access waits .......... pass over the phases of warps in which no member is awaited
//!                                        and no access waits (F4); wait for the pace (F9); open the
//!                                        next phase
//!             open, a member missing ... its patience drains; spent: it is not awaited any more (F3)
//!             open, none missing ....... the step: appends compete, reads read (F2, A1 to A5, R1);
//!                                        if by now no access waits in the warp, the phase passes (F4)
//!  running --- every process left ---> finished          any --- creator closes ---> closed (F10)
//! ```
//!
//! # What it costs
//! An access costs a constant number of operations, whatever n, p and W are: warps keep tallies of their
//! members, so no member is searched for. Three things cost more, and happen rarely: the end of
//! gathering looks at all n once; a timer that fires looks at the members of one warp; and a jump over
//! dead warps looks at some words of bits ([`WarpSet`](crate::scheduler::WarpSet)), or takes O(W) per round for the
//! shuffled order.
//!
//! The time is about constant too, because an access uses little memory: of its process half a cache line, in the
//! order of processes, so that a warp is one piece of memory (`member`); of its warp half a line and a place in a
//! queue (`queues`); for the answer that is kept 16 bytes, beside those of neighbours (`answer_cache`).
//! Nothing is allocated for an access; memory grows with the accesses that wait at once (`queues`) and with
//! the access numbers that processes have come to. `docs/benchmarks.md` has the figures.
//!
//! # What is not here
//! Names, roles, connections, retention and idle lifetime belong to the server. The machine knows processes
//! by number and relies on the server for their identities (SPEC section 10).

mod admission;
mod answer_cache;
mod checkpoint;
mod input;
mod member;
mod membership;
mod offences;
mod outcome_digest;
mod phases;
mod queues;
mod restore;
mod snapshot;
mod state;
mod status;
mod step;

pub use self::checkpoint::{Checkpoint, KeptAnswer, MemberCheckpoint, WaitingCheckpoint};
pub use self::input::{Admission, Input, Welcome};
pub use self::member::MemberStatus;
pub(crate) use self::offences::brief_value;
pub use self::offences::{MisbehaviourCounts, OFFENCES_RECORDED, OffenceCount, REFUSALS_RECORDED};
pub use self::outcome_digest::OutcomeDigest;
pub use self::queues::MAX_SESSIONS;
pub use self::restore::CheckpointError;
pub use self::state::{Entry, Machine, State};
pub use self::status::{AwaitedMember, Brief, LeftOut, MemberBrief, Status, WaitingMember};
