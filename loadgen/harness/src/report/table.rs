//! The report for people: a line per process, the list, the verdict and what it rests on.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use stickycas_model::access::{Answer, AppendAnswer};
use stickycas_model::bounds::strong_validity;
use stickycas_model::describe;
use stickycas_model::history::Event;
use stickycas_model::judge::{Observed, Outcome, Property, Verdict};
use stickycas_model::params::Params;
use stickycas_model::predicates::appends_again;
use stickycas_model::printable::printable;
use stickycas_model::types::{Phase, ProcessId, Value};
use stickycas_page::promise::Bound;

use super::grid::{WIDTH, counted, grid_within, leave_out, width, wrapped};
pub use super::grid::{align_right, grid, grouped};
use crate::record::Record;

/// Rows shown on a terminal; the run folder has all.
pub const ROWS_ON_SCREEN: usize = 64;
/// Entries of the list shown on a terminal.
const ENTRIES_ON_SCREEN: usize = 64;
/// Characters of a value shown.
const SHOWN_OF_A_VALUE: usize = 24;

/// The report with at most so many rows and entries, with colours, as wide as the terminal.
#[must_use]
pub fn coloured(record: &Record, rows: usize) -> String {
    write(record, rows, emphasis(record.verdict.verdict), width())
}

/// The report with at most so many rows and entries, without colours.
#[must_use]
pub fn plain(record: &Record, rows: usize) -> String {
    write(record, rows, Style::new(), WIDTH)
}

/// How an outcome stands out on a terminal.
#[must_use]
pub fn emphasis(outcome: Outcome) -> Style {
    let colour = match outcome {
        Outcome::Valid => AnsiColor::Green,
        Outcome::Outside | Outcome::Unknown => AnsiColor::Yellow,
        Outcome::Violation => AnsiColor::Red,
    };
    Style::new().bold().fg_color(Some(colour.into()))
}

/// An outcome in a table of counts.
#[must_use]
pub fn counted_as(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Valid => "valid",
        Outcome::Outside => "broken, not promised",
        Outcome::Unknown => "proves nothing",
        Outcome::Violation => "violation",
    }
}

fn write(record: &Record, rows: usize, emphasis: Style, width: usize) -> String {
    let mut text = String::new();
    let written = heading(&mut text, record, width)
        .and_then(|()| processes(&mut text, record, rows, width))
        .and_then(|()| list(&mut text, record, rows, width))
        .and_then(|()| verdict(&mut text, record, emphasis, width));
    written.expect("writing to a string does not fail");
    text
}

fn heading(text: &mut String, record: &Record, width: usize) -> std::fmt::Result {
    let (scenario, params) = (&record.scenario, &record.scenario.params);
    writeln!(text, "{}: {}", printable(&scenario.name), record.how)?;
    if !scenario.about.is_empty() {
        text.push_str(&wrapped(&printable(&scenario.about), width, "", ""));
    }
    let (n, p, r) = (params.processes(), params.warp_size(), params.read_size());
    let rounds = match params.append_rounds() {
        1 => String::new(),
        rounds => format!(", q = {rounds}, T = {}", params.counted_entries()),
    };
    writeln!(text, "n = {n}, p = {p}, r = {r}{rounds}, W = {}, c = {}", params.warps(), params.reads())
}

/// The answered append of each process that tells what became of its proposal (K2), as the history shows it;
/// others come from repeating strategies.
fn decisive_appends(record: &Record) -> BTreeMap<ProcessId, (Phase, AppendAnswer)> {
    let mut appends = BTreeMap::new();
    for recorded in &record.history {
        if let Event::Answered { process, phase, answer: Answer::Append(answer), .. } = recorded.event {
            let told = appends.entry(process).or_insert((phase, answer));
            if told.1 == AppendAnswer::Failed && appends_again(&record.scenario.params, told.0) {
                *told = (phase, answer);
            }
        }
    }
    appends
}

fn processes(text: &mut String, record: &Record, rows: usize, width: usize) -> std::fmt::Result {
    let appends = decisive_appends(record);
    let columns = ["process", "warp", "role", "proposal", "append", "answer", "decided in", "decision"];
    // A file has every column.
    let mut table = grid_within(if rows == usize::MAX { usize::MAX } else { width }, columns);
    for (process, assignment) in record.scenario.truth.assignments().take(rows) {
        let append = appends.get(&process).copied();
        let decision = record.verdict.decisions.get(&process);
        let phase = |phase: Option<Phase>| phase.map_or_else(dash, |phase| format!("phase {phase}"));
        table.add_row([
            process.to_string(),
            record.scenario.params.warp_of(process).to_string(),
            assignment.role.to_string(),
            short(&assignment.proposal),
            phase(append.map(|(phase, _)| phase)),
            append.map_or_else(dash, |(_, answer)| describe::append_answer(answer)),
            phase(decision.and_then(|decision| decision.phase)),
            decision.map_or_else(dash, |decision| short(&decision.value)),
        ]);
    }
    align_right(&mut table, 0..2);
    // The phase of the append, the proposal, the phase of the decision, the warp.
    leave_out(&mut table, &[4, 3, 6, 1]);
    writeln!(text, "{table}")?;
    left_out(text, record.scenario.params.processes() as usize, rows, "process")
}

