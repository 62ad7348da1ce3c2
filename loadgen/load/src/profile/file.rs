//! A profile as it is written: every key that there is, and where in the text each value stands.

use serde::Deserialize;
use stickycas_harness::fault_plan::Placement;
use stickycas_harness::files::instance::Instance;
use toml::Spanned;

use super::Transport;
use crate::arrivals::Spacing;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) seed: Option<Spanned<u64>>,
    /// As in scenarios.
    pub(super) instance: Spanned<Instance>,
    #[serde(default)]
    pub(super) proposals: Proposals,
    pub(super) byzantine: Option<Byzantine>,
    pub(super) load: Spanned<Load>,
    #[serde(default)]
    pub(super) fail_if: Vec<Spanned<String>>,
}

/// `[proposals]`: what correct processes propose, drawn anew for each instance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposals {
    pub(super) distinct: Option<Spanned<u32>>,
    pub(super) value_bytes: Option<Spanned<u32>>,
}

/// `[byzantine]`: how many processes of each instance are, where they sit and what they do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Byzantine {
    pub(super) share: Option<Spanned<f64>>,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) strategy: Spanned<String>,
    #[serde(default)]
    pub(super) placement: Placement,
}

/// `[load]`. Durations are texts such as `1s` and `250ms`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Load {
    pub(super) transport: Transport,
    pub(super) groups: Option<Spanned<u32>>,
    pub(super) principals_per_connection: Option<Spanned<u32>>,
    pub(super) principal: Option<Spanned<String>>,
    pub(super) in_flight: Option<Spanned<u32>>,
    pub(super) rate: Option<Spanned<f64>>,
    pub(super) ramp: Option<Spanned<Ramp>>,
    pub(super) steps: Option<Spanned<Vec<Step>>>,
    pub(super) arrivals: Option<Spanned<Spacing>>,
    pub(super) most_in_flight: Option<Spanned<u32>>,
    pub(super) late_after: Option<Spanned<String>>,
    pub(super) most_missed: Option<Spanned<f64>>,
    pub(super) warm_up: Option<Spanned<String>>,
    pub(super) duration: Option<Spanned<String>>,
    pub(super) instances: Option<Spanned<u64>>,
    pub(super) drain: Option<Spanned<String>>,
    pub(super) hard_stop: Option<Spanned<String>>,
    pub(super) stall: Option<Spanned<String>>,
    pub(super) watch_share: Option<Spanned<f64>>,
    pub(super) most_errors: Option<Spanned<f64>>,
}

/// `ramp = { from = 100, to = 1000 }`: instances per second at the beginning and at the end.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ramp {
    pub(super) from: f64,
    pub(super) to: f64,
}

/// `{ rate = 100, for = "10s" }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) rate: Spanned<f64>,
    #[serde(rename = "for")]
    pub(super) lasts: Spanned<String>,
}
