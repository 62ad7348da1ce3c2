//! Every decoder of what others send or what stands in files, each as a function of bytes: a [`Target`].
//!
//! A target panics if a decoder panics, takes what it should not, or contradicts its counterpart: what is decoded and
//! encoded again must be the same. `scripts/fuzz` searches for such bytes, led by the branches that they reach; what it
//! found worth keeping stands in `fuzz/corpus`, and a test replays it.

mod targets;

use std::fmt;

pub use targets::TARGETS;

/// One decoder.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// What it decodes.
    pub what: &'static str,
    /// Tries these bytes.
    ///
    /// # Panics
    /// If the decoder is wrong.
    pub run: fn(&[u8]),
    /// Bytes that our own encoders have made, from which a search starts.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// The target with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.iter().copied().find(|target| target.name == name)
    }
}
