//! The results of searches, for people and for programs.

use std::fmt;

use comfy_table::Table;
use stickycas_harness::report::grid::{align_right, grid, grouped, leave_out, width, wrapped};

use super::Report;

/// As a table, with what speaks against a claim below it.
impl fmt::Display for Report {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(text, "{}", table(self))?;
        write_rest(text, self)
    }
}

fn table(report: &Report) -> Table {
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
    leave_out(&mut table, &[5, 6, 4]);
    table
}

fn write_rest(text: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    for row in report.rows.iter().filter(|row| !row.against.is_empty()) {
        for reason in &row.against {
            let line = format!("claim {} ({}), n = {}: {reason}", row.claim, row.part, row.n);
            text.write_str(&wrapped(&line, width(), "", "  "))?;
        }
    }
    let sum = |of: fn(&super::Row) -> u64| grouped(report.rows.iter().map(of).sum());
    let line = format!(
        "{} searches, {} states, {} transitions in {:.1} s, {} at a time; every rule checked in every state (d)",
        sum(|row| row.searches),
        sum(|row| row.states),
        sum(|row| row.transitions),
        report.seconds,
        report.jobs,
    );
    text.write_str(&wrapped(&line, width(), "", "  "))?;
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
