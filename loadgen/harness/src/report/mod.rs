//! The files of a run folder, one per format, and the parts of the reports of other crates.

pub mod folder;
pub mod html;
pub mod json;
pub mod table;
