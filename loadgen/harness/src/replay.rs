//! A run folder, replayed: the recorded inputs are fed to a fresh machine, which must do again what the
//! record says, event by event, and the judge must come to the same verdict, field by field.
//!
//! The comparison:
//! - each event with what the machine of the simulator does, which is the machine that the server runs:
//!   entries, answers, phases, offences ([`sim::replay`]);
//! - each field of `verdict.json` with what the judge says now, given the folder's scenario, history and
//!   reports. Verdicts of versions 1 and 2 judge some runs in another way
//!   ([`VERDICT_VERSION`](stickycas_model::judge::VERDICT_VERSION)): of these runs the fields concerned are
//!   not compared.
//!
//! So a reader who doubts a run need not trust its server, its harness or its verdict: their claims follow
//! from the inputs, or they do not. Only the processes' own reports show that the inputs are the ones that
//! were sent.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use stickycas_model::describe;
use stickycas_model::history::Recorded;
use stickycas_model::judge::{Observed, Verdict};
use stickycas_model::params::Params;
use stickycas_model::sim::{self, Difference};
use stickycas_model::types::Time;

use crate::report::folder::Folder;
use crate::report::grid::counted;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayResult {
    /// Whether it came out the same.
    pub same: bool,
    /// Events in the record.
    pub events: usize,
    /// The first event that came out differently.
    pub difference: Option<DifferentEvent>,
    /// Fields of the verdict that came out differently.
    pub fields: Vec<DifferentField>,
    /// Fields that were not compared, since their meaning has changed since the verdict was written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
}

/// The first event that came out differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentEvent {
    /// Its index, from 0.
    pub index: usize,
    /// The event of the record; `None` at its end.
    pub expected: Option<Recorded>,
    /// The event of the machine; `None` if there is none.
    pub got: Option<Recorded>,
}

/// A field of the verdict that came out differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentField {
    /// Its name.
    pub field: String,
    /// The value in `verdict.json`; `None` if the field is not there.
    pub expected: Option<serde_json::Value>,
    /// The value of the judge now; `None` if the field is not there.
    pub got: Option<serde_json::Value>,
}

/// Replays the run of a folder and judges it again.
#[must_use]
pub fn replay(folder: &Folder) -> ReplayResult {
    let difference = first_difference(&folder.scenario.params, &folder.history);
    let judged = folder.judged_again().verdict;
    let not_compared = changed_meaning(folder, &judged);
    let fields = different_fields(folder, &judged, &not_compared);
    let same = difference.is_none() && fields.is_empty();
    let not_compared = not_compared.into_iter().map(str::to_owned).collect();
    ReplayResult { same, events: folder.history.len(), difference, fields, not_compared }
}

/// Replays a whole history; `None`: the same came out again.
pub(crate) fn first_difference(params: &Arc<Params>, history: &[Recorded]) -> Option<DifferentEvent> {
    let replayed = sim::replay(params, history);
    replayed.err().map(|Difference { index, expected, got }| DifferentEvent {
        index,
        expected: expected.map(|recorded| *recorded),
        got: got.map(|recorded| *recorded),
    })
}

/// Fields that mean something else since verdicts have version 2, in a run in which a correct process has not
/// decided.
const SINCE_VERSION_1: &[&str] =
    &["termination", "termination_promised", "termination_missing_premise", "verdict", "reasons", "witness"];

/// Fields that mean something else since verdicts have version 3, in a run in which a correct process does
/// not act as Algorithm 1 says, or a nested strategy is seen by what it was not seen by before.
const SINCE_VERSION_2: &[&str] = &["verdict", "reasons", "fired", "culprits", "named", "unnamed"];

/// The fields of the verdict of this folder that mean something else by now, given what the judge says of it
/// now.
fn changed_meaning(folder: &Folder, judged: &Verdict) -> Vec<&'static str> {
    let version = folder.verdict.get("version").and_then(serde_json::Value::as_u64);
    let Some(1..=2) = version else { return Vec::new() };
    let mut fields = vec!["version", "deviated"];
    // All correct processes decided: version 1 judges such a run alike.
    if version == Some(1) && judged.termination != Observed::Held {
        fields.extend(SINCE_VERSION_1);
    }
    let told = |field| folder.verdict.get(field).cloned().unwrap_or_default();
    let alike = told("culprits") == serde_json::json!(judged.culprits)
        && told("fired") == serde_json::json!(judged.fired);
    if !judged.deviated.is_empty() || !alike {
        let more = SINCE_VERSION_2.iter().filter(|field| !fields.contains(field));
        fields.extend(more.copied().collect::<Vec<_>>());
    }
    fields
}

fn different_fields(folder: &Folder, judged: &Verdict, not_compared: &[&str]) -> Vec<DifferentField> {
    let judged: serde_json::Map<_, _> = serde_json::to_value(judged)
        .and_then(serde_json::from_value)
        .expect("a verdict is a record of fields that JSON can hold");
    let told = &folder.verdict;
    let added = told.keys().filter(|field| !judged.contains_key(*field));
    let compared = judged.keys().chain(added).filter(|field| !not_compared.contains(&field.as_str()));
    let different = compared.filter(|field| told.get(*field) != judged.get(*field));
    different
        .map(|field| DifferentField {
            field: field.clone(),
            expected: told.get(field).cloned(),
            got: judged.get(field).cloned(),
        })
        .collect()
}

/// In words.
impl fmt::Display for ReplayResult {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.same {
            let events = counted(self.events as u64, "event");
            let fields =
                if self.not_compared.is_empty() { "every field" } else { "every field that was compared" };
            writeln!(out, "replay: the same: {events}, one by one, and the verdict in {fields}")?;
            return self.write_not_compared(out);
        }
        writeln!(out, "replay: different")?;
        if let Some(difference) = &self.difference {
            let index = difference.index;
            writeln!(
                out,
                "the first event that differs is number {index}, line {} of history.ndjson",
                index + 1
            )?;
            difference.write_both(out)?;
        } else {
            writeln!(out, "the {} events came out again one by one", self.events)?;
        }
        for DifferentField { field, expected, got } in &self.fields {
            writeln!(out, "the field {field} of the verdict differs")?;
            writeln!(
                out,
                "  verdict.json says  {}",
                json(expected.as_ref(), "nothing: it has no such field")
            )?;
            writeln!(out, "  the judge says     {}", json(got.as_ref(), "nothing of the kind"))?;
        }
        self.write_not_compared(out)
    }
}

impl DifferentEvent {
    /// Both events, a line each.
    pub(crate) fn write_both(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, got, .. } = self;
        writeln!(out, "  the record says  {}", event(expected.as_ref(), "nothing: it ends here"))?;
        writeln!(out, "  the machine did  {}", event(got.as_ref(), "nothing that is not on record already"))
    }
}

impl ReplayResult {
    fn write_not_compared(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not_compared.is_empty() {
            return Ok(());
        }
        let fields = self.not_compared.join(", ");
        writeln!(out, "not compared, since verdict.json has an older version: {fields}")
    }
}

fn event(recorded: Option<&Recorded>, nothing: &str) -> String {
    recorded.map_or_else(
        || nothing.to_owned(),
        |Recorded { at, event }| format!("after {:?}: {}", at.since(Time::ZERO), describe::event(event)),
    )
}

fn json(value: Option<&serde_json::Value>, nothing: &str) -> String {
    value.map_or_else(|| nothing.to_owned(), ToString::to_string)
}
