//! A campaign file as it is written: every key that there is, and where in the text each value stands.

use serde::Deserialize;
use stickycas_harness::fault_plan::Placement;
use stickycas_harness::files::instance::{Arbiter, Instance};
use stickycas_model::params::{AppendWindow, Order};
use toml::Spanned;

use super::axis::{Numbers, Texts};
use super::cell::{ArbiterKind, Figure};

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
    /// As in scenarios. What is an axis too holds for every sweep without that axis.
    pub(super) instance: Option<Spanned<Instance>>,
    /// What holds for every sweep that does not say otherwise.
    #[serde(default)]
    pub(super) axes: Axes,
    #[serde(default, rename = "sweep")]
    pub(super) sweeps: Vec<Spanned<Sweep>>,
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
    #[serde(alias = "n")]
    pub(super) processes: Option<Spanned<Numbers>>,
    #[serde(alias = "p")]
    pub(super) warp_size: Option<Spanned<Numbers>>,
    #[serde(alias = "r")]
    pub(super) read_size: Option<Spanned<Numbers>>,
    /// f, how many processes are Byzantine.
    #[serde(alias = "f")]
    pub(super) byzantine: Option<Spanned<Numbers>>,
    pub(super) distinct: Option<Spanned<Numbers>>,
    pub(super) strategy: Option<Spanned<Texts<String>>>,
    pub(super) placement: Option<Spanned<Texts<Placement>>>,
    pub(super) arbiter: Option<Spanned<Texts<ArbiterKind>>>,
    pub(super) order: Option<Spanned<Texts<Order>>>,
    #[serde(alias = "window")]
    pub(super) append_window: Option<Spanned<Texts<AppendWindow>>>,
}

impl Axes {
    /// The axes of one value each that `[instance]` gives. An arbiter that names processes by number is no axis.
    pub(super) fn of_instance(instance: &Instance) -> Self {
        let number = |key: &Option<Spanned<u32>>| {
            key.as_ref().map(|key| Spanned::new(key.span(), Numbers(vec![*key.get_ref()])))
        };
        let arbiter = instance.arbiter.as_ref().and_then(|key| {
            let kind = match key.get_ref() {
                Arbiter::FirstCome => ArbiterKind::FirstCome,
                Arbiter::Uniform => ArbiterKind::Uniform,
                Arbiter::ByzantineFirst => ArbiterKind::ByzantineFirst,
                Arbiter::Priority(_) => return None,
            };
            Some(Spanned::new(key.span(), Texts(vec![kind])))
        });
        let order = instance.order.as_ref().map(|key| Spanned::new(key.span(), Texts(vec![*key.get_ref()])));
        let window = instance.append_window.as_ref();
        Self {
            processes: number(&instance.processes),
            warp_size: number(&instance.warp_size),
            read_size: number(&instance.read_size),
            arbiter,
            order,
            append_window: window.map(|key| Spanned::new(key.span(), Texts(vec![*key.get_ref()]))),
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
        }
    }
}
