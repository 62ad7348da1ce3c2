//! The formats of the result of a load.
//!
//! | where | what |
//! | --- | --- |
//! | `table` | for people, in a terminal |
//! | `folder` | everything, in a folder |
//! | `live` | how it stands while it runs |
//! | `limit` | a search for the limit, in words and in a folder |
//! | [`html_of_load`](super::html_of_load()), [`html_of_limit`](super::html_of_limit()) | for people, with plots |

pub mod folder;
pub mod limit;
pub mod live;
pub mod table;
