//! What a run leaves behind, one file per format.

pub mod folder;
mod html;
pub mod json;
pub mod table;

pub use self::html::html;
