//! A campaign file as it is written: every key that there is, and where in the text each value stands.

use serde::Deserialize;
use stickycas_model::params::{AppendWindow, Order};
use toml::Spanned;

use super::axis::{Numbers, Texts};
use super::cell::{ArbiterKind, Figure};
use crate::fault_plan::Placement;
use crate::scenario::file::Instance as ScenarioInstance;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) seed: Option<Spanned<u64>>,
    pub(super) budget: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) network: u64,
    #[serde(default)]
    pub(super) instance: Instance,
    /// What holds for every sweep that does not say otherwise.
    #[serde(default)]
    pub(super) axes: Axes,
    #[serde(default, rename = "sweep")]
    pub(super) sweeps: Vec<Spanned<Sweep>>,
}

/// `[instance]`: the parameters that are no axis, as in scenarios.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instance {
    patience: Option<Spanned<String>>,
    join_timeout: Option<Spanned<String>>,
    pace: Option<Spanned<String>>,
    pipeline: Option<Spanned<u32>>,
    max_value_bytes: Option<Spanned<u32>>,
}

impl Instance {
    /// The `[instance]` of a scenario of one process, to be checked as such.
    pub(super) fn of_one(&self) -> Spanned<ScenarioInstance> {
        let one = || Spanned::new(0..0, 1);
        let instance = ScenarioInstance {
            processes: one(),
            warp_size: one(),
            read_size: one(),
            order: Order::default(),
            arbiter: None,
            append_window: AppendWindow::default(),
            patience: self.patience.clone(),
            join_timeout: self.join_timeout.clone(),
            pace: self.pace.clone(),
            pipeline: self.pipeline.clone(),
            max_value_bytes: self.max_value_bytes.clone(),
            seed: None,
        };
        Spanned::new(0..0, instance)
    }
}

/// `[[sweep]]`: every combination of the values of its axes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sweep {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) figure: Option<Figure>,
    pub(super) runs: Spanned<u64>,
    #[serde(default)]
    pub(super) axes: Axes,
}

/// `[axes]` and `[sweep.axes]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Axes {
    pub(super) n: Option<Spanned<Numbers>>,
    pub(super) p: Option<Spanned<Numbers>>,
    pub(super) r: Option<Spanned<Numbers>>,
    pub(super) f: Option<Spanned<Numbers>>,
    pub(super) distinct: Option<Spanned<Numbers>>,
    pub(super) strategy: Option<Spanned<Texts<String>>>,
    pub(super) placement: Option<Spanned<Texts<Placement>>>,
    pub(super) arbiter: Option<Spanned<Texts<ArbiterKind>>>,
    pub(super) order: Option<Spanned<Texts<Order>>>,
    pub(super) window: Option<Spanned<Texts<AppendWindow>>>,
}

impl Axes {
    /// These axes, and those of `others` that are not among them.
    pub(super) fn or(self, others: &Self) -> Self {
        Self {
            n: self.n.or_else(|| others.n.clone()),
            p: self.p.or_else(|| others.p.clone()),
            r: self.r.or_else(|| others.r.clone()),
            f: self.f.or_else(|| others.f.clone()),
            distinct: self.distinct.or_else(|| others.distinct.clone()),
            strategy: self.strategy.or_else(|| others.strategy.clone()),
            placement: self.placement.or_else(|| others.placement.clone()),
            arbiter: self.arbiter.or_else(|| others.arbiter.clone()),
            order: self.order.or_else(|| others.order.clone()),
            window: self.window.or_else(|| others.window.clone()),
        }
    }
}
