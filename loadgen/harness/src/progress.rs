//! How far long work is, on standard error: a bar on a terminal, a line now and then elsewhere.
//!
//! | what | of what |
//! | --- | --- |
//! | [`WorkProgress`] | work whose amount is known: runs, searches, the cells of a campaign |
//! | [`RunProgress`] | one run, as its events come |
//! | [`bar`] | the bar itself; a load draws more around it |

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use stickycas_model::history::Event;
use stickycas_model::types::ProcessId;

use crate::report::grid::counted;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A bar of this length on standard error. `None` if that is no terminal, or one that cannot draw.
#[must_use]
pub fn bar(length: u64, template: &str) -> Option<ProgressBar> {
    let can_draw = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    (can_draw && std::io::stderr().is_terminal()).then(|| {
        let style = ProgressStyle::with_template(template).expect("the template is fixed and well formed");
        ProgressBar::new(length).with_style(style)
    })
}

/// Bar or lines.
#[derive(Debug)]
enum Display {
    Bar(ProgressBar),
    /// With the time of the last line.
    Lines(Mutex<Instant>),
    Quiet,
}

impl Display {
    fn new(length: u64, template: &str, quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        match bar(length, template) {
            None => Self::Lines(Mutex::new(Instant::now())),
            Some(bar) => {
                bar.enable_steady_tick(Duration::from_millis(250));
                Self::Bar(bar)
            }
        }
    }

    /// Shows how far it is. `line` is asked if it is time for one.
    fn show(&self, position: u64, message: impl FnOnce() -> String, line: impl FnOnce() -> String) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(position);
                bar.set_message(message());
            }
            // The task that holds the lock writes the line.
            Self::Lines(last) => {
                if let Ok(mut last) = last.try_lock()
                    && last.elapsed() >= LINE_EVERY
                {
                    *last = Instant::now();
                    // If standard error is closed, the work goes on.
                    let _ = writeln!(anstream::stderr().lock(), "{}", line());
                }
            }
            Self::Quiet => {}
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// The progress of work whose amount is known.
#[derive(Debug)]
pub struct WorkProgress {
    display: Display,
    begin: Instant,
    all: u64,
    /// Whether equal parts of the work take equally long, so that the time left can be estimated.
    even: bool,
}

impl WorkProgress {
    /// Of so much work, of which equal parts take equally long.
    #[must_use]
    pub fn even(all: u64, quiet: bool) -> Self {
        let display = Display::new(all, "{elapsed} {bar:30} {percent} %  {msg}", quiet);
        Self { display, begin: Instant::now(), all, even: true }
    }

    /// Of so many parts, of which some take much longer than others.
    #[must_use]
    pub fn uneven(all: u64, quiet: bool) -> Self {
        let display = Display::new(all, "{elapsed} {bar:30} {msg}", quiet);
        Self { display, begin: Instant::now(), all, even: false }
    }

    /// So much is done; `text` says what that is.
    pub fn show(&self, done: u64, text: impl Fn() -> String) {
        let elapsed = self.begin.elapsed();
        let message = || match self.left(done, elapsed) {
            Some(left) => format!("{}  {} left", text(), HumanDuration(left)),
            None => text(),
        };
        let line = || {
            let percent =
                if self.even { format!("{} %  ", 100 * done / self.all.max(1)) } else { String::new() };
            format!("{:>4} s  {percent}{}", elapsed.as_secs(), message())
        };
        self.display.show(done, message, line);
    }

    /// How many a second, of something of which so much is done.
    #[must_use]
    pub fn rate(&self, done: u64) -> f64 {
        done as f64 / self.begin.elapsed().as_secs_f64().max(1e-3)
    }

    /// How long the rest takes, if that can be told.
    fn left(&self, done: u64, elapsed: Duration) -> Option<Duration> {
        (self.even && done > 0).then(|| {
            let left = self.all.saturating_sub(done) as f64 / done as f64;
            Duration::from_secs(elapsed.mul_f64(left).as_secs_f64().round() as u64)
        })
    }
}

/// The progress of one run.
#[derive(Debug)]
pub struct RunProgress {
    display: Display,
    begin: Instant,
    correct: u64,
    awaited: BTreeSet<ProcessId>,
    joined: u32,
    phase: u64,
    length: u32,
}

impl RunProgress {
    /// Of a run that waits for these processes to decide.
    #[must_use]
    pub fn new(awaited: BTreeSet<ProcessId>, quiet: bool) -> Self {
        let correct = awaited.len() as u64;
        let display = Display::new(correct, "{elapsed} {bar:30} {pos}/{len} decided  {msg}", quiet);
        Self { display, begin: Instant::now(), correct, awaited, joined: 0, phase: 0, length: 0 }
    }

    /// Takes in what happened.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Joined { .. } => self.joined += 1,
            Event::Stepped { phase, .. } => self.phase = phase.get(),
            Event::Added { .. } => self.length += 1,
            Event::Decided { process, .. } => drop(self.awaited.remove(process)),
            _ => return,
        }
        let decided = self.correct - self.awaited.len() as u64;
        let Self { display, begin, correct, joined, phase, length, .. } = &*self;
        let message = || format!("{joined} joined, phase {phase}, {}", counted(u64::from(*length), "entry"));
        let line =
            || format!("{:>4} s  {decided}/{correct} decided  {}", begin.elapsed().as_secs(), message());
        display.show(decided, message, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_where_parts_take_equally_long() {
        let minute = Duration::from_secs(60);
        let even = WorkProgress::even(400, true);
        assert_eq!(even.left(100, minute), Some(Duration::from_secs(180)));
        assert_eq!((even.left(0, minute), even.left(400, minute)), (None, Some(Duration::ZERO)));
        assert_eq!(WorkProgress::uneven(400, true).left(100, minute), None);
    }
}
