//! Flags of the command line that take the place of keys of a profile.

use std::fmt::{Display, Write as _};
use std::ops::Range;

use clap::{Args, ValueEnum};
use toml::Spanned;

use super::Transport;
use super::file::{Byzantine, File, Ramp, Step};
use crate::fault_plan::Placement;
use crate::load::arrivals::Spacing;

/// What takes the place of single keys; everything else is the profile's.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "In the place of keys of the profile")]
pub struct Flags {
    /// From which everything is drawn
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// n, the processes of an instance
    #[arg(long, value_name = "N")]
    pub processes: Option<u32>,
    /// p, the processes of a warp
    #[arg(long, value_name = "P")]
    pub warp_size: Option<u32>,
    /// r, the most entries that a read returns
    #[arg(long, value_name = "R")]
    pub read_size: Option<u32>,
    /// How long one process may hold phases open in all: a duration, or none
    #[arg(long, value_name = "DURATION")]
    pub patience: Option<String>,
    /// Different values that correct processes propose
    #[arg(long, value_name = "K")]
    pub distinct: Option<u32>,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES")]
    pub value_bytes: Option<u32>,
    /// The share of Byzantine processes, with --strategy
    #[arg(long, value_name = "SHARE", requires = "strategy")]
    pub byzantine: Option<f64>,
    /// What Byzantine processes do, as in scenarios: 'collude(value=0)'
    #[arg(long, value_name = "STRATEGY")]
    pub strategy: Option<String>,
    /// How processes speak to the server
    #[arg(long, value_name = "TRANSPORT", value_enum)]
    pub transport: Option<Transport>,
    /// Crowds of n principals each
    #[arg(long, value_name = "N")]
    pub groups: Option<u32>,
    /// How many principals share one connection
    #[arg(long, value_name = "N")]
    pub principals_per_connection: Option<u32>,
    /// Closed loop: instances under way at any time
    #[arg(long, value_name = "K", group = "pacing")]
    pub in_flight: Option<u32>,
    /// Open loop: instances per second
    #[arg(long, value_name = "RATE", group = "pacing")]
    pub rate: Option<f64>,
    /// Open loop: instances per second at the beginning and at the end, as FROM..TO
    #[arg(long, value_name = "FROM..TO", group = "pacing", value_parser = ramp)]
    pub ramp: Option<(f64, f64)>,
    /// Open loop: one rate after the other, as RATE:DURATION,RATE:DURATION
    #[arg(long, value_name = "STEPS", group = "pacing", value_parser = steps)]
    pub steps: Option<Steps>,
    /// Open loop: how regularly instances begin
    #[arg(long, value_name = "SPACING", value_enum)]
    pub arrivals: Option<Spacing>,
    /// Open loop: starts that would be one more under way are missed
    #[arg(long, value_name = "N")]
    pub most_in_flight: Option<u32>,
    /// Open loop: a start so late after its plan is missed
    #[arg(long, value_name = "DURATION")]
    pub late_after: Option<String>,
    /// Open loop: a larger share of missed starts fails the run
    #[arg(long, value_name = "SHARE")]
    pub most_missed: Option<f64>,
    /// What begins in this time counts in no figure
    #[arg(long, value_name = "DURATION")]
    pub warm_up: Option<String>,
    /// For how long instances begin, the warm-up included
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<String>,
    /// How many instances begin at most
    #[arg(long, value_name = "N")]
    pub instances: Option<u64>,
    /// How long what has begun has to end
    #[arg(long, value_name = "DURATION")]
    pub drain: Option<String>,
    /// When everything ends, whatever is under way
    #[arg(long, value_name = "DURATION")]
    pub hard_stop: Option<String>,
    /// What makes no progress for so long is given up
    #[arg(long, value_name = "DURATION")]
    pub stall: Option<String>,
    /// The share of instances of which the server's whole history is judged too
    #[arg(long, value_name = "SHARE")]
    pub watch_share: Option<f64>,
    /// A larger share of instances that fail or are refused fails the run [default: 0.01, or what the profile's own
    /// conditions say of errors]
    #[arg(long, value_name = "SHARE")]
    pub most_errors: Option<f64>,
    /// Any key of the profile, such as order=descending or load.principal=a; repeat for several
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Fail the run if this holds, such as 'instance_p99 > 50ms'; repeat for several
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,
}

/// Rates, each with how long it lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps(Vec<(f64, String)>);

fn ramp(text: &str) -> Result<(f64, f64), String> {
    let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    ends.ok_or_else(|| "give two rates as FROM..TO, such as 100..1000".to_owned())
}

fn steps(text: &str) -> Result<Steps, String> {
    let step = |step: &str| {
        let (rate, lasts) = step.split_once(':')?;
        Some((rate.parse().ok()?, lasts.to_owned()))
    };
    let steps: Option<Vec<_>> = text.split(',').map(step).collect();
    steps.map(Steps).ok_or_else(|| "give RATE:DURATION,..., such as 100:10s,200:10s".to_owned())
}

/// A value of a flag as it is given.
fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Flags as they are given, one after the other, and where each value stands.
struct Line {
    text: String,
    /// Where its text begins, as far as places are concerned.
    start: usize,
}

impl Line {
    /// Writes a flag down; its value, with its place.
    fn put<T>(&mut self, flag: &str, shown: impl Display, value: T) -> Spanned<T> {
        let from = self.start + self.text.len();
        write!(self.text, "--{flag} {shown} ").expect("writing to a string does not fail");
        Spanned::new(from..self.start + self.text.len(), value)
    }

