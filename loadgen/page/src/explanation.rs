//! An explanation in words: the run, its outcome and the reasons, for a reader who does not know the paper.
//!
//! The facts are those of [`Explanation`], which the judge draws from the history; this module adds none. The
//! result is a list of sections that a terminal, a file or a page lays out, each in its own way.

use serde::Serialize;

use stickycas_model::bounds;
use stickycas_model::describe::{event, offence_kind};
use stickycas_model::history::Recorded;
use stickycas_model::judge::{
    Breach, DecisionGroup, Explanation, FaultReason, Margin, Observed, Outcome, Property, ValueCounts,
    Verdict, WonEntry,
};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params};
use stickycas_model::types::{ProcessId, Value, WarpId};

use crate::promise::Bound;

/// A part of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its title, without a full stop.
    pub title: String,
    /// Its content, in order.
    pub blocks: Vec<Block>,
}

/// A block of a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// A paragraph.
    Paragraph(String),
    /// A point of a list.
    Point(String),
    /// A detail of the paragraph or point before it.
    Detail(String),
    /// A table.
    Table(Table),
    /// So many rows or points more are left out.
    LeftOut(usize),
}

/// A table of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The heads of its columns.
    pub head: Vec<&'static str>,
    /// Its rows, each with a text for each column.
    pub rows: Vec<Vec<String>>,
}

/// Where the events of a run stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In `history.ndjson`, whole; the ground truth is known.
    RunFolder,
    /// In the log or the memory of a server, which does not know who is Byzantine: a process with an offence
    /// on record counts as faulty.
    Server,
}

/// An explanation as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reasons {
    /// The verdict.
    pub verdict: Outcome,
    /// The verdict in one line.
    pub headline: String,
    /// The sections; the first has the headline as its title.
    pub sections: Vec<Section>,
}

/// A run with its explanation.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedRun<'a> {
    /// The parameters of the instance.
    pub params: &'a Params,
    /// Its events, in order.
    pub history: &'a [Recorded],
    /// Where these stand.
    pub place: Place,
    /// The findings of the judge.
    pub explanation: &'a Explanation,
}

