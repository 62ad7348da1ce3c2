//! A scenario file as it is written: every key that there is, and where in the text each value stands.

use serde::Deserialize;
use stickycas_model::judge::Outcome;
use stickycas_model::params::{AppendWindow, Arbiter, Order};
use toml::Spanned;

use super::error::Fault;
use crate::fault_plan::Placement;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) expect: Option<Outcome>,
    pub(super) instance: Spanned<Instance>,
    pub(super) proposals: Spanned<Proposals>,
    #[serde(default)]
    pub(super) faults: Vec<Spanned<Faults>>,
}

/// `[instance]`. Durations are texts such as `1s` and `250ms`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instance {
    /// n.
    pub(super) processes: Spanned<u32>,
    /// p.
    pub(super) warp_size: Spanned<u32>,
    /// r.
    pub(super) read_size: Spanned<u32>,
    #[serde(default)]
    pub(super) order: Order,
    pub(super) arbiter: Option<Spanned<Arbiter>>,
    #[serde(default)]
    pub(super) append_window: AppendWindow,
    /// A duration, or `none`.
    pub(super) patience: Option<Spanned<String>>,
    pub(super) join_timeout: Option<Spanned<String>>,
    pub(super) pace: Option<Spanned<String>>,
    pub(super) pipeline: Option<Spanned<u32>>,
    pub(super) max_value_bytes: Option<Spanned<u32>>,
    pub(super) seed: Option<Spanned<u64>>,
}

/// `[proposals]`: one value for each process, or so many values to draw from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposals {
    pub(super) values: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) distinct: Option<Spanned<u32>>,
    pub(super) seed: Option<Spanned<u64>>,
}

/// `[[faults]]`: these processes, or so many of them, play this strategy or carry out this wire
/// attack.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Faults {
    pub(super) strategy: Option<Spanned<String>>,
    pub(super) attack: Option<Spanned<String>>,
    pub(super) processes: Option<Spanned<Vec<Spanned<u32>>>>,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) placement: Option<Spanned<Placement>>,
    pub(super) seed: Option<Spanned<u64>>,
}

/// Reads the text of a file.
pub(super) fn read(text: &str) -> Result<File, Fault> {
    toml::from_str(text)
        .map_err(|error: toml::de::Error| Fault::new(error.span().unwrap_or_default(), error.message()))
}
