//! An explanation as text for a terminal: the run, its outcome and the reasons. The words are those of the
//! page ([`stickycas_page::explanation`]).

use std::fmt::{Result, Write};

use stickycas_model::judge::Explanation;
use stickycas_model::printable::printable;
use stickycas_page::explanation::{Block, ExplainedRun, Place, Table};
use textwrap::Options;

use crate::record::{ExecutionMode, Record};
use crate::report::table::grid;

/// The most rows of a list that are shown.
pub const ROWS: usize = 64;

/// Characters in a line.
const WIDTH: usize = 108;

/// The explanation of a run as text, with at most so many rows and sentences of each kind.
#[must_use]
pub fn text(record: &Record, explanation: &Explanation, rows: usize) -> String {
    let mut text = String::new();
    write(&mut text, record, explanation, rows).expect("writing to a string does not fail");
    text
}

fn write(out: &mut String, record: &Record, explanation: &Explanation, rows: usize) -> Result {
    heading(out, record)?;
    for section in explained(record, explanation).sections(rows) {
        writeln!(out, "\n{}", section.title)?;
        for block in &section.blocks {
            match block {
                Block::Paragraph(text) => lines(out, "  ", "  ", text)?,
                Block::Point(text) => lines(out, "  - ", "    ", text)?,
                Block::Detail(text) => lines(out, "    ", "    ", text)?,
                Block::Table(Table { head, rows }) => {
                    let mut table = grid(head.iter().copied());
                    table.add_rows(rows);
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

fn heading(out: &mut String, record: &Record) -> Result {
    let scenario = &record.scenario;
    write!(out, "{}, {}", printable(&scenario.name), record.how)?;
    match record.how {
        ExecutionMode::Dumped => writeln!(out)?,
        _ => writeln!(out, ", seed {}", scenario.seed)?,
    }
    if !scenario.about.is_empty() {
        writeln!(out, "{}", printable(&scenario.about))?;
    }
    Ok(())
}

/// The text in lines, the first with this indent and the others with the second.
fn lines(out: &mut String, first: &str, others: &str, text: &str) -> Result {
    let options = Options::new(WIDTH).initial_indent(first).subsequent_indent(others).break_words(false);
    writeln!(out, "{}", textwrap::fill(text, options))
}
