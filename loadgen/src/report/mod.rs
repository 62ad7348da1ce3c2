//! What a run leaves behind, one file per format.

pub mod batch;
pub mod campaign;
pub mod campaign_table;
pub mod folder;
mod html;
pub mod json;
pub mod load;
pub mod table;
pub mod words;

pub use self::html::{html, limit as html_of_limit, load as html_of_load};