fn dash() -> String {
    "-".to_owned()
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_OF_A_VALUE) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

fn left_out(text: &mut String, all: usize, shown: usize, what: &str) -> std::fmt::Result {
    if all > shown {
        let more = counted((all - shown) as u64, what);
        writeln!(text, "and {more} more; report.txt in the run folder has all")?;
    }
    Ok(())
}

fn list(text: &mut String, record: &Record, rows: usize, width: usize) -> std::fmt::Result {
    let entries = &record.verdict.list;
    let limit = if rows == usize::MAX { rows } else { ENTRIES_ON_SCREEN };
    let values: Vec<String> = entries.iter().take(limit).map(short).collect();
    let shown = format!("list of {}: {}", entries.len(), values.join(" "));
    text.push_str(&wrapped(&shown, width, "", "  "));
    left_out(text, entries.len(), limit, "entry")
}

fn verdict(text: &mut String, record: &Record, emphasis: Style, width: usize) -> std::fmt::Result {
    let (verdict, params) = (&record.verdict, &record.scenario.params);
    let headline = wrapped(&format!("verdict: {}", verdict.headline()), width, "", "  ");
    let title = verdict.verdict.title();
    // Styled behind the arrangement, which would count the codes of colours as characters.
    text.push_str(&headline.replacen(title, &format!("{emphasis}{title}{emphasis:#}"), 1));
    for property in Property::ALL {
        let (observed, missing) = verdict.finding(property);
        let observed = match observed {
            Observed::Held => "held",
            Observed::Violated => "violated",
            Observed::Unknown => "unknown",
        };
        let promised = match missing {
            None => "promised".to_owned(),
            Some(premise) => format!("not promised: {premise}"),
        };
        let line = format!("{property:<21}  {observed:<8}  {promised}");
        text.push_str(&wrapped(&line, width, "  ", "    "));
    }
    text.push_str(&wrapped(&theorem(verdict, params), width, "", "  "));
    if let Some(last) = verdict.last_decision_phase {
        let rounds = if params.append_rounds() == 1 { "1" } else { "q" };
        writeln!(text, "last decision: phase {last}, bound W*({rounds}+c+m) = {}", verdict.phase_bound)?;
    }
    if !verdict.late.is_empty() {
        let late: Vec<String> = verdict.late.iter().map(ToString::to_string).collect();
        let late = format!("late correct processes, counted in f: {}", late.join(", "));
        text.push_str(&wrapped(&late, width, "", "  "));
    }
    blame(text, verdict)?;
    sentences(text, "reasons", &verdict.reasons, width);
    sentences(text, "witness", &verdict.witness, width);
    Ok(())
}

/// The bound of Theorem 1 with the numbers of the run (V3).
fn theorem(verdict: &Verdict, params: &Params) -> String {
    let Verdict { f, distinct_correct_proposals: values, .. } = *verdict;
    let bound = Bound::of(params);
    let says = if strong_validity(params, f, values).is_ok() { "inside" } else { "beyond" };
    format!("theorem: {}: {}: {says} the bound", bound.formula(), bound.strong(f, values))
}

/// The processes with offences on record, beside those that were observed to commit one (B2, B3).
fn blame(text: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let Verdict { blame, culprits, named, unnamed, accused_correct, .. } = verdict;
    if blame.is_empty() && culprits.is_empty() {
        return Ok(());
    }
    let (culprits, named) = (culprits.len(), named.len());
    write!(text, "blame: {named} of {culprits} culprits named, {} correct processes", accused_correct.len())?;
    if !unnamed.is_empty() {
        let unnamed: Vec<String> = unnamed.iter().map(ToString::to_string).collect();
        write!(text, "; got away: {}", unnamed.join(", "))?;
    }
    writeln!(text)
}

fn sentences(text: &mut String, title: &str, sentences: &[String], width: usize) {
    if sentences.is_empty() {
        return;
    }
    text.push_str(title);
    text.push_str(":\n");
    for sentence in sentences {
        text.push_str(&wrapped(sentence, width, "  - ", "    "));
    }
}