impl ExplainedRun<'_> {
    /// The sections with the verdict.
    #[must_use]
    pub fn reasons(&self, rows: usize) -> Reasons {
        let verdict = self.verdict();
        Reasons { verdict: verdict.verdict, headline: verdict.headline(), sections: self.sections(rows) }
    }

    /// The explanation, with at most so many rows and points of each kind.
    #[must_use]
    pub fn sections(&self, rows: usize) -> Vec<Section> {
        let mut sections = vec![self.outcome(rows), self.setting(), self.list(rows)];
        sections.extend(self.restarts(rows));
        sections.extend([
            self.choices(rows),
            self.faulty(rows),
            self.properties(),
            self.broke(rows),
            self.blame(rows),
        ]);
        sections
    }

    fn verdict(&self) -> &Verdict {
        &self.explanation.verdict
    }

    fn outcome(&self, rows: usize) -> Section {
        let verdict = self.verdict();
        let meaning = match (self.place, verdict.verdict) {
            // A server knows of no plan.
            (Place::Server, Outcome::Valid) => "Every promise and every rule was kept.",
            (Place::Server, Outcome::Unknown) => "The history does not show enough.",
            (_, outcome) => outcome_meaning(outcome),
        };
        let mut section = Section::new(verdict.headline());
        section.paragraph(meaning);
        section.each(&verdict.reasons, rows, |section, reason| section.point(reason.clone()));
        section
    }

    /// The rules, with the numbers of this run.
    fn setting(&self) -> Section {
        let params = self.params;
        let (n, p, r, warps) = (params.processes(), params.warp_size(), params.read_size(), params.warps());
        let mut section = Section::new("What was run");
        section.paragraph(format!(
            "n = {n} processes were to agree on a value. Each correct one proposes a value, appends it to a list that all \
             of them share, reads the list, and decides the value that stands in it most often; if several stand equally \
             often, the smallest of these. Byzantine processes do as they like."
        ));
        section.paragraph(format!(
            "The processes form W = {warps} warps, groups of {}p = {p}. Time passes in phases, one warp at a time, {}. In a \
             phase each process of the warp may append or read once. Of its appends one wins, {}, and adds an entry; the \
             others fail. A read returns up to r = {r} entries.",
            if n % p == 0 { "" } else { "up to " },
            order(params),
            arbiter(params)
        ));
        section.paragraph(format!("{}.", append_window(params)));
        section
    }

    fn list(&self, rows: usize) -> Section {
        let all = &self.explanation.entries;
        let mut section = Section::new(format!("The list: {}", entries(all.len() as u64)));
        if all.is_empty() {
            section.paragraph("Nobody added any.");
            return section;
        }
        let byzantine = &self.verdict().byzantine;
        let row = |entry: &WonEntry| {
            vec![
                entry.position.to_string(),
                entry.value.to_string(),
                processes(&[entry.process]),
                byzantine.get(&entry.process).cloned().unwrap_or_else(|| "correct".to_owned()),
                entry.phase.to_string(),
                entry.warp.to_string(),
                processes(&entry.against),
            ]
        };
        section.blocks.push(Block::Table(Table {
            head: vec!["position", "value", "added by", "who is", "in phase", "of warp", "won against"],
            rows: all.iter().take(rows).map(row).collect(),
        }));
        section.left_out(all.len(), rows);
        let of_byzantine = all.iter().filter(|entry| byzantine.contains_key(&entry.process)).count();
        section
            .paragraph(format!("Byzantine processes added {of_byzantine} of {}.", entries(all.len() as u64)));
        let added: std::collections::BTreeSet<WarpId> = all.iter().map(|entry| entry.warp).collect();
        let warps = (0..self.params.warps() as usize).filter_map(WarpId::from_index);
        let without: Vec<String> =
            warps.filter(|warp| !added.contains(warp)).map(|warp| warp.to_string()).collect();
        if !without.is_empty() {
            section.paragraph(format!("Warps that added none: {}.", without.join(", ")));
        }
        section
    }

    fn restarts(&self, rows: usize) -> Option<Section> {
        let restarts = &self.explanation.restarts;
        if restarts.is_empty() {
            return None;
        }
        let mut section = Section::new("The server restarted");
        section.each(restarts, rows, |section, restart| {
            let when = match restart.after {
                None => "before the first phase".to_owned(),
                Some(phase) => format!("after phase {phase}"),
            };
            let accesses = if restart.waiting == 1 { "access" } else { "accesses" };
            section.paragraph(format!("{}, with {} {accesses} waiting.", capital(&when), restart.waiting));
        });
        section.paragraph(
            "The list and the waiting accesses are to be as they were, and no process is to miss a phase by it.",
        );
        Some(section)
    }

    fn choices(&self, rows: usize) -> Section {
        let mut section = Section::new("What correct processes decided, and why");
        if self.explanation.choices.is_empty() {
            section.paragraph("None of them decided.");
        }
        section.each(&self.explanation.choices, rows, |section, group| choice(section, group, self.place));
        section
    }

    fn faulty(&self, rows: usize) -> Section {
        let mut section = Section::new(format!("Who counts as faulty: f = {}", self.verdict().f));
        if self.explanation.faulty.is_empty() {
            section.paragraph("Nobody.");
        }
        section.each(&self.explanation.faulty, rows, |section, faulty| {
            let process = faulty.process;
            section.paragraph(match &faulty.why {
                FaultReason::Byzantine(part) => format!("process {process} is Byzantine: it plays {part}"),
                FaultReason::Planned if self.place == Place::Server => {
                    format!("process {process} has an offence on record")
                }
                FaultReason::Planned => format!(
                    "process {process} is correct, but the plan has it killed, paused or robbed of its memory"
                ),
                FaultReason::Late if self.params.append_rounds() > 1 => format!(
                    "process {process} is correct, but late: it missed an append round, and has no entry"
                ),
                FaultReason::Late => format!(
                    "process {process} is correct, but late: it missed its first phase, and so its chance to append"
                ),
            });
        });
        section
    }

    fn properties(&self) -> Section {
        let verdict = self.verdict();
        let mut section = Section::new("What consensus asks for, whether it was promised, and what was seen");
        for property in Property::ALL {
            let (observed, missing) = verdict.finding(property);
            let seen = match observed {
                Observed::Held => "held",
                Observed::Violated => "BROKE",
                Observed::Unknown => "not shown",
            };
            section.paragraph(format!("{property}: {seen}. {}.", property_meaning(property)));
            section.detail(match missing {
                None if property == Property::CommonValidity && verdict.distinct_correct_proposals != 1 => {
                    "It was promised. Correct processes proposed different values, so it asks for nothing."
                        .to_owned()
                }
                None => "It was promised.".to_owned(),
                Some(premise) => format!("It was not promised, for a premise is missing: {premise}."),
            });
        }
        self.bound(&mut section);
        section
    }

    /// Theorem 1 with the numbers of this run (V3).
    fn bound(&self, section: &mut Section) {
        let Verdict { f, distinct_correct_proposals: values, .. } = *self.verdict();
        let bound = Bound::of(self.params);
        let largest = bounds::largest_f(self.params, values);
        section.paragraph(format!(
            "The theorem: with |Vc| = {values} different proposals of correct processes, strong validity is promised while \
             {}. Here {}; it holds up to f = {largest}.",
            bound.formula(),
            bound.strong(f, values)
        ));
        if let Some(last) = self.verdict().last_decision_phase {
            section.paragraph(format!(
                "The last decision fell in phase {last}; the bound W*({}+c+m) is phase {}.",
                if self.params.append_rounds() == 1 { "1" } else { "q" },
                self.verdict().phase_bound
            ));
        }
    }

    fn broke(&self, rows: usize) -> Section {
        let mut section = Section::new("What broke first");
        if self.explanation.broke.is_empty() {
            section.paragraph("Nothing broke.");
        }
        section.each(&self.explanation.broke, rows, |section, Breach { property, event: index, says }| {
            section.paragraph(match property {
                Some(property) => format!("{property}: {says}"),
                None => format!("a rule: {says}"),
            });
            section.detail(match *index {
                None => "No event shows it: it is something that never came, or only reported.".to_owned(),
                Some(index) => match self.history.get(index) {
                    Some(recorded) => format!("{}: {}", self.place_of(index), event(&recorded.event)),
                    None => format!("at the end of the history, after its {index} events"),
                },
            });
        });
        section
    }

    /// Where the event with this index stands.
    fn place_of(&self, index: usize) -> String {
        match self.place {
            Place::Server => format!("event {index} of those that are kept"),
            Place::RunFolder => format!("line {} of history.ndjson", index + 1),
        }
    }

    /// Offences on record, held against who was seen to commit one (B2, B3).
    fn blame(&self, rows: usize) -> Section {
        let Verdict { blame, culprits, named, unnamed, accused_correct, .. } = self.verdict();
        let mut section = Section::new("Offences on record");
        if blame.is_empty() {
            section.paragraph("None.");
        }
        section.each(&blame.iter().collect::<Vec<_>>(), rows, |section, (process, kinds)| {
            let kinds = kinds.iter().map(|(kind, count)| format!("{} ({count})", offence_kind(*kind)));
            section.paragraph(format!("process {process}: {}", kinds.collect::<Vec<_>>().join(", ")));
        });
        if self.place == Place::Server {
            // It knows neither who is Byzantine nor what they played.
            return section;
        }
        section.paragraph(format!(
            "Seen to commit an offence that can be proved: {}; of these on record: {}.",
            processes(culprits),
            named.len()
        ));
        if !unnamed.is_empty() {
            section.paragraph(format!("Got away: {}.", processes(unnamed)));
        }
        section.paragraph(format!("Correct processes accused: {}.", processes(accused_correct)));
        let fired: Vec<String> =
            self.verdict().fired.iter().map(|(attack, count)| format!("{attack} ({count})")).collect();
        if !fired.is_empty() {
            section.paragraph(format!("Attacks seen at work: {}.", fired.join(", ")));
        }
        section
    }
}

