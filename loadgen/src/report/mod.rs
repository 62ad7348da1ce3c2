//! What a run leaves behind, one file per format.

pub mod campaign_table;
pub mod folder;
pub mod json;
pub mod table;
pub mod words;
