//! A scenario file as it is written, by people or by [`Scenario::to_toml`]: every key that there is, and
//! where in the text each value stands.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stickycas_model::judge::Outcome;
use stickycas_model::types::ProcessId;

use super::Scenario;
use crate::files::faults::{Faults, written_faults};
use crate::files::instance::Instance;
use crate::files::{Spanned, schema};

/// A scenario: one instance, the part of each process, and the expected verdict. See docs/use/scenarios.md.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "StickyCAS scenario")]
pub struct File {
    /// Letters, digits, '-' and '_', at most 64. The run folder is called by it.
    pub name: Spanned<String>,
    /// Its subject, in one line.
    #[serde(default)]
    pub about: String,
    /// The expected verdict; `simulate --runs`, tests and `scripts/scenarios` check it, `run` does not.
    #[serde(default)]
    #[schemars(schema_with = "schema::outcome")]
    pub expect: Option<Outcome>,
    /// The seed of the instance and of every draw, 0 to 2^63 - 1 [default: drawn, and shown].
    // Files of before have it in `[instance]`.
    pub seed: Option<Spanned<u64>>,
    /// Correct processes that join after the first phase of their warp; they count in f (F6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<Spanned<u32>>,
    /// Correct processes that are killed, restarted or paused during the run; they count in f and are not
    /// judged (V4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faulty: Vec<Spanned<u32>>,
    #[expect(missing_docs, reason = "its type has them")]
    pub instance: Spanned<Instance>,
    #[expect(missing_docs, reason = "its type has them")]
    pub proposals: Spanned<Proposals>,
    /// The Byzantine processes and their behaviour; all others are correct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Spanned<Faults>>,
}

/// `[proposals]`: the proposal of each process. Give values or distinct.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proposals {
    /// The proposal of each process, in their order: a text, or 0x and hex digits.
    pub values: Option<Spanned<Vec<Spanned<String>>>>,
    /// Different values, drawn, that correct processes propose.
    pub distinct: Option<Spanned<u32>>,
    /// With distinct: the seed of the values [default: the file's seed].
    pub seed: Option<Spanned<u64>>,
}

impl File {
    /// The text of the file, behind a comment of one line.
    ///
    /// # Panics
    /// If it has a number that TOML cannot hold.
    #[must_use]
    pub fn text(&self, comment: &str) -> String {
        let text = toml::to_string(self).expect("a scenario has nothing that TOML cannot hold");
        format!("# {comment}\n\n{text}")
    }

    /// Whether the scenario's seed has a say in who is Byzantine and how.
    pub(super) fn draws_parts(&self) -> bool {
        self.faults.iter().any(|group| !group.get_ref().is_settled())
    }

    /// Whether the scenario's seed has a say in who proposes what.
    pub(super) fn draws_proposals(&self) -> bool {
        let proposals = self.proposals.get_ref();
        proposals.distinct.is_some() && proposals.seed.is_none()
    }
}

impl Scenario {
    /// The same scenario as the text of a file in which nothing is left to defaults or draws.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let numbers = |processes: &BTreeSet<ProcessId>| -> Vec<Spanned<u32>> {
            processes.iter().map(|process| process.get().into()).collect()
        };
        let assignments = || self.truth.assignments();
        let values = assignments().map(|(_, assignment)| assignment.proposal.to_string().into()).collect();
        let values: Vec<Spanned<String>> = values;
        let file = File {
            name: self.name.clone().into(),
            about: self.about.clone(),
            expect: self.expect,
            seed: Some(self.seed.into()),
            late: numbers(self.truth.late()),
            faulty: numbers(self.truth.faulty()),
            instance: Instance::of(self.params.spec()).into(),
            proposals: Proposals { values: Some(values.into()), ..Proposals::default() }.into(),
            faults: written_faults(assignments().map(|(process, assignment)| (process, &assignment.role))),
        };
        file.text("The scenario as it was run: every default, draw and seed filled in.")
    }
}
