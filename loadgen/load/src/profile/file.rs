//! A profile as it is written, by people or by [`Profile::to_toml`]: every key that there is, with its
//! default.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stickycas_harness::files::Spanned;
use stickycas_harness::files::faults::{Faults, written_faults};
use stickycas_harness::files::instance::Instance;
use stickycas_harness::files::values::{DurationText, Share};
use stickycas_proto::principal::is_principal_name;

use super::{Open, Pacing, Profile, Transport};
use crate::arrivals::{Piece, Spacing};

/// A load profile: the instances, and how many of them begin when. See docs/use/load-testing.md.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "StickyCAS load profile")]
pub(crate) struct File {
    /// Letters, digits, '-' and '_', at most 64. The result folder is called by it.
    pub(super) name: Spanned<String>,
    /// Its purpose, in one line.
    #[serde(default)]
    pub(super) about: String,
    /// The seed of every draw: seeds of instances, proposals, arrivals [default: drawn, and shown].
    pub(super) seed: Option<Spanned<u64>>,
    /// Conditions each of which fails the load, such as "instance_p99 > 50ms".
    #[serde(default)]
    pub(super) fail_if: Vec<Spanned<String>>,
    pub(super) instance: Spanned<Instance>,
    #[serde(default)]
    pub(super) proposals: Proposals,
    /// The Byzantine processes: the same in each instance. Strategies alone, no wire attacks.
    #[serde(default)]
    pub(super) faults: Vec<Spanned<Faults>>,
    pub(super) load: Spanned<Load>,
}

/// `[proposals]`: the proposals of correct processes, drawn anew for each instance.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposals {
    /// Correct processes of an instance propose this number of different values [default: 3].
    pub(super) distinct: Option<Spanned<u32>>,
    /// The bytes of each value [default: 8].
    pub(super) value_bytes: Option<Spanned<u32>>,
}

/// `[load]`: how the load is put on. Give one of in_flight, rate, ramp and steps. Durations are texts such as
/// "1s".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// attach: a stream for each principal; unary: a call for each access [default: attach].
    pub transport: Transport,
    /// How many rosters of n principals there are; instances take turns on them [default: 1].
    pub rosters: NonZeroU32,
    /// How many principals share one connection [default: 1].
    pub principals_per_connection: NonZeroU32,
    /// The beginning of the names of the principals [default: "load"].
    pub principal_prefix: Prefix,
    /// A closed loop: the instances that are under way at any time.
    pub(super) in_flight: Option<Spanned<u32>>,
    /// An open loop: instances per second.
    pub(super) rate: Option<Spanned<f64>>,
    /// An open loop: a rate that goes straight from one to another over the duration.
    pub(super) ramp: Option<Spanned<Ramp>>,
    /// An open loop: one rate after the other.
    pub(super) steps: Option<Vec<Step>>,
    /// An open loop: instances begin evenly, or as a Poisson process [default: fixed].
    pub(super) arrivals: Option<Spanned<Spacing>>,
    /// An open loop: a start beyond this number of instances under way is missed [default: 2048 for each
    /// roster].
    pub(super) max_in_flight: Option<Spanned<u32>>,
    /// An open loop: a start that is later than this is missed [default: "10ms"].
    pub(super) late_after: Option<Spanned<DurationText>>,
    /// An open loop: a larger share of missed starts fails the load [default: 0.01].
    pub(super) max_missed: Option<Spanned<Share>>,
    /// The time from the start in which instances count in no figure.
    pub(super) warm_up: Option<Spanned<DurationText>>,
    /// The time for which instances begin, the warm-up included; required without instances.
    pub(super) duration: Option<Spanned<DurationText>>,
    /// The largest number of instances to begin [default: no limit].
    pub instances: Option<u64>,
    /// How long instances have to end once no more begin [default: "30s"].
    pub drain: DurationText,
    /// The time after which everything ends, whatever is under way [default: none].
    pub hard_stop: Option<DurationText>,
    /// An instance without progress for this time is given up [default: "10s"].
    pub stall: DurationText,
    /// The share of instances of which the server's whole history is judged [default: 0.01].
    pub history_sample: Share,
    /// A larger share of instances that fail or are refused fails the load [default: 0.01; 1 if fail_if looks
    /// at errors].
    pub(super) max_errors: Option<Share>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            rosters: NonZeroU32::MIN,
            principals_per_connection: NonZeroU32::MIN,
            principal_prefix: Prefix("load".to_owned()),
            in_flight: None,
            rate: None,
            ramp: None,
            steps: None,
            arrivals: None,
            max_in_flight: None,
            late_after: None,
            max_missed: None,
            warm_up: None,
            duration: None,
            instances: None,
            drain: DurationText(Duration::from_secs(30)),
            hard_stop: None,
            stall: DurationText(Duration::from_secs(10)),
            history_sample: Share(0.01),
            max_errors: None,
        }
    }
}