impl Section {
    fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    fn paragraph(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Paragraph(text.into()));
    }

    fn point(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Point(text.into()));
    }

    fn detail(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Detail(text.into()));
    }

    /// The first of these, and how many more there are.
    fn each<T>(&mut self, things: &[T], rows: usize, mut write: impl FnMut(&mut Self, &T)) {
        things.iter().take(rows).for_each(|thing| write(self, thing));
        self.left_out(things.len(), rows);
    }

    fn left_out(&mut self, all: usize, rows: usize) {
        let more = all.saturating_sub(rows);
        if more > 0 {
            self.blocks.push(Block::LeftOut(more));
        }
    }
}

fn choice(section: &mut Section, choice: &DecisionGroup, place: Place) {
    let DecisionGroup { value, processes: who, tally } = choice;
    section.paragraph(format!("{} decided {value}.", capital(&processes(who))));
    let Some(tally) = tally else {
        section.detail(match place {
            Place::Server => "What they computed it from is on their own side.",
            Place::RunFolder => "An earlier life had read the entries; what they were is not known any more.",
        });
        return;
    };
    let counts: Vec<String> =
        tally.counts.iter().map(|count| format!("{} x {}", count.entries, count.value)).collect();
    section.detail(format!("From {}: {}.", entries(tally.entries), counts.join(", ")));
    if !tally.tied.is_empty() {
        let tied: Vec<String> = tally.tied.iter().map(Value::to_string).collect();
        section.detail(format!(
            "The tie rule decided: {} stand equally often, and {value} is the smallest.",
            tied.join(", ")
        ));
    }
    section.blocks.extend(margin(tally).map(Block::Detail));
}

