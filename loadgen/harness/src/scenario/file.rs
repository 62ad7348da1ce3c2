//! A scenario file as it is written: every key that there is, and where in the text each value stands.

use schemars::JsonSchema;
use serde::Deserialize;
use stickycas_model::judge::Outcome;

use crate::files::Spanned;
use crate::files::faults::Faults;
use crate::files::instance::Instance;
use crate::files::schema;

/// A scenario: one instance, the part of each process, and the expected verdict. See docs/use/scenarios.md.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "StickyCAS scenario")]
pub(crate) struct File {
    /// Letters, digits, '-' and '_', at most 64. The run folder is called by it.
    pub(super) name: Spanned<String>,
    /// Its subject, in one line.
    #[serde(default)]
    pub(super) about: String,
    /// The verdict that it promises.
    #[serde(default)]
    #[schemars(schema_with = "schema::outcome")]
    pub(super) expect: Option<Outcome>,
    /// From which everything is drawn; without it, a seed is drawn and shown.
    // Files of before have it in `[instance]`.
    pub(super) seed: Option<Spanned<u64>>,
    /// Correct processes that come when their first phase has passed.
    #[serde(default)]
    pub(super) late: Vec<Spanned<u32>>,
    /// Correct processes that are killed, restarted without memory or the like in the course of the run.
    #[serde(default)]
    pub(super) faulty: Vec<Spanned<u32>>,
    pub(super) instance: Spanned<Instance>,
    pub(super) proposals: Spanned<Proposals>,
    /// The Byzantine processes and their behaviour; all others are correct.
    #[serde(default)]
    pub(super) faults: Vec<Spanned<Faults>>,
}

/// `[proposals]`: the proposal of each process. Give values or distinct.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposals {
    /// The proposal of each process, in their order: a text, or 0x and hex digits.
    pub(super) values: Option<Spanned<Vec<Spanned<String>>>>,
    /// Correct processes propose this number of different values, drawn.
    pub(super) distinct: Option<Spanned<u32>>,
    /// With distinct: from which they are drawn; without it, from the file's seed.
    pub(super) seed: Option<Spanned<u64>>,
}

impl File {
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
