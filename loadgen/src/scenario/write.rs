//! A checked scenario as the text of a file in which nothing is left to defaults or draws.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use stickycas_model::byzantine::{Strategy, WireAttack};
use stickycas_model::cast::Role;
use stickycas_model::judge::Outcome;
use stickycas_model::params::{AppendWindow, Arbiter, Order, ParamsSpec, Patience};
use stickycas_model::types::{ProcessId, Value};

use super::Scenario;

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    about: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<Outcome>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    late: &'a BTreeSet<ProcessId>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    faulty: &'a BTreeSet<ProcessId>,
    instance: Instance<&'a Arbiter>,
    proposals: Proposals<'a>,
    faults: Vec<Faults<'a>>,
}

/// `[instance]`, of whatever file has one.
#[derive(Serialize)]
pub(crate) struct Instance<A> {
    processes: u32,
    warp_size: u32,
    read_size: u32,
    order: Order,
    arbiter: A,
    append_window: AppendWindow,
    patience: String,
    join_timeout: String,
    pace: String,
    pipeline: u32,
    max_value_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

impl<A> Instance<A> {
    /// Of these parameters, with the arbiter as that file names it. No seed: each instance has its own.
    pub(crate) fn of(spec: &ParamsSpec, arbiter: A, seed: Option<u64>) -> Self {
        Self {
            processes: spec.processes,
            warp_size: spec.warp_size,
            read_size: spec.read_size,
            order: spec.order,
            arbiter,
            append_window: spec.append_window,
            patience: patience(spec.patience),
            join_timeout: duration(spec.join_timeout),
            pace: duration(spec.pace),
            pipeline: spec.pipeline,
            max_value_bytes: spec.max_value_bytes,
            seed,
        }
    }
}

#[derive(Serialize)]
struct Proposals<'a> {
    values: Vec<&'a Value>,
}

#[derive(Serialize)]
struct Faults<'a> {
    processes: Vec<ProcessId>,
    #[serde(flatten)]
    does: Does<'a>,
}

#[derive(PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Does<'a> {
    Strategy(&'a Strategy),
    Attack(WireAttack),
}

impl Scenario {
    /// The same scenario as the text of a file in which nothing is left to defaults or draws.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let scenario = self;
        let spec = scenario.params.spec();
        let file = File {
            name: &scenario.name,
            about: &scenario.about,
            expect: scenario.expect,
            late: scenario.cast.late(),
            faulty: scenario.cast.faulty(),
            instance: Instance::of(spec, &spec.arbiter, Some(scenario.seed)),
            proposals: Proposals { values: scenario.cast.parts().map(|(_, part)| &part.proposal).collect() },
            faults: faults(scenario),
        };
        let text = toml::to_string(&file).expect("a checked scenario has nothing that TOML cannot hold");
        format!("# The scenario as it was run: every default, draw and seed filled in.\n\n{text}")
    }
}

/// A duration as files write it.
pub(crate) fn duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Patience as files write it.
pub(crate) fn patience(patience: Patience) -> String {
    match patience {
        Patience::Finite(patience) => duration(patience),
        Patience::Endless => "none".to_owned(),
    }
}

/// One group for each strategy and attack, in the order of its first process.
fn faults(scenario: &Scenario) -> Vec<Faults<'_>> {
    let mut groups: Vec<Faults<'_>> = Vec::new();
    for (process, part) in scenario.cast.parts() {
        let does = match &part.role {
            Role::Correct => continue,
            Role::Byzantine(strategy) => Does::Strategy(strategy),
            Role::Attacker(attack) => Does::Attack(*attack),
        };
        match groups.iter_mut().find(|group| group.does == does) {
            Some(group) => group.processes.push(process),
            None => groups.push(Faults { processes: vec![process], does }),
        }
    }
    groups
}
