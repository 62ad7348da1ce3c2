//! An explanation as text for a terminal: the run, its outcome and the reasons. The words are those of the
//! page ([`stickycas_page::explanation`]).

use std::fmt::{Result, Write};

use stickycas_model::judge::Explanation;
use stickycas_model::printable::printable;
use stickycas_page::explanation::{Block, ExplainedRun, Place, Table};

use crate::record::{ExecutionMode, Record};
use crate::report::grid::{grid_within, leave_out, wrapped};

/// The most rows of a list that are shown.
pub const ROWS: usize = 64;

/// The explanation of a run as text, with at most so many rows and sentences of each kind, in lines of so
/// many characters.
#[must_use]
pub fn text(record: &Record, explanation: &Explanation, rows: usize, width: usize) -> String {
    let mut text = String::new();
    write(&mut text, record, explanation, rows, width).expect("writing to a string does not fail");
    text
}

fn write(out: &mut String, record: &Record, explanation: &Explanation, rows: usize, width: usize) -> Result {
    heading(out, record, width)?;
    for section in explained(record, explanation).sections(rows) {
        out.push('\n');
        out.push_str(&wrapped(&section.title, width, "", ""));
        for block in &section.blocks {
            match block {
                Block::Paragraph(text) => out.push_str(&wrapped(text, width, "  ", "  ")),
                Block::Point(text) => out.push_str(&wrapped(text, width, "  - ", "    ")),
                Block::Detail(text) => out.push_str(&wrapped(text, width, "    ", "    ")),
                Block::Table(Table { head, rows }) => {
                    let mut table = grid_within(width, head.iter().copied());
                    table.add_rows(rows);
                    // The last ones matter least.
                    leave_out(&mut table, &(3..head.len()).rev().collect::<Vec<_>>());
                    writeln!(out, "{table}")?;
                }
                Block::LeftOut(more) => writeln!(out, "  and {more} more; --json has all")?,
            }
        }
    }
    Ok(())
}

fn explained<'a>(record: &'a Record, explanation: &'a Explanation) -> ExplainedRun<'a> {
    let place = match record.how {
        ExecutionMode::Dumped => Place::Server,
        _ => Place::RunFolder,
    };
    ExplainedRun { params: &record.scenario.params, history: &record.history, place, explanation }
}

fn heading(out: &mut String, record: &Record, width: usize) -> Result {
    let scenario = &record.scenario;
    write!(out, "{}, {}", printable(&scenario.name), record.how)?;
    match record.how {
        ExecutionMode::Dumped => writeln!(out)?,
        _ => writeln!(out, ", seed {}", scenario.seed)?,
    }
    if !scenario.about.is_empty() {
        out.push_str(&wrapped(&printable(&scenario.about), width, "", ""));
    }
    Ok(())
}
