//! How far a run is, or how many of many are done, on standard error. Quiet when that is no terminal.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stickycas_model::history::Event;
use stickycas_model::types::ProcessId;

/// The progress of one run.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    awaited: BTreeSet<ProcessId>,
    joined: u32,
    phase: u64,
    length: u32,
}

impl Progress {
    /// Of a run that waits for these processes to decide. Nothing is shown if `quiet` or if standard error is
    /// no terminal.
    #[must_use]
    pub fn new(awaited: BTreeSet<ProcessId>, quiet: bool) -> Self {
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(awaited.len() as u64)
        };
        let style = ProgressStyle::with_template("{elapsed} {bar:30} {pos}/{len} decided  {msg}");
        bar.set_style(style.expect("the template is fixed and well formed"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, awaited, joined: 0, phase: 0, length: 0 }
    }

    /// Takes in what happened.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Joined { .. } => self.joined += 1,
            Event::Stepped { phase, .. } => self.phase = phase.get(),
            Event::Added { .. } => self.length += 1,
            Event::Decided { process, .. } => self.bar.inc(u64::from(self.awaited.remove(process))),
            _ => return,
        }
        let Self { joined, phase, length, .. } = self;
        self.bar.set_message(format!("{joined} joined, phase {phase}, {length} entries"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The progress of many runs, with their rate and the time left.
#[derive(Debug)]
pub struct ManyRuns(ProgressBar);

impl ManyRuns {
    /// Of so many runs.
    #[must_use]
    pub fn new(runs: u64) -> Self {
        let bar =
            if std::io::stderr().is_terminal() { ProgressBar::new(runs) } else { ProgressBar::hidden() };
        let style = "{elapsed} {bar:30} {human_pos}/{human_len} runs  {per_sec}  {eta} left";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is fixed and well formed"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    /// So many more are done.
    pub fn ran(&self, runs: u64) {
        self.0.inc(runs);
    }
}

impl Drop for ManyRuns {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
