//! A checked scenario as the text of a file in which nothing is left to defaults or draws.

use std::collections::BTreeSet;

use serde::Serialize;
use stickycas_model::judge::Outcome;
use stickycas_model::params::Arbiter;
use stickycas_model::types::{ProcessId, Value};

use super::Scenario;
use crate::files::faults::{WrittenFaults, written_faults};
use crate::files::instance::WrittenInstance;

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
    seed: u64,
    instance: WrittenInstance<&'a Arbiter>,
    proposals: Proposals<'a>,
    faults: Vec<WrittenFaults<'a>>,
}

#[derive(Serialize)]
struct Proposals<'a> {
    values: Vec<&'a Value>,
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
            late: scenario.truth.late(),
            faulty: scenario.truth.faulty(),
            seed: scenario.seed,
            instance: WrittenInstance::of(spec, &spec.arbiter),
            proposals: Proposals {
                values: scenario.truth.assignments().map(|(_, assignment)| &assignment.proposal).collect(),
            },
            faults: written_faults(
                scenario.truth.assignments().map(|(process, assignment)| (process, &assignment.role)),
            ),
        };
        let text = toml::to_string(&file).expect("a checked scenario has nothing that TOML cannot hold");
        format!("# The scenario as it was run: every default, draw and seed filled in.\n\n{text}")
    }
}
