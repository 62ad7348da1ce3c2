//! An ordered log (atomic broadcast) and leader election among members of whom some are Byzantine, on
//! instances of StickyCAS. All of it is on the side of the client: the server has no rule for it.
//!
//! ```no_run
//! use stickycas_client::Client;
//! use stickycas_log::{Member, Reader, Series};
//!
//! # async fn example() -> Result<(), stickycas_log::LogError> {
//! let client = Client::builder("http://127.0.0.1:7420").principal("ann").connect().await?;
//! let log = Series::new(&client, "orders")?;
//! let (member, driver) = Member::join(&log).await?;
//! tokio::spawn(driver.run());
//! let place = member.append("one tea").await?;
//! println!("in slot {}", place.slot);
//! for delivered in Reader::new(&log, 1).read().await? {
//!     println!("{} from member {}", String::from_utf8_lossy(&delivered.value), delivered.member);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The log
//! The slots of a log are the instances of a [`Series`], which its coordinator creates ahead
//! ([`Series::coordinate`]), with append rounds as many as a warp has members (q = p, SPEC section 12). A
//! slot delivers its whole sealed list, in the order of the list. So a log has a total order without gaps: a
//! sealed list never changes (SPEC A3), and no slot is passed over. Every correct member that acts in time
//! gets its value into the slot, however many members are Byzantine (K1, K2); a member that is late there
//! appends its value again in a later slot, and only when the first list is sealed without it. Appends and
//! [`Reader::read`] are linearizable.
//!
//! A slot begins when a member appends in it. The others append there too as soon as it is their next slot, a
//! marker if they have no value; readers drop markers. Up to [`MAX_WINDOW`] slots are in flight at a time. A
//! member has one life at a time: of two, the one that finds the other ends ([`LogError::Replaced`]), and its
//! appends may be in the log or not.
//!
//! **What a Byzantine member can do**: anything to its own entries. It appends what it likes, also a copy of
//! the value of another member, which then stands there as its own ([`Delivered::member`] is the identity
//! that the server has checked); it begins slots for nothing; it withholds its entry, or is silent. **What it
//! cannot do**: make a gap, reorder entries, show different ones to different readers, remove or replace
//! those of others, keep correct members from appending, or have more than one entry in a slot. The
//! coordinator is trusted: it chooses the roster, and may close a slot before all have appended.
//!
//! **What liveness costs.** A member that has not joined holds each slot up for
//! [`join_timeout`](SeriesSpec::join_timeout), one that joins and is silent for
//! [`patience`](SeriesSpec::patience), both at worst for the sum; several of them wait together, and so do
//! the slots of a window. So with a dead member a log has at most `window / join_timeout` slots in a second,
//! and an append takes as long. Shorter times make a correct but slow member late, which costs it another
//! slot and nothing else. A member sends its entry up to q times in a slot, since an append may have to be
//! repeated in each round; a [`Reader::read`] costs a list of all instances that the caller may see, 0.1 s
//! for 3,000. A log needs its coordinator, which is one principal for ever: while it is away, the log ends
//! with the slots of the window; nothing is lost, unless it is away for longer than the retention (10 min):
//! begin another log then, with another name. It needs the server as every instance does.
//!
//! **How long it lasts.** A server keeps a finished instance for its retention (10 min) and forgets an idle
//! one after its idle lifetime (1 h), which the coordinator prolongs. Who comes later than that gets
//! [`LogError::Forgotten`], and needs the state from another reader.
//!
//! # Election
//! The epochs of an [`Election`] are the instances of a series too. A member supports itself or another one;
//! the leader is the decision (Algorithm 1). What is promised is what validity promises (SPEC K3): while `f *
//! (|Vc| + 1) < n`, the leader was supported by a correct member; if all correct ones support the same, `2 *
//! f < n` is enough. `Vc` are those that correct members support, and `f` counts the Byzantine members and
//! the late: an epoch ends without those who support nobody in time, so every member waits for it to begin
//! ([`Election::begun`]). Beyond that, all still agree on the same leader, or that there is none. A leader
//! that is dead or proves to be Byzantine is replaced in the next epoch, which any member begins; who misses
//! an epoch learns the outcome ([`Election::current`]).

mod election;
mod error;
mod member;
pub mod order;
mod reader;
mod series;

pub use self::election::{Elected, Election, elected};
pub use self::error::LogError;
pub use self::member::{Member, MemberDriver};
pub use self::order::{Delivered, Place};
pub use self::reader::Reader;
pub use self::series::{MAX_WINDOW, Series, SeriesSpec};
