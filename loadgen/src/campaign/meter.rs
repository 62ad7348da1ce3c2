//! How far a campaign is, on standard error: a bar on a terminal, else a line now and then.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use super::plan::CellPlan;

/// How often a line is written where there is no terminal.
const A_LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of a campaign in the simulator. It is counted in messages, as the cost of a run is.
#[derive(Debug)]
pub struct Meter {
    /// `None` where there is no terminal.
    bar: Option<ProgressBar>,
    quiet: bool,
    begin: Instant,
    said: Instant,
    all_messages: u64,
    messages: u64,
    runs: u64,
    all_cells: usize,
    cells: usize,
}

impl Meter {
    /// Of a campaign in which these cells are to be run.
    #[must_use]
    pub fn new(cells: &[&CellPlan], quiet: bool) -> Self {
        let all_messages = cells.iter().map(|cell| cell.messages() * cell.runs()).sum();
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| bar(all_messages));
        let now = Instant::now();
        let all_cells = cells.len();
        Self { bar, quiet, begin: now, said: now, all_messages, messages: 0, runs: 0, all_cells, cells: 0 }
    }

    /// So many runs of this cell are done.
    pub fn ran(&mut self, cell: &CellPlan, runs: u64) {
        self.runs += runs;
        self.messages += runs * cell.messages();
        if let Some(bar) = &self.bar {
            bar.set_position(self.messages);
            bar.set_message(self.text());
        } else if !self.quiet && self.said.elapsed() >= A_LINE_EVERY {
            self.said = Instant::now();
            let (text, left) = (self.text(), HumanDuration(self.left()));
            // If nobody can hear it, the campaign goes on.
            let _ = writeln!(anstream::stderr().lock(), "{} %  {text}  {left:#} left", self.percent());
        }
    }

    /// A cell is done.
    pub fn done(&mut self) {
        self.cells += 1;
    }

    fn text(&self) -> String {
        let rate = self.runs as f64 / self.begin.elapsed().as_secs_f64().max(1e-3);
        format!("{}/{} cells  {rate:.0} runs/s", self.cells, self.all_cells)
    }

    fn percent(&self) -> u64 {
        100 * self.messages / self.all_messages.max(1)
    }

    fn left(&self) -> Duration {
        let left = self.all_messages.saturating_sub(self.messages) as f64 / self.messages.max(1) as f64;
        self.begin.elapsed().mul_f64(left)
    }
}

fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{elapsed} {bar:30} {percent} %  {msg}  {eta} left");
    bar.set_style(style.expect("the template is fixed and well formed"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
