//! Load: many instances at once, timed and judged.
//!
//! A load run is a measurement and a correctness run in one. Whole instances are played as a [`Profile`]
//! says, in a closed loop (so many under way) or an open one (arrivals by a schedule that nothing shifts);
//! latencies count from the planned start. Every instance is judged from what its processes saw, and of a
//! share of them the server's whole history is put before the judge.
//!
//! | where | what |
//! | --- | --- |
//! | `profile/` | the load as a file, with flags in the place of keys |
//! | `arrivals` | when instances begin in an open loop |
//! | `instance_generator` | seed and proposals of each instance |
//! | `attach_codec/` | the client's side of Attach without the generated types |
//! | `engine/` | plays the instances: pacing, connections, one instance from its start to its verdict |
//! | `recorder` | second by second: sums, rows for plots, the HDR log |
//! | `measure`, `figures` | histograms by label; percentiles, counts and rates by name |
//! | `observations` | the judge of every instance, by the observations of its processes |
//! | `verdicts` | the verdict of all of them together |
//! | `result` | the result, which all formats start from |
//! | `server` | the facts of the server, and its counts meanwhile |
//! | `merge`, `baseline` | results of several generators as one; a result beside an earlier one |
//! | `limit` | the highest rate at which conditions hold |
//! | `fail_if` | conditions under which a run has failed |
//! | `report/` | the formats of a result, and of a search for the limit |

pub mod arrivals;
pub mod attach_codec;
pub mod baseline;
pub mod engine;
pub mod fail_if;
pub mod figures;
mod instance_generator;
pub mod limit;
pub mod measure;
pub mod merge;
pub mod observations;
pub mod profile;
pub mod recorder;
pub mod report;
pub mod result;
pub mod server;
pub mod verdicts;

pub use self::engine::{LoadOutcome, LoadProgress, run, run_at};
pub use self::profile::Profile;
pub use self::result::{LoadResult, Measurement};