fn margin(tally: &ValueCounts) -> Option<String> {
    let (first, Margin { entries: changed, rival }) = (tally.counts.first()?, tally.margin.as_ref()?);
    let mode = &first.value;
    let another = match rival {
        Some(rival) => rival.to_string(),
        None if 2 * changed == first.entries => format!("a new value, smaller than {mode},"),
        None => "a new value".to_owned(),
    };
    Some(format!(
        "The margin is {}: had {changed} of the {mode} been {another} instead, that would have been decided. To change \
         fewer entries, whichever and to whatever, would have changed nothing.",
        entries(*changed)
    ))
}

/// The text with a capital at its beginning.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// The meaning of a verdict, in a sentence.
#[must_use]
pub fn outcome_meaning(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Valid => "Every promise and every rule was kept, and the run did what it was meant to do.",
        Outcome::Outside => {
            "A property broke that was not promised here: a premise of the promise was missing. This is no bug."
        }
        Outcome::Unknown => "The run proves nothing: not all that was planned happened, or more than that.",
        Outcome::Violation => "A promise or a rule broke. This is a bug.",
    }
}

/// The order of the warps, as the end of a sentence (W1, W2).
#[must_use]
pub fn order(params: &Params) -> &'static str {
    match params.spec().order {
        Order::Ascending => "by number",
        Order::Descending => "from the last to the first",
        Order::Shuffled => "in an order drawn anew for each round",
    }
}

/// The append that wins a phase (A4).
#[must_use]
pub fn arbiter(params: &Params) -> &'static str {
    match params.spec().arbiter {
        Arbiter::FirstCome => "the one that arrived first",
        Arbiter::Uniform => "drawn with equal chances",
        Arbiter::Priority(_) => "by a given order of processes",
    }
}

