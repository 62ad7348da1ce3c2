//! The formats of the result of a load, and of a search for the limit.
//!
//! | where | what |
//! | --- | --- |
//! | `table` | for people, in a terminal |
//! | `folder` | everything, in a folder |
//! | `page` | for people, with plots |
//! | `progress_view` | how it stands while it runs |
//! | `limit`, `limit_page` | a search for the limit, in words and in a folder; for people, with plots |

pub mod folder;
pub mod limit;
mod limit_page;
mod page;
pub mod progress_view;
pub mod table;

use crate::Measurement;
use crate::limit::Limit;

/// The page of a load.
#[must_use]
pub fn html(measured: &Measurement) -> String {
    page::page(measured).into_string()
}

/// The page of a search for the limit.
#[must_use]
pub fn limit_html(limit: &Limit, name: &str) -> String {
    limit_page::page(limit, name).into_string()
}
