//! What a run leaves behind, one file per format, and what the reports of other crates are made of.

pub mod folder;
pub mod html;
pub mod json;
pub mod table;