    /// Puts a flag that is given in the place of a key that need not be.
    fn replace<T: Clone + Display>(&mut self, flag: &str, given: Option<&T>, key: &mut Option<Spanned<T>>) {
        if let Some(value) = given {
            *key = Some(self.put(flag, value, value.clone()));
        }
    }

    /// The same for a key that is always there.
    fn require<T: Clone + Display>(&mut self, flag: &str, given: Option<&T>, key: &mut Spanned<T>) {
        if let Some(value) = given {
            *key = self.put(flag, value, value.clone());
        }
    }
}

impl Flags {
    /// Puts flags in the place of keys. Gives them as one line; their places are counted from `start` on.
    pub(super) fn apply(&self, file: &mut File, start: usize) -> String {
        let mut line = Line { text: String::new(), start };
        line.replace("seed", self.seed.as_ref(), &mut file.seed);
        let instance = file.instance.as_mut();
        line.require("processes", self.processes.as_ref(), &mut instance.processes);
        line.require("warp-size", self.warp_size.as_ref(), &mut instance.warp_size);
        line.require("read-size", self.read_size.as_ref(), &mut instance.read_size);
        line.replace("patience", self.patience.as_ref(), &mut instance.patience);
        line.replace("distinct", self.distinct.as_ref(), &mut file.proposals.distinct);
        line.replace("value-bytes", self.value_bytes.as_ref(), &mut file.proposals.value_bytes);
        self.apply_byzantine(&mut line, file);
        self.apply_pacing(&mut line, file);
        self.apply_load(&mut line, file);
        let conditions =
            self.fail_if.iter().map(|condition| line.put("fail-if", condition, condition.clone()));
        file.fail_if.extend(conditions);
        line.text
    }

    fn apply_byzantine(&self, line: &mut Line, file: &mut File) {
        if let Some(strategy) = &self.strategy {
            let strategy = line.put("strategy", strategy, strategy.clone());
            let placement = file.byzantine.as_ref().map_or_else(Placement::default, |given| given.placement);
            let (share, count) =
                file.byzantine.take().map_or((None, None), |given| (given.share, given.count));
            file.byzantine = Some(Byzantine { share, count, strategy, placement });
        }
        if let (Some(share), Some(byzantine)) = (self.byzantine, &mut file.byzantine) {
            byzantine.count = None;
            byzantine.share = Some(line.put("byzantine", share, share));
        }
    }

    fn apply_pacing(&self, line: &mut Line, file: &mut File) {
        let load = file.load.as_mut();
        if self.in_flight.is_some() || self.rate.is_some() || self.ramp.is_some() || self.steps.is_some() {
            (load.in_flight, load.rate, load.ramp, load.steps) = (None, None, None, None);
        }
        line.replace("in-flight", self.in_flight.as_ref(), &mut load.in_flight);
        line.replace("rate", self.rate.as_ref(), &mut load.rate);
        if let Some((from, to)) = self.ramp {
            load.ramp = Some(line.put("ramp", format!("{from}..{to}"), Ramp { from, to }));
        }
        if let Some(Steps(steps)) = &self.steps {
            let shown: Vec<String> = steps.iter().map(|(rate, lasts)| format!("{rate}:{lasts}")).collect();
            let Range { start, end } = line.put("steps", shown.join(","), ()).span();
            let step = |(rate, lasts): &(f64, String)| Step {
                rate: Spanned::new(start..end, *rate),
                lasts: Spanned::new(start..end, lasts.clone()),
            };
            load.steps = Some(Spanned::new(start..end, steps.iter().map(step).collect()));
            // They say how long it takes.
            load.duration = None;
        }
        if self.in_flight.is_some() {
            (load.arrivals, load.most_in_flight, load.late_after, load.most_missed) =
                (None, None, None, None);
        }
        if let Some(spacing) = self.arrivals {
            load.arrivals = Some(line.put("arrivals", word(&spacing), spacing));
        }
        line.replace("most-in-flight", self.most_in_flight.as_ref(), &mut load.most_in_flight);
        line.replace("late-after", self.late_after.as_ref(), &mut load.late_after);
        line.replace("most-missed", self.most_missed.as_ref(), &mut load.most_missed);
    }

    fn apply_load(&self, line: &mut Line, file: &mut File) {
        let load = file.load.as_mut();
        if let Some(transport) = self.transport {
            load.transport = line.put("transport", word(&transport), transport).into_inner();
        }
        line.replace("groups", self.groups.as_ref(), &mut load.groups);
        line.replace(
            "principals-per-connection",
            self.principals_per_connection.as_ref(),
            &mut load.principals_per_connection,
        );
        line.replace("warm-up", self.warm_up.as_ref(), &mut load.warm_up);
        line.replace("duration", self.duration.as_ref(), &mut load.duration);
        line.replace("instances", self.instances.as_ref(), &mut load.instances);
        line.replace("drain", self.drain.as_ref(), &mut load.drain);
        line.replace("hard-stop", self.hard_stop.as_ref(), &mut load.hard_stop);
        line.replace("stall", self.stall.as_ref(), &mut load.stall);
        line.replace("watch-share", self.watch_share.as_ref(), &mut load.watch_share);
        line.replace("most-errors", self.most_errors.as_ref(), &mut load.most_errors);
    }
}
