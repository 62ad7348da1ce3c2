//! An explanation in words: what was run, its outcome and the reasons, for a reader who does not know the paper.
//!
//! The facts are [`Explanation`]'s, which the judge draws from the history; nothing is found out here.

use std::fmt::{Result, Write};

use stickycas_model::bounds;
use stickycas_model::judge::{
    Breach, DecisionGroup, Explanation, FaultReason, Margin, Observed, Outcome, Property, ValueCounts,
    Verdict,
};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params};
use stickycas_model::printable::printable;
use stickycas_model::types::{Value, WarpId};

use crate::record::{ExecutionMode, Record};
use crate::report::table::grid;
use crate::report::words;

/// The most rows of a list that are shown.
pub const ROWS: usize = 64;

/// The explanation of a run as text, with at most so many rows and sentences of each kind.
#[must_use]
pub fn text(record: &Record, explanation: &Explanation, rows: usize) -> String {
    let mut text = String::new();
    let page = Page { record, explanation, verdict: &explanation.verdict, rows };
    page.write(&mut text).expect("writing to a string does not fail");
    text
}

struct Page<'a> {
    record: &'a Record,
    explanation: &'a Explanation,
    verdict: &'a Verdict,
    rows: usize,
}

impl Page<'_> {
    fn write(&self, out: &mut String) -> Result {
        self.heading(out)?;
        self.setting(out)?;
        self.list(out)?;
        self.restarts(out)?;
        self.choices(out)?;
        self.faulty(out)?;
        self.properties(out)?;
        self.broke(out)?;
        self.blame(out)
    }

    fn heading(&self, out: &mut String) -> Result {
        let (scenario, verdict) = (&self.record.scenario, self.verdict);
        write!(out, "{}, {}", printable(&scenario.name), self.record.how)?;
        match self.record.how {
            ExecutionMode::Dumped => writeln!(out)?,
            _ => writeln!(out, ", seed {}", scenario.seed)?,
        }
        if !scenario.about.is_empty() {
            writeln!(out, "{}", printable(&scenario.about))?;
        }
        writeln!(out, "\nverdict: {}. {}", verdict.verdict, meaning(verdict.verdict))?;
        self.each(out, &verdict.reasons, |out, reason| writeln!(out, "  - {reason}"))
    }

    /// The rules of the game, with the numbers of this run.
    fn setting(&self, out: &mut String) -> Result {
        let params = &*self.record.scenario.params;
        let (n, p, r, warps) = (params.processes(), params.warp_size(), params.read_size(), params.warps());
        let (order, arbiter, window) = (order(params), arbiter(params), window(params));
        writeln!(
            out,
            "
What was run
  n = {n} processes were to agree on a value. Each correct one proposes a value, appends it to a list that
  all of them share, reads the list, and decides the value that stands in it most often; if several stand
  equally often, the smallest of these. Byzantine processes do as they like.
  The processes sit in W = {warps} warps of up to p = {p}. Time passes in phases, one warp at a time, {order}.
  In a phase each process of the warp may append or read once. Of its appends one wins, {arbiter},
  and adds an entry; the others fail. A read returns up to r = {r} entries.
  {window}."
        )
    }

    fn list(&self, out: &mut String) -> Result {
        let entries = &self.explanation.entries;
        writeln!(out, "\nThe list: {}", words::entries(entries.len() as u64))?;
        if entries.is_empty() {
            return writeln!(out, "  Nobody added any.");
        }
        let mut table =
            grid(["position", "value", "added by", "who is", "in phase", "of warp", "won against"]);
        for entry in entries.iter().take(self.rows) {
            table.add_row([
                entry.position.to_string(),
                entry.value.to_string(),
                words::processes(&[entry.process]),
                self.verdict.byzantine.get(&entry.process).cloned().unwrap_or_else(|| "correct".to_owned()),
                entry.phase.to_string(),
                entry.warp.to_string(),
                words::processes(&entry.against),
            ]);
        }
        writeln!(out, "{table}")?;
        self.left_out(out, entries.len())?;
        let of_byzantine =
            entries.iter().filter(|entry| self.verdict.byzantine.contains_key(&entry.process)).count();
        writeln!(
            out,
            "  Byzantine processes added {of_byzantine} of {}.",
            words::entries(entries.len() as u64)
        )?;
        let added = |warp: &WarpId| entries.iter().any(|entry| entry.warp == *warp);
        let warps = (0..self.record.scenario.params.warps() as usize).filter_map(WarpId::from_index);
        let without: Vec<String> = warps.filter(|warp| !added(warp)).map(|warp| warp.to_string()).collect();
        if without.is_empty() {
            Ok(())
        } else {
            writeln!(out, "  Warps that added none: {}.", without.join(", "))
        }
    }

    fn restarts(&self, out: &mut String) -> Result {
        let restarts = &self.explanation.restarts;
        if restarts.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nThe server restarted")?;
        self.each(out, restarts, |out, restart| {
            match restart.after {
                None => write!(out, "  before the first phase, with ")?,
                Some(phase) => write!(out, "  after phase {phase}, with ")?,
            }
            writeln!(out, "{} accesses waiting", restart.waiting)
        })?;
        writeln!(
            out,
            "  The list and the waiting accesses are to be as they were, and no process is to miss a phase by it."
        )
    }

    fn choices(&self, out: &mut String) -> Result {
        writeln!(out, "\nWhat correct processes decided, and why")?;
        if self.explanation.choices.is_empty() {
            return writeln!(out, "  None of them decided.");
        }
        self.each(out, &self.explanation.choices, choice)
    }

    fn faulty(&self, out: &mut String) -> Result {
        writeln!(out, "\nWho counts as faulty: f = {}", self.verdict.f)?;
        if self.explanation.faulty.is_empty() {
            writeln!(out, "  Nobody.")?;
        }
        self.each(out, &self.explanation.faulty, |out, faulty| {
            let process = faulty.process;
            match &faulty.why {
                FaultReason::Byzantine(part) => writeln!(out, "  process {process} is Byzantine: it plays {part}"),
                FaultReason::Planned if self.record.how == ExecutionMode::Dumped => {
                    writeln!(out, "  process {process} has an offence on record")
                }
                FaultReason::Planned => writeln!(
                    out,
                    "  process {process} is correct, but the plan has it killed, paused or robbed of its memory"
                ),
                FaultReason::Late => writeln!(
                    out,
                    "  process {process} is correct, but late: it missed its first phase, and so its chance to append"
                ),
            }
        })
    }

    fn properties(&self, out: &mut String) -> Result {
        writeln!(out, "\nWhat consensus asks for, whether it was promised, and what was seen")?;
        for property in Property::ALL {
            let (observed, missing) = self.verdict.finding(property);
            let seen = match observed {
                Observed::Held => "held",
                Observed::Violated => "BROKE",
                Observed::Unknown => "not shown",
            };
            writeln!(out, "  {property}: {seen}. {}.", asks(property))?;
            match missing {
                None if property == Property::CommonValidity
                    && self.verdict.distinct_correct_proposals != 1 =>
                {
                    writeln!(
                        out,
                        "    It was promised. Correct processes proposed different values, so it asks for nothing."
                    )?;
                }
                None => writeln!(out, "    It was promised.")?,
                Some(premise) => {
                    writeln!(out, "    It was not promised, for a premise is missing: {premise}.")?;
                }
            }
        }
        self.bound(out)
    }

    /// Theorem 1 with the numbers of this run (V3).
    fn bound(&self, out: &mut String) -> Result {
        let Verdict { n, p, f, distinct_correct_proposals: values, .. } = *self.verdict;
        let cost = u128::from(f) * (u128::from(values) + 1) * u128::from(p);
        let sign = if cost < u128::from(n) { "<" } else { ">=" };
        let largest = bounds::largest_f(&self.record.scenario.params, values);
        writeln!(
            out,
            "  The theorem: with |Vc| = {values} different proposals of correct processes, strong validity is promised"
        )?;
        writeln!(
            out,
            "  while f*(|Vc|+1)*p < n. Here {f}*({values}+1)*{p} = {cost} {sign} {n}; it bears up to f = {largest}."
        )?;
        match self.verdict.last_decision_phase {
            Some(last) => writeln!(
                out,
                "  The last decision fell in phase {last}; the bound W*(1+c+m) is phase {}.",
                self.verdict.phase_bound
            ),
            None => Ok(()),
        }
    }

    fn broke(&self, out: &mut String) -> Result {
        writeln!(out, "\nWhat broke first")?;
        if self.explanation.broke.is_empty() {
            return writeln!(out, "  Nothing broke.");
        }
        self.each(out, &self.explanation.broke, |out, Breach { property, event, says }| {
            match property {
                Some(property) => writeln!(out, "  {property}: {says}")?,
                None => writeln!(out, "  a rule: {says}")?,
            }
            let Some(index) = *event else {
                return writeln!(
                    out,
                    "    No event shows it: it is something that never came, or only reported."
                );
            };
            match self.record.history.get(index) {
                Some(recorded) => {
                    writeln!(out, "    {}: {}", self.place(index), words::event(&recorded.event))
                }
                None => writeln!(out, "    at the end of the history, after its {index} events"),
            }
        })
    }

    /// Where the event with this index stands.
    fn place(&self, index: usize) -> String {
        match self.record.how {
            ExecutionMode::Dumped => format!("event {index} of those that are kept"),
            _ => format!("line {} of history.ndjson", index + 1),
        }
    }

    /// Offences on record, held against who was seen to commit one (B2, B3).
    fn blame(&self, out: &mut String) -> Result {
        let Verdict { blame, culprits, named, unnamed, accused_correct, .. } = self.verdict;
        writeln!(out, "\nOffences on record")?;
        if blame.is_empty() {
            writeln!(out, "  None.")?;
        }
        self.each(out, &blame.iter().collect::<Vec<_>>(), |out, (process, kinds)| {
            let kinds = kinds.iter().map(|(kind, count)| format!("{} ({count})", words::offence_kind(*kind)));
            writeln!(out, "  process {process}: {}", kinds.collect::<Vec<_>>().join(", "))
        })?;
        writeln!(
            out,
            "  Seen to commit an offence that can be proved: {}; of these on record: {}.",
            words::processes(culprits),
            named.len()
        )?;
        if !unnamed.is_empty() {
            writeln!(out, "  Got away: {}.", words::processes(unnamed))?;
        }
        writeln!(out, "  Correct processes accused: {}.", words::processes(accused_correct))?;
        let fired = self.verdict.fired.iter().map(|(attack, count)| format!("{attack} ({count})"));
        let fired: Vec<String> = fired.collect();
        if fired.is_empty() { Ok(()) } else { writeln!(out, "  Attacks seen at work: {}.", fired.join(", ")) }
    }

    /// The first of these, and how many more there are.
    fn each<T>(
        &self,
        out: &mut String,
        things: &[T],
        mut write: impl FnMut(&mut String, &T) -> Result,
    ) -> Result {
        things.iter().take(self.rows).try_for_each(|thing| write(out, thing))?;
        self.left_out(out, things.len())
    }

    fn left_out(&self, out: &mut String, all: usize) -> Result {
        match all.saturating_sub(self.rows) {
            0 => Ok(()),
            more => writeln!(out, "  and {more} more; --json has all"),
        }
    }
}

