//! The language of the files: scenarios, load profiles, campaigns and plans of perturbations.
//!
//! All of them are TOML, describe an instance by the same `[instance]` table and its Byzantine processes by
//! the same `[[faults]]` table, and take `--set KEY=VALUE` in the place of their keys. Their schemas are
//! generated ([`schema_of`]). A file is read in two steps: `Source::read` merges the settings into the file's
//! tables and gives the file as it is written, with the place of every value; a check makes of it what can be
//! run. An error names its line, or the setting that it came from.

mod error;
pub mod faults;
pub mod instance;
mod plain_words;
pub mod schema;
mod settings;
mod source;
mod spanned;
pub mod values;

pub use self::error::{Fault, FileError, Problem, SettingError};
pub use self::schema::schema_of;
pub use self::settings::Settings;
pub use self::source::Source;
pub use self::spanned::Spanned;

/// The largest seed: the largest integer of a TOML file.
pub const LARGEST_SEED: u64 = i64::MAX as u64;

/// A seed from the operating system, short enough to be typed.
#[must_use]
pub fn draw_seed() -> u64 {
    u64::from(rand::random::<u32>())
}
