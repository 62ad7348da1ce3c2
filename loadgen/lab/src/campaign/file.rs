//! A campaign file as it is written: every key that there is, and where in the text each value stands.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use stickycas_harness::fault_plan::Placement;
use stickycas_harness::files::Spanned;
use stickycas_harness::files::instance::{Arbiter, Instance};
use stickycas_harness::files::schema::words;
use stickycas_model::params::{AppendWindow, Order};

use super::axis::{Numbers, Texts, texts};
use super::cell::Figure;

/// A campaign: sweeps over the axes of a scenario, each point run many times. See docs/use/campaigns.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "StickyCAS campaign")]
pub(crate) struct File {
    /// Letters, digits, '-' and '_', at most 64. The folder of the results is called by it.
    pub(super) name: Spanned<String>,
    /// Its purpose, in one line.
    #[serde(default)]
    pub(super) about: String,
    /// The seed of the first run; each run has the next one [default: drawn, and shown].
    pub(super) seed: Option<Spanned<u64>>,
    /// A campaign that is estimated to take longer is refused: a duration [default: no limit].
    pub(super) budget: Option<Spanned<String>>,
    /// Runs that are repeated over the network and compared [default: 0].
    #[serde(default)]
    pub(super) network: u64,
    /// As in scenarios. A parameter that is an axis too holds for every sweep without that axis.
    pub(super) instance: Option<Spanned<Instance>>,
    /// The axes of every sweep that does not say otherwise.
    #[serde(default)]
    pub(super) axes: Axes,
    /// The sweeps to run; at least one.
    #[serde(default, rename = "sweep")]
    pub(super) sweeps: Vec<Spanned<Sweep>>,
}

/// `[[sweep]]`: every combination of the values of its axes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Sweep {
    /// Letters, digits, '-' and '_', at most 64.
    pub(super) name: Spanned<String>,
    /// Its subject, in one line.
    #[serde(default)]
    pub(super) about: String,
    /// The figure in the report [default: a table only].
    pub(super) figure: Option<Figure>,
    /// The runs of each point.
    pub(super) runs: Spanned<u64>,
    /// The axes of this sweep; others are those of the campaign.
    #[serde(default)]
    pub(super) axes: Axes,
}

/// `[axes]` and `[sweep.axes]`: a value, a list of values, or for numbers a range, { from = 0, to = 12, step
/// = 2 }.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Axes {
    /// n, the number of processes; also `n`. Required.
    #[serde(alias = "n")]
    pub(super) processes: Option<Spanned<Numbers>>,
    /// p, the processes of a warp; also `p`. Required.
    #[serde(alias = "p")]
    pub(super) warp_size: Option<Spanned<Numbers>>,
    /// r, the most entries that one read returns; also `r`. Required.
    #[serde(alias = "r")]
    pub(super) read_size: Option<Spanned<Numbers>>,
    /// f, the number of Byzantine processes; also `f` [default: 0].
    #[serde(alias = "f")]
    pub(super) byzantine: Option<Spanned<Numbers>>,
    /// Different values of correct processes, drawn for each run [default: 1].
    pub(super) distinct: Option<Spanned<Numbers>>,
    /// The strategy of all Byzantine processes; required where there are any.
    #[schemars(schema_with = "strategies")]
    #[serde(default)]
    pub(super) strategy: Option<Spanned<Texts<String>>>,
    /// Where Byzantine processes are [default: spread].
    #[schemars(schema_with = "placements")]
    #[serde(default)]
    pub(super) placement: Option<Spanned<Texts<Placement>>>,
    /// Which append of a phase wins; `byzantine_first` is the paper's worst case [default: first_come].
    #[schemars(schema_with = "arbiters")]
    #[serde(default)]
    pub(super) arbiter: Option<Spanned<Texts<Arbiter>>>,
    /// The order of the warps in a round [default: ascending].
    #[schemars(schema_with = "orders")]
    #[serde(default)]
    pub(super) order: Option<Spanned<Texts<Order>>>,
    /// When a process may append; also `window` [default: first_access].
    #[schemars(schema_with = "append_windows")]
    #[serde(default, alias = "window")]
    pub(super) append_window: Option<Spanned<Texts<AppendWindow>>>,
    /// q, the append rounds; also `q` [default: 1].
    #[serde(alias = "q")]
    pub(super) append_rounds: Option<Spanned<Numbers>>,
}

fn strategies(generator: &mut SchemaGenerator) -> Schema {
    texts(&generator.subschema_for::<String>())
}

fn placements(generator: &mut SchemaGenerator) -> Schema {
    texts(&generator.subschema_for::<Placement>())
}

fn arbiters(_: &mut SchemaGenerator) -> Schema {
    texts(&words(&[Arbiter::FirstCome, Arbiter::Uniform, Arbiter::ByzantineFirst]))
}

fn orders(_: &mut SchemaGenerator) -> Schema {
    texts(&words(&Order::ALL))
}

fn append_windows(_: &mut SchemaGenerator) -> Schema {
    texts(&words(&AppendWindow::ALL))
}

impl Axes {
    /// The axes of one value each that `[instance]` gives. An arbiter that names processes by number is no
    /// axis.
    pub(super) fn of_instance(instance: &Instance) -> Self {
        fn one<T: Clone, A>(key: Option<&Spanned<T>>, axis: fn(Vec<T>) -> A) -> Option<Spanned<A>> {
            key.map(|key| Spanned::new(key.span(), axis(vec![key.get_ref().clone()])))
        }
        let arbiter = instance.arbiter.as_ref().filter(|key| !matches!(***key, Arbiter::Priority(_)));
        Self {
            processes: one(instance.processes.as_ref(), Numbers),
            warp_size: one(instance.warp_size.as_ref(), Numbers),
            read_size: one(instance.read_size.as_ref(), Numbers),
            arbiter: one(arbiter, Texts),
            order: one(instance.order.as_ref(), Texts),
            append_window: one(instance.append_window.as_ref(), Texts),
            append_rounds: one(instance.append_rounds.as_ref(), Numbers),
            ..Self::default()
        }
    }

    /// These axes, and those of `others` that are not among them.
    pub(super) fn or(self, others: &Self) -> Self {
        Self {
            processes: self.processes.or_else(|| others.processes.clone()),
            warp_size: self.warp_size.or_else(|| others.warp_size.clone()),
            read_size: self.read_size.or_else(|| others.read_size.clone()),
            byzantine: self.byzantine.or_else(|| others.byzantine.clone()),
            distinct: self.distinct.or_else(|| others.distinct.clone()),
            strategy: self.strategy.or_else(|| others.strategy.clone()),
            placement: self.placement.or_else(|| others.placement.clone()),
            arbiter: self.arbiter.or_else(|| others.arbiter.clone()),
            order: self.order.or_else(|| others.order.clone()),
            append_window: self.append_window.or_else(|| others.append_window.clone()),
            append_rounds: self.append_rounds.or_else(|| others.append_rounds.clone()),
        }
    }
}