fn choice(out: &mut String, choice: &DecisionGroup) -> Result {
    let DecisionGroup { value, processes, tally } = choice;
    writeln!(out, "  {} decided {value}.", capital(&words::processes(processes)))?;
    let Some(tally) = tally else {
        return writeln!(
            out,
            "    An earlier life had read the entries; what they were is not known any more."
        );
    };
    let counts: Vec<String> =
        tally.counts.iter().map(|count| format!("{} x {}", count.entries, count.value)).collect();
    writeln!(out, "    From {}: {}.", words::entries(tally.entries), counts.join(", "))?;
    if !tally.tied.is_empty() {
        let tied: Vec<String> = tally.tied.iter().map(Value::to_string).collect();
        writeln!(
            out,
            "    The tie rule decided: {} stand equally often, and {value} is the smallest.",
            tied.join(", ")
        )?;
    }
    margin(out, tally)
}

fn margin(out: &mut String, tally: &ValueCounts) -> Result {
    let (Some(first), Some(Margin { entries, rival })) = (tally.counts.first(), &tally.margin) else {
        return Ok(());
    };
    let mode = &first.value;
    let another = match rival {
        Some(rival) => rival.to_string(),
        None if 2 * entries == first.entries => format!("a new value, smaller than {mode},"),
        None => "a new value".to_owned(),
    };
    writeln!(
        out,
        "    The margin is {}: had {entries} of the {mode} been {another} instead, that would have been",
        words::entries(*entries)
    )?;
    writeln!(
        out,
        "    decided. To change fewer entries, whichever and to whatever, would have changed nothing."
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn meaning(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Valid => "Every promise and every rule was kept, and the run did what it was meant to do.",
        Outcome::Outside => "Something broke that nobody had promised: a premise of the promise was missing.",
        Outcome::Unknown => "The run proves nothing: not all that was planned happened, or more than that.",
        Outcome::Violation => "A promise or a rule broke. This is a bug.",
    }
}

fn order(params: &Params) -> &'static str {
    match params.spec().order {
        Order::Ascending => "by number",
        Order::Descending => "from the last to the first",
        Order::Shuffled => "in an order drawn anew for each round",
    }
}

fn arbiter(params: &Params) -> &'static str {
    match params.spec().arbiter {
        Arbiter::FirstCome => "the one that arrived first",
        Arbiter::Uniform => "drawn with equal chances",
        Arbiter::Priority(_) => "by a given order of processes",
    }
}

fn window(params: &Params) -> &'static str {
    match params.spec().append_window {
        AppendWindow::FirstAccess => "A warp's appends count in its first phase only",
        AppendWindow::Open => "Appends count in every phase until n entries stand, as the paper has it",
    }
}

fn asks(property: Property) -> &'static str {
    match property {
        Property::Agreement => "All correct processes that decide, decide the same",
        Property::Termination => "Every correct process decides within its bound of phases",
        Property::WeakValidity => "What is decided was proposed by some process",
        Property::CommonValidity => "If all correct processes propose the same value, that is decided",
        Property::StrongValidity => "What is decided was proposed by a correct process",
    }
}
