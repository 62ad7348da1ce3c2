//! Puts a load on a server: begins instances as the profile says, and waits for their ends.
//!
//! | where | what |
//! | --- | --- |
//! | `run`, `state` | the course of a load; the state that its instances share |
//! | `pacer` | a thread that says when instances begin in an open loop |
//! | `instance` | one instance from its planned start to its verdict |
//! | `instance_state`, `process_task` | its processes: how they ended; one of them |
//! | `client_pool`, `stream`, `unary` | principals and carriers of accesses; `shared`: their common part |
//!
//! Nothing waits for ever: connections, calls and instances without progress are given up after the profile's
//! `stall`, and an end of the load cuts off what is left after `drain`.

mod client_pool;
mod instance;
mod instance_state;
mod pacer;
mod process_task;
mod run;
mod shared;
mod sleep;
mod state;
mod stream;
mod unary;

pub use self::run::{CutShort, LoadOutcome, LoadProgress, run};
