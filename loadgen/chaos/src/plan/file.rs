//! A plan as it is written: every key that there is, and where in the text each value stands.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use stickycas_harness::files::instance::Instance;
use stickycas_model::judge::{Outcome, Property};
use stickycas_model::types::{AccessNumber, Phase, ProcessId};
use toml::Spanned;

use super::Action;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) expect: Outcome,
    #[serde(default)]
    pub(super) faulty: Vec<Spanned<ProcessId>>,
    #[serde(default)]
    pub(super) late: Vec<Spanned<ProcessId>>,
    /// As in scenarios: takes the place of the scenario's keys.
    #[serde(default)]
    pub(super) instance: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    #[serde(default)]
    pub(super) steps: Vec<Step>,
    #[serde(default)]
    pub(super) seen: Expectations,
}

/// The `[instance]` of a plan, whatever else the plan has.
#[derive(Debug, Deserialize)]
pub(super) struct InstanceOf {
    #[expect(dead_code, reason = "read to see that its keys are those of scenarios")]
    pub(super) instance: Option<Instance>,
}

/// `[[steps]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) when: Spanned<When>,
    #[serde(rename = "do")]
    pub(super) action: Action,
    pub(super) services: Spanned<Vec<Spanned<String>>>,
    pub(super) by: Option<Spanned<When>>,
}

/// `when` and `by`: a word, or a table with the one key that says what is waited for.
#[derive(Debug)]
pub(super) enum When {
    Word(String),
    Table(WhenTable),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhenTable {
    pub(super) gathered: Option<bool>,
    pub(super) phase: Option<Phase>,
    pub(super) joined: Option<ProcessId>,
    pub(super) accepted: Option<ProcessId>,
    pub(super) answered: Option<ProcessId>,
    /// With `accepted` and `answered`.
    pub(super) access: Option<AccessNumber>,
    pub(super) decided: Option<ProcessId>,
    pub(super) after: Option<String>,
}

/// `[seen]`. Processes are keys of tables here, and so texts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectations {
    #[serde(default)]
    pub(super) never_joined: Vec<ProcessId>,
    #[serde(default)]
    pub(super) decided: Vec<ProcessId>,
    #[serde(default)]
    pub(super) never_decided: Vec<ProcessId>,
    #[serde(default)]
    pub(super) sessions: BTreeMap<Spanned<String>, u64>,
    #[serde(default)]
    pub(super) lives: BTreeMap<Spanned<String>, u64>,
    #[serde(default)]
    pub(super) appends: BTreeMap<Spanned<String>, u64>,
    pub(super) still: Option<Spanned<String>>,
    pub(super) told_unknown: Option<u32>,
    #[serde(default)]
    pub(super) missing: BTreeMap<Property, String>,
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Given;

        impl<'de> Visitor<'de> for Given {
            type Value = When;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"before\" or a table such as { phase = 9 }")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<When, E> {
                Ok(When::Word(word.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, given: A) -> Result<When, A::Error> {
                WhenTable::deserialize(MapAccessDeserializer::new(given)).map(When::Table)
            }
        }

        deserializer.deserialize_any(Given)
    }
}
