//! The language of the files: scenarios, load profiles, campaigns and plans of perturbations.
//!
//! All of them are TOML, describe an instance by the same `[instance]` table and its Byzantine processes by
//! the same `[[faults]]` table, and take `--set KEY=VALUE` in the place of their keys. Their schemas are
//! generated ([`schema_of`]). They are read by the reader of all programs ([`stickycas_program::files`]).

pub mod faults;
pub mod instance;
pub mod kind;
pub mod schema;
pub mod values;

pub use stickycas_program::files::{Fault, FileError, Problem, SettingError, Settings, Source};

pub use self::kind::FileKind;
pub use self::schema::{Spanned, schema_of, schema_of_result};

/// The keys and tables that stand at the top of a file. Any other key without a dot is one of `[instance]`.
const OF_THE_FILE: [&str; 17] = [
    "name",
    "about",
    "seed",
    "expect",
    "late",
    "faulty",
    "faults",
    "fail_if",
    "budget",
    "network",
    "instance",
    "proposals",
    "load",
    "axes",
    "sweep",
    "steps",
    "expectations",
];

/// The settings of `--set`, given several times.
///
/// # Errors
/// The first that is no `KEY=VALUE`.
pub fn settings(arguments: &[String]) -> Result<Settings, SettingError> {
    Settings::from_flags(arguments, &OF_THE_FILE, "instance")
}

/// The largest seed: the largest integer of a TOML file.
pub const LARGEST_SEED: u64 = i64::MAX as u64;

/// A seed from the operating system, short enough to be typed.
#[must_use]
pub fn draw_seed() -> u64 {
    u64::from(rand::random::<u32>())
}
