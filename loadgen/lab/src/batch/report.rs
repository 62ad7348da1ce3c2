//! The report of many runs of one scenario, for people and for programs.

use std::fmt;

use comfy_table::Table;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use stickycas_harness::command_line::{self, OF_MANY_RUNS};
use stickycas_harness::files::schema_of_result;
use stickycas_harness::report::grid::{align_right, counted, grid, grouped, leave_out, width, wrapped};
use stickycas_harness::report::table::counted_as;
use stickycas_model::judge::{Outcome, Property};

use super::{Extent, OutcomeCount, Tally};

/// The JSON Schema of [`Batch`].
#[must_use]
pub fn schema() -> Schema {
    schema_of_result::<Batch<'_>>()
}

fn outcome_or_null(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<Option<Outcome>> = Outcome::ALL.into_iter().map(Some).chain([None]).collect();
    json_schema!({ "type": ["string", "null"], "enum": words })
}

/// Many runs of one scenario, counted: `simulate --runs --json`.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(title = "StickyCAS simulated runs")]
pub struct Batch<'a> {
    /// The scenario's name.
    pub name: &'a str,
    /// Its file.
    pub file: &'a str,
    /// The seed of the first run; each of the others has the next one.
    #[serde(with = "stickycas_model::seed_text")]
    #[schemars(with = "String")]
    pub first_seed: u64,
    /// How many runs were asked for; if there are fewer, it was interrupted.
    pub asked: u64,
    /// The verdict that every run should have; by default `valid`.
    #[schemars(schema_with = "outcome_or_null")]
    pub expected: Option<Outcome>,
    /// Their verdicts, counted.
    pub tally: &'a Tally,
}

/// For people.
impl fmt::Display for Batch<'_> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, first_seed, asked, tally, .. } = self;
        let heading = format!(
            "{name}: {} of {} in the simulator, seeds from {first_seed} on",
            grouped(tally.runs),
            counted(*asked, "run")
        );
        text.write_str(&line(&heading))?;
        writeln!(text, "{}", self.verdicts())?;
        writeln!(text, "{}", self.properties())?;
        if let (Some(last), Some(bound)) = (tally.last_decision_phase, tally.phase_bound) {
            let last = format!("last decision: phase {}, bound W*(1+c+m) = {}", extent(last), extent(bound));
            text.write_str(&line(&last))?;
        }
        if let Some(entries) = tally.entries {
            writeln!(text, "entries: {}", extent(entries))?;
        }
        if tally.late.runs > 0 {
            writeln!(text, "runs with late correct processes: {}", tally.late.runs)?;
        }
        let Tally { culprits, named, blamed, accused_correct, .. } = tally;
        let offences = format!(
            "offences: {named} of {} named, {} blamed, {accused_correct} of them correct",
            counted(*culprits, "culprit"),
            counted(*blamed, "process")
        );
        text.write_str(&line(&offences))?;
        self.commands(text)
    }
}

impl Batch<'_> {
    fn verdicts(&self) -> Table {
        let mut table = grid(["verdict", "runs", "first seed"]);
        for outcome in Outcome::ALL {
            let OutcomeCount { runs, first_seed } = self.tally.verdicts.of(outcome);
            table.add_row([counted_as(outcome).to_owned(), runs.to_string(), seed(*first_seed)]);
        }
        align_right(&mut table, 1..);
        table
    }

    fn properties(&self) -> Table {
        let mut table =
            grid(["property", "held", "broke", "unknown", "promised", "first seed that broke it"]);
        for property in Property::ALL {
            let found = self.tally.properties.of(property);
            table.add_row([
                property.to_string(),
                found.held.to_string(),
                found.broken.runs.to_string(),
                found.unknown.to_string(),
                found.promised.to_string(),
                seed(found.broken.first_seed),
            ]);
        }
        align_right(&mut table, 1..);
        leave_out(&mut table, &[3, 5]);
        table
    }

    /// For each verdict other than the expected one, the command that repeats the first run that had it.
    fn commands(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.expected.unwrap_or(Outcome::Valid);
        for outcome in Outcome::ALL.into_iter().filter(|outcome| *outcome != expected) {
            if let Some(seed) = self.tally.verdicts.of(outcome).first_seed {
                let again = command_line::again(seed, &OF_MANY_RUNS);
                writeln!(text, "to repeat {}: {again}", outcome.title())?;
            }
        }
        Ok(())
    }
}

/// A sentence as wide as the terminal.
fn line(text: &str) -> String {
    wrapped(text, width(), "", "  ")
}

fn seed(seed: Option<u64>) -> String {
    seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string())
}

fn extent(Extent { least, most }: Extent) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}
