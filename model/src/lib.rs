//! StickyCAS, free of I/O: the object, the warp scheduler that guards it, the consensus algorithm on it, and
//! the judge of its runs.
//!
//! # The paper
//! Georgiou, Piduguralla and Peri, "Byzantine-Tolerant Consensus in GPU-Inspired Shared Memory". Its model
//! (section 2): n processes in warps of p; time is a sequence of phases, each of which admits one warp; a
//! fair scheduler, which no process can influence, chooses it. Its object (section 4): a list to which at
//! most one value is added per phase and in which nothing ever changes. Its algorithm (Algorithm 1): a
//! process appends its proposal in its first phase, then reads the list, r entries a phase, and decides the
//! most frequent value. Its theorem: up to f Byzantine processes cannot make the decision theirs while
//! f(|Vc|+1)p < n.
//!
//! # What is where
//! | to read about | look into |
//! | --- | --- |
//! | parameters and scalars | [`params`], [`types`], [`seed_text`] |
//! | phases and rounds (section 2) | [`scheduler`] |
//! | the object (section 4, Algorithm 2) | [`sticky_cas`] |
//! | one instance over time | [`machine`], [`access`], [`history`], [`counts`]; [`compact_codec`] |
//! | Algorithm 1, and processes that do not follow it | [`process`], [`entries`], [`player`], [`byzantine`], [`ground_truth`] |
//! | the theorem and the verdict on a run | [`bounds`], [`predicates`], [`invariants`], [`detection`], [`judge`] |
//! | events in words, for people | [`describe`] |
//! | whole runs in one thread | [`sim`], [`random`] |
//!
//! # What is pure about it
//! No socket, no clock, no thread, no randomness of the system: moments, seeds and arrivals are inputs. The
//! server, the simulator and the judge share this code, so there is no second version that could differ.
//!
//! Rules are cited by the ids of `docs/theory/spec.md` (P1, F3, A2, ...).

pub mod access;
pub mod bounds;
pub mod byzantine;
pub mod compact_codec;
pub mod counts;
pub mod describe;
pub mod detection;
pub mod entries;
pub mod explore;
pub mod ground_truth;
pub mod history;
pub mod invariants;
pub mod judge;
pub mod machine;
pub mod params;
pub mod player;
pub mod predicates;
pub mod printable;
pub mod process;
pub mod random;
pub mod scheduler;
pub mod seed_text;
pub mod sim;
pub mod sticky_cas;
mod sync;
pub mod types;
