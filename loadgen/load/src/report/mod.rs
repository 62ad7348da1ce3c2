//! The formats of the result of a load, and of a search for the limit.
//!
//! | where | what |
//! | --- | --- |
//! | `table` | for people, in a terminal |
//! | `folder` | everything, in a folder |
//! | `page` | for people, with plots |
//! | `progress_view` | how it stands while it runs |
//! | `json_lines`, `metrics` | the same for programs, and for Prometheus |
//! | `words` | times, numbers, conditions and the outcome in words |
//! | `limit`, `limit_page` | a search for the limit in words; for people, with plots |

pub mod folder;
pub mod json_lines;
pub mod limit;
mod limit_page;
pub mod metrics;
mod page;
pub mod progress_view;
pub mod table;
mod words;