/// When appends count, in a sentence without a full stop (A2, K1).
#[must_use]
pub fn append_window(params: &Params) -> String {
    match (params.spec().append_window, params.append_rounds()) {
        (AppendWindow::FirstAccess, 1) => "A warp's appends count in its first phase only".to_owned(),
        (AppendWindow::FirstAccess, rounds) => {
            format!("A warp's appends count in its first q = {rounds} phases, and no process wins twice")
        }
        (AppendWindow::Open, _) => {
            "Appends count in every phase until n entries stand, as the paper has it".to_owned()
        }
    }
}

/// The demand of a property, in a sentence without a full stop (V2).
#[must_use]
pub fn property_meaning(property: Property) -> &'static str {
    match property {
        Property::Agreement => "All correct processes that decide, decide the same",
        Property::Termination => "Every correct process decides within its bound of phases",
        Property::WeakValidity => "What is decided was proposed by some process",
        Property::CommonValidity => "If all correct processes propose the same value, that is decided",
        Property::StrongValidity => "What is decided was proposed by a correct process",
    }
}

/// `process 3`, `processes 3, 5 to 9`, `nobody`. They must come in order.
#[must_use]
pub fn processes(processes: &[ProcessId]) -> String {
    let runs = processes.chunk_by(|one, next| next.get() == one.get() + 1);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, _, .., last] => format!("{first} to {last}"),
            few => few.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        })
        .collect();
    match processes.len() {
        0 => "nobody".to_owned(),
        1 => format!("process {}", runs[0]),
        _ => format!("processes {}", runs.join(", ")),
    }
}

/// `1 entry`, `2 entries`.
#[must_use]
pub fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assumed::explain_assumed;
    use std::sync::Arc;
    use stickycas_model::history::Event;
    use stickycas_model::params::ParamsSpec;
    use stickycas_model::types::{Phase, Time};

    #[test]
    fn processes_in_a_row_are_told_as_a_range() {
        let told = |numbers: &[u32]| {
            let ids: Vec<ProcessId> = numbers.iter().filter_map(|number| ProcessId::new(*number)).collect();
            processes(&ids)
        };
        assert_eq!(told(&[]), "nobody");
        assert_eq!(told(&[7]), "process 7");
        assert_eq!(told(&[1, 2, 4]), "processes 1, 2, 4");
        assert_eq!(told(&[1, 2, 3, 5, 7, 8, 9, 10]), "processes 1 to 3, 5, 7 to 10");
    }

    #[test]
    fn what_a_server_cannot_know_is_not_told_as_known() {
        let params = Arc::new(Params::try_new(ParamsSpec::new(3, 1, 3)).unwrap());
        let phase = |number: usize| Event::Stepped {
            phase: Phase::new(number as u64).unwrap(),
            warp: WarpId::from_index(number - 1).unwrap(),
            length: 0,
        };
        let decided = |process, text| Event::Decided {
            process: ProcessId::new(process).unwrap(),
            value: Value::parse(text).unwrap(),
        };
        // All are late, two differ, and the third has not decided.
        let events = [phase(1), phase(2), phase(3), decided(1, "a"), decided(2, "b")];
        let history = events.map(|event| Recorded { at: Time::ZERO, event });
        let explanation = explain_assumed(&params, &history);
        let reasons = &explanation.verdict.reasons;
        let agreement = "broke: process 1 decided a (";
        assert!(reasons.iter().any(|reason| reason.contains(agreement)), "{reasons:?}");
        let missing = "no decision came from correct processes: 3";
        assert_eq!(reasons.last().map(String::as_str), Some(missing));
        let run = ExplainedRun {
            params: &params,
            history: &history,
            place: Place::Server,
            explanation: &explanation,
        };
        let told = format!("{:?}", run.sections(9));
        for unknown in ["plan", "no report", "earlier life", "from []", "Seen to commit", "accused"] {
            assert!(!told.contains(unknown), "{unknown}: {told}");
        }
        assert!(told.contains("on their own side"), "{told}");
    }
}
