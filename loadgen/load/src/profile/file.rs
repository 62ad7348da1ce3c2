//! A profile as it is written: every key that there is, and where in the text each value stands.

use schemars::JsonSchema;
use serde::Deserialize;
use stickycas_harness::files::Spanned;
use stickycas_harness::files::faults::Faults;
use stickycas_harness::files::instance::Instance;

use super::Transport;
use crate::arrivals::Spacing;

/// A load profile: the instances, and how many of them begin when. See docs/use/load-testing.md.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "StickyCAS load profile")]
pub(crate) struct File {
    /// Letters, digits, '-' and '_', at most 64. The result folder is called by it.
    pub(super) name: Spanned<String>,
    /// Its purpose, in one line.
    #[serde(default)]
    pub(super) about: String,
    /// From which everything is drawn: seeds of instances, proposals, arrivals; without it, a seed is drawn
    /// and shown.
    pub(super) seed: Option<Spanned<u64>>,
    pub(super) instance: Spanned<Instance>,
    #[serde(default)]
    pub(super) proposals: Proposals,
    /// The Byzantine processes: the same in each instance. Strategies alone, no wire attacks.
    #[serde(default)]
    pub(super) faults: Vec<Spanned<Faults>>,
    pub(super) load: Spanned<Load>,
    /// Conditions each of which fails the load, such as "instance_p99 > 50ms".
    #[serde(default)]
    pub(super) fail_if: Vec<Spanned<String>>,
}

/// `[proposals]`: the proposals of correct processes, drawn anew for each instance.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposals {
    /// Correct processes of an instance propose this number of different values [default: 3].
    pub(super) distinct: Option<Spanned<u32>>,
    /// The bytes of each value [default: 8].
    pub(super) value_bytes: Option<Spanned<u32>>,
}

/// `[load]`: how the load is put on. Give one of in_flight, rate, ramp and steps. Durations are texts such as
/// "1s".
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Load {
    /// How processes call the server.
    pub(super) transport: Transport,
    /// How many rosters of n principals there are; instances take turns on them [default: 1].
    pub(super) rosters: Option<Spanned<u32>>,
    /// How many principals share one connection [default: 1].
    pub(super) principals_per_connection: Option<Spanned<u32>>,
    /// The beginning of the names of the principals [default: "load"].
    pub(super) principal_prefix: Option<Spanned<String>>,
    /// A closed loop: the instances that are under way at any time.
    pub(super) in_flight: Option<Spanned<u32>>,
    /// An open loop: instances per second.
    pub(super) rate: Option<Spanned<f64>>,
    /// An open loop: a rate that goes straight from one to another over the duration.
    pub(super) ramp: Option<Spanned<Ramp>>,
    /// An open loop: one rate after the other.
    pub(super) steps: Option<Spanned<Vec<Step>>>,
    /// An open loop: how regularly instances begin.
    pub(super) arrivals: Option<Spanned<Spacing>>,
    /// An open loop: a start beyond this number of instances under way is missed [default: 2048 for each
    /// roster].
    pub(super) max_in_flight: Option<Spanned<u32>>,
    /// An open loop: a start that is later than this is missed [default: "10ms"].
    pub(super) late_after: Option<Spanned<String>>,
    /// An open loop: a larger share of missed starts fails the load [default: 0.01].
    pub(super) max_missed: Option<Spanned<f64>>,
    /// The time from the start in which instances count in no figure.
    pub(super) warm_up: Option<Spanned<String>>,
    /// For how long instances begin, the warm-up included.
    pub(super) duration: Option<Spanned<String>>,
    /// How many instances begin at most.
    pub(super) instances: Option<Spanned<u64>>,
    /// How long instances have to end once no more begin [default: "30s"].
    pub(super) drain: Option<Spanned<String>>,
    /// When everything ends, whatever is under way.
    pub(super) hard_stop: Option<Spanned<String>>,
    /// An instance without progress for this time is given up [default: "10s"].
    pub(super) stall: Option<Spanned<String>>,
    /// The share of instances of which the server's whole history is judged [default: 0.01].
    pub(super) history_sample: Option<Spanned<f64>>,
    /// A larger share of instances that fail or are refused fails the load [default: 0.01; 1 if fail_if looks
    /// at errors].
    pub(super) max_errors: Option<Spanned<f64>>,
}

/// `ramp = { from = 100, to = 1000 }`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ramp {
    /// Instances per second at the beginning.
    pub(super) from: f64,
    /// Instances per second at the end.
    pub(super) to: f64,
}

/// `{ rate = 100, for = "10s" }`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// Instances per second.
    pub(super) rate: Spanned<f64>,
    /// How long it lasts: a duration.
    #[serde(rename = "for")]
    pub(super) lasts: Spanned<String>,
}
