//! How far a run is, on standard error while it runs. Quiet when that is no terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stickycas_model::history::Event;

/// The progress of one run.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    joined: u32,
    phase: u64,
    length: u32,
}

impl Progress {
    /// Of a run that waits for this many decisions. Nothing is shown if `quiet` or if standard error is no
    /// terminal.
    #[must_use]
    pub fn new(decisions: u64, quiet: bool) -> Self {
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(decisions)
        };
        let style = ProgressStyle::with_template("{elapsed} {bar:30} {pos}/{len} decided  {msg}");
        bar.set_style(style.expect("the template is fixed and well formed"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, joined: 0, phase: 0, length: 0 }
    }

    /// Takes in what happened.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Joined { .. } => self.joined += 1,
            Event::Stepped { phase, .. } => self.phase = phase.get(),
            Event::Added { .. } => self.length += 1,
            Event::Decided { .. } => self.bar.inc(1),
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