/// `ramp = { from = 100, to = 1000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ramp {
    /// Instances per second at the beginning.
    pub(super) from: f64,
    /// Instances per second at the end.
    pub(super) to: f64,
}

/// `{ rate = 100, for = "10s" }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// Instances per second.
    pub(super) rate: Spanned<f64>,
    /// How long it lasts: a duration.
    #[serde(rename = "for")]
    pub(super) lasts: DurationText,
}

/// The beginning of the names of principals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline)]
pub struct Prefix(pub String);

impl TryFrom<String> for Prefix {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits = text.len() <= 64 && is_principal_name(text.as_bytes());
        if fits { Ok(Self(text)) } else { Err("give 1 to 64 letters, digits, '.', '_' or '-'") }
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.0
    }
}

impl Profile {
    /// The same profile as the text of a file in which nothing is left to defaults or draws.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut load = self.load.clone();
        load.warm_up = Some(DurationText(self.warm_up).into());
        load.max_errors = Some(Share(self.max_errors));
        let in_steps = matches!(&self.pacing, Pacing::Open(open) if open.pieces.len() > 1);
        load.duration = self.duration.filter(|_| !in_steps).map(|duration| DurationText(duration).into());
        (load.in_flight, load.rate, load.ramp, load.steps) = (None, None, None, None);
        match &self.pacing {
            Pacing::Closed { in_flight } => load.in_flight = Some((*in_flight).into()),
            Pacing::Open(open) => load.put_open(open),
        }
        let (distinct, value_bytes) = (self.distinct.into(), self.value_bytes.into());
        let file = File {
            name: self.name.clone().into(),
            about: self.about.clone(),
            seed: Some(self.seed.into()),
            fail_if: self.fail_if.iter().map(|condition| condition.to_string().into()).collect(),
            instance: Instance::of(self.params.spec()).into(),
            proposals: Proposals { distinct: Some(distinct), value_bytes: Some(value_bytes) },
            faults: written_faults(self.faults.roles()),
            load: load.into(),
        };
        let text = toml::to_string(&file).expect("a checked profile has nothing that TOML cannot hold");
        format!("# The profile as it was run: every default and draw filled in.\n\n{text}")
    }
}

impl Load {
    fn put_open(&mut self, open: &Open) {
        self.arrivals = Some(open.spacing.into());
        self.max_in_flight = Some(open.max_in_flight.into());
        self.late_after = Some(DurationText(open.late_after).into());
        self.max_missed = Some(Share(open.max_missed).into());
        match open.pieces.as_slice() {
            [Piece { from, to, .. }] if from == to => self.rate = Some((*from).into()),
            [Piece { from, to, .. }] => self.ramp = Some(Ramp { from: *from, to: *to }.into()),
            pieces => {
                let step = |piece: &Piece| Step { rate: piece.from.into(), lasts: DurationText(piece.lasts) };
                self.steps = Some(pieces.iter().map(step).collect());
            }
        }
    }
}
