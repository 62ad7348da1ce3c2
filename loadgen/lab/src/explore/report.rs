//! The results of searches, for people and for programs.

use std::fmt::Write as _;

use stickycas_harness::report::table::grouped;
use stickycas_harness::report::table::{align_right, grid};

use super::Report;

/// The report as a table, with what speaks against a claim below it.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut table =
        grid(["claim", "what", "n", "searches", "states", "transitions", "phases", "time", "result"]);
    for row in &report.rows {
        table.add_row([
            row.claim.clone(),
            row.part.to_owned(),
            row.n.to_string(),
            row.searches.to_string(),
            grouped(row.states),
            grouped(row.transitions),
            row.deepest.to_string(),
            format!("{:.1} s", row.seconds),
            match (row.against.len() as u64, row.disagreements) {
                (0, _) if row.searches < row.planned => format!("{} of {} done", row.searches, row.planned),
                (0, 0) if row.claim == "a" => "no disagreement".to_owned(),
                (0, 0) => "holds".to_owned(),
                (0, split) => format!("disagreement in {split}"),
                (failed, _) => format!("FAILS in {failed}"),
            },
        ]);
    }
    align_right(&mut table, 2..8);
    let mut text = format!("{table}\n");
    write_rest(&mut text, report).expect("writing to a string does not fail");
    text
}

fn write_rest(text: &mut String, report: &Report) -> std::fmt::Result {
    for row in report.rows.iter().filter(|row| !row.against.is_empty()) {
        for reason in &row.against {
            writeln!(text, "claim {} ({}), n = {}: {reason}", row.claim, row.part, row.n)?;
        }
    }
    let sum = |of: fn(&super::Row) -> u64| grouped(report.rows.iter().map(of).sum());
    writeln!(
        text,
        "{} searches, {} states, {} transitions in {:.1} s, {} at a time; every rule checked in every state (d)",
        sum(|row| row.searches),
        sum(|row| row.states),
        sum(|row| row.transitions),
        report.seconds,
        report.jobs,
    )?;
    let left = report.planned - report.rows.iter().map(|row| row.searches).sum::<u64>();
    match (report.holds(), report.interrupted) {
        (false, _) => writeln!(text, "NOT EVERY CLAIM HOLDS")?,
        (true, true) => writeln!(text, "interrupted: {left} of {} searches were not made", report.planned)?,
        (true, false) => writeln!(text, "every claim holds")?,
    }
    if let Some(witness) = &report.witness {
        writeln!(text, "\n{witness}")?;
    }
    Ok(())
}

/// The report as JSON, ending in a line break.
#[must_use]
pub fn json(report: &Report) -> String {
    stickycas_harness::report::json::text(report)
}
