//! A plan as it is written: every key that there is, and where in the text each value stands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use stickycas_harness::files::instance::Instance;
use stickycas_harness::files::values::DurationText;
use stickycas_harness::files::{Spanned, schema};
use stickycas_model::judge::{Outcome, Property};
use stickycas_model::types::{AccessNumber, Phase, ProcessId};

use super::Action;

/// A plan: operations on services, their moments, and the evidence of a hit. See docs/start/demo.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "StickyCAS perturbation plan")]
pub(crate) struct File {
    /// Letters, digits, '-' and '_', at most 64.
    pub(super) name: Spanned<String>,
    /// The purpose of the plan, in one line.
    #[serde(default)]
    pub(super) about: String,
    /// The verdict that it expects.
    #[schemars(schema_with = "schema::outcome")]
    pub(super) expect: Outcome,
    /// Correct processes that are killed or the like: they count in f, unjudged.
    #[serde(default)]
    #[schemars(schema_with = "schema::processes")]
    pub(super) faulty: Vec<Spanned<ProcessId>>,
    /// Correct processes that are made to miss their first phase: they count in f.
    #[serde(default)]
    #[schemars(schema_with = "schema::processes")]
    pub(super) late: Vec<Spanned<ProcessId>>,
    /// The server has its log in memory, and so forgets when it stops.
    #[serde(default)]
    pub(super) in_memory: bool,
    /// As in scenarios: these keys take the place of the scenario's.
    #[serde(default)]
    #[schemars(with = "Instance")]
    pub(super) instance: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    /// The steps, in this order.
    #[serde(default)]
    pub(super) steps: Vec<Step>,
    #[serde(default)]
    pub(super) expectations: Expectations,
}

/// The `[instance]` of a plan, whatever else the plan has.
#[derive(Debug, Deserialize)]
pub(super) struct InstanceOf {
    #[expect(dead_code, reason = "read to see that its keys are those of scenarios")]
    pub(super) instance: Option<Instance>,
}

/// `[[steps]]`: a step is due when its moment has come and all steps before it are done.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// The moment: "before" the instance is created, or a table such as { phase = 9 }.
    pub(super) when: Spanned<When>,
    /// The operation on the services.
    #[serde(rename = "do")]
    pub(super) action: Action,
    /// The services: server, judge, process-1, process-2, ...; of a cluster server-1, owner (the server that
    /// owns the instance when it is first named), owner-2 (the next one), etcd-1, ...
    pub(super) services: Spanned<Vec<Spanned<String>>>,
    /// With disconnect, depose, drop_incoming and reconnect: this network alone, by its name in the compose
    /// file [default: all]; in the kill test the one with etcd.
    pub(super) network: Option<Spanned<String>>,
    /// The plan has failed if this moment comes before the step is done.
    pub(super) by: Option<Spanned<When>>,
    /// The step is undone after this time: a duration.
    pub(super) lasts: Option<Spanned<DurationText>>,
    /// Of the kill test, with kill: the server is started again with its clocks so far ahead: a duration.
    pub(super) ahead: Option<Spanned<DurationText>>,
}

/// `when` and `by`: a word, or a table with one key, the awaited moment.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum When {
    /// "before".
    Word(String),
    /// An event of the instance, or a time.
    Table(WhenTable),
}

/// A moment: one of these keys, access aside.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhenTable {
    /// Gathering has ended.
    pub(super) gathered: Option<bool>,
    /// This phase has come.
    #[schemars(with = "Option<u64>")]
    pub(super) phase: Option<Phase>,
    /// This process has joined.
    #[schemars(with = "Option<u32>")]
    pub(super) joined: Option<ProcessId>,
    /// An access of this process was accepted.
    #[schemars(with = "Option<u32>")]
    pub(super) accepted: Option<ProcessId>,
    /// An access of this process was executed.
    #[schemars(with = "Option<u32>")]
    pub(super) answered: Option<ProcessId>,
    /// With accepted and answered: which access [default: 1].
    #[schemars(with = "Option<u64>")]
    pub(super) access: Option<AccessNumber>,
    /// This process has reported its decision.
    #[schemars(with = "Option<u32>")]
    pub(super) decided: Option<ProcessId>,
    /// This time after the step before has passed: a duration.
    pub(super) after: Option<String>,
    /// Of the kill test: all servers have served for this time: a duration.
    pub(super) served: Option<String>,
    /// Of the kill test: all instances are under way.
    pub(super) under_way: Option<bool>,
    /// Of the kill test: all instances have ended.
    pub(super) ended: Option<bool>,
}

/// `[expectations]`: the evidence that the record of the run must have; without it the run proves nothing.
// Processes are keys of tables here, and so texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expectations {
    /// These processes have not joined.
    #[schemars(schema_with = "schema::processes")]
    pub never_joined: BTreeSet<ProcessId>,
    /// These processes have reported a decision.
    #[schemars(schema_with = "schema::processes")]
    pub decided: BTreeSet<ProcessId>,
    /// These processes have not reported a decision.
    #[schemars(schema_with = "schema::processes")]
    pub never_decided: BTreeSet<ProcessId>,
    /// The process has opened at least so many sessions.
    #[serde(deserialize_with = "by_process")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub sessions: BTreeMap<ProcessId, u64>,
    /// The sessions of the process were those of exactly so many lives of its client.
    #[serde(deserialize_with = "by_process")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub lives: BTreeMap<ProcessId, u64>,
    /// Exactly so many appends of the process were executed.
    #[serde(deserialize_with = "by_process")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub appends: BTreeMap<ProcessId, u64>,
    /// Between two neighbouring events nothing happened for this duration, or longer.
    pub still: Option<DurationText>,
    /// At one time a watcher of the instance saw nothing for this duration, or longer, by its own clock: the
    /// time of an instance stands still while no server serves it.
    pub quiet: Option<DurationText>,
    /// The number of processes that were told that the instance is unknown.
    pub told_unknown: Option<u32>,
    /// How often the server has restarted meanwhile, or another one has taken over.
    pub restarts: Option<usize>,
    /// At least so many servers of a cluster have owned the instance.
    pub owners: Option<usize>,
    /// The property was not promised, for a premise that the verdict names so.
    #[schemars(with = "BTreeMap<String, String>")]
    pub missing: BTreeMap<Property, String>,
}

fn by_process<'de, D: Deserializer<'de>>(given: D) -> Result<BTreeMap<ProcessId, u64>, D::Error> {
    let numbered = |(key, count): (String, u64)| {
        let process = key.parse().ok().and_then(ProcessId::new);
        let wanted = || D::Error::custom(format!("{key:?} is no process: give its number, as in 7 = 2"));
        Ok((process.ok_or_else(wanted)?, count))
    };
    BTreeMap::deserialize(given)?.into_iter().map(numbered).collect()
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
