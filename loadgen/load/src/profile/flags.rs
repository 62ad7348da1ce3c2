//! Flags of the command line that take the place of keys of a profile.

use std::fmt::Display;

use clap::{Args, ValueEnum};
use stickycas_harness::files::{LARGEST_SEED, SettingError, Settings};
use toml::{Table, Value};

use super::Transport;
use crate::arrivals::Spacing;

/// The flags that take the place of single keys; everything else is the profile's.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "In the place of keys of the profile")]
pub struct Flags {
    /// From which everything is drawn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
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
    /// The strategy of Byzantine processes, as in scenarios: 'collude(value=0)'; with --byzantine
    #[arg(long, value_name = "STRATEGY", requires = "byzantine")]
    pub strategy: Option<String>,
    /// How processes speak to the server
    #[arg(long, value_name = "TRANSPORT", value_enum)]
    pub transport: Option<Transport>,
    /// Rosters of n principals each, on which instances take turns
    #[arg(long, value_name = "N")]
    pub rosters: Option<u32>,
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
    pub max_in_flight: Option<u32>,
    /// Open loop: a start so late after its plan is missed
    #[arg(long, value_name = "DURATION")]
    pub late_after: Option<String>,
    /// Open loop: a larger share of missed starts fails the run
    #[arg(long, value_name = "SHARE")]
    pub max_missed: Option<f64>,
    /// Instances that begin in this time count in no figure
    #[arg(long, value_name = "DURATION")]
    pub warm_up: Option<String>,
    /// For how long instances begin, the warm-up included
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<String>,
    /// How many instances begin at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
    pub instances: Option<u64>,
    /// How long what has begun has to end
    #[arg(long, value_name = "DURATION")]
    pub drain: Option<String>,
    /// When everything ends, whatever is under way
    #[arg(long, value_name = "DURATION")]
    pub hard_stop: Option<String>,
    /// Connections, calls and instances without progress for so long are given up
    #[arg(long, value_name = "DURATION")]
    pub stall: Option<String>,
    /// The share of instances of which the server's whole history is judged too
    #[arg(long, value_name = "SHARE")]
    pub history_sample: Option<f64>,
    /// A larger share of instances that fail or are refused fails the run [default: 0.01, or what the
    /// profile's own conditions say of errors]
    #[arg(long, value_name = "SHARE")]
    pub max_errors: Option<f64>,
    /// Any key of the profile, such as order=descending or load.principal_prefix=a; repeat for several
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

/// The keys of which a file gives one, to say when instances begin.
const PACING: [&str; 4] = ["load.in_flight", "load.rate", "load.ramp", "load.steps"];
/// The keys of an open loop.
const OPEN_LOOP: [&str; 4] = ["load.arrivals", "load.max_in_flight", "load.late_after", "load.max_missed"];

/// Collects flags as settings.
struct Given(Settings);

impl Given {
    fn key<T: Display>(&mut self, flag: &str, key: &str, value: Option<T>, toml: impl FnOnce(T) -> Value) {
        if let Some(value) = value {
            let origin = format!("--{flag} {value}");
            self.0.put(&origin, key, &toml(value));
        }
    }

    fn number<T: Display + Copy + Into<i64>>(&mut self, flag: &str, key: &str, value: Option<T>) {
        self.key(flag, key, value, |value| Value::Integer(value.into()));
    }

    fn large_number(&mut self, flag: &str, key: &str, value: Option<u64>) {
        // A number that a file cannot hold is refused as a text would be.
        let toml =
            |value: u64| i64::try_from(value).map_or_else(|_| value.to_string().into(), Value::Integer);
        self.key(flag, key, value, toml);
    }

    fn share(&mut self, flag: &str, key: &str, value: Option<f64>) {
        self.key(flag, key, value, Value::Float);
    }

    fn text(&mut self, flag: &str, key: &str, value: Option<&String>) {
        self.key(flag, key, value, |value| Value::String(value.clone()));
    }

    fn remove(&mut self, keys: &[&str]) {
        keys.iter().for_each(|key| self.0.remove(key));
    }
}

impl Flags {
    /// The flags as settings in the place of keys, those of `--set` first.
    ///
    /// # Errors
    /// The first `--set` that is no `KEY=VALUE`.
    pub(super) fn settings(&self) -> Result<Settings, SettingError> {
        let mut given = Given(Settings::from_flags(&self.set)?);
        if let Some(pacing) = PACING.into_iter().find(|key| given.0.has(key)) {
            let others = PACING.into_iter().filter(|key| *key != pacing && !given.0.has(key));
            given.remove(&others.collect::<Vec<_>>());
        }
        given.large_number("seed", "seed", self.seed);
        given.number("processes", "instance.processes", self.processes);
        given.number("warp-size", "instance.warp_size", self.warp_size);
        given.number("read-size", "instance.read_size", self.read_size);
        given.text("patience", "instance.patience", self.patience.as_ref());
        given.number("distinct", "proposals.distinct", self.distinct);
        given.number("value-bytes", "proposals.value_bytes", self.value_bytes);
        if let (Some(share), Some(strategy)) = (self.byzantine, &self.strategy) {
            let keys = [("share".to_owned(), share.into()), ("strategy".to_owned(), strategy.clone().into())];
            let group = Value::Table(Table::from_iter(keys));
            let origin = format!("--byzantine {share} --strategy {strategy}");
            given.0.put(&origin, "faults", &Value::Array(vec![group]));
        }
        self.put_pacing(&mut given);
        self.put_load(&mut given);
        for condition in &self.fail_if {
            let origin = format!("--fail-if {condition}");
            given.0.extend_list(&origin, "fail_if", vec![Value::String(condition.clone())]);
        }
        Ok(given.0)
    }

    fn put_pacing(&self, given: &mut Given) {
        if self.in_flight.is_some() || self.rate.is_some() || self.ramp.is_some() || self.steps.is_some() {
            given.remove(&PACING);
        }
        if self.in_flight.is_some() {
            given.remove(&OPEN_LOOP);
        }
        given.number("in-flight", "load.in_flight", self.in_flight);
        given.share("rate", "load.rate", self.rate);
        if let Some((from, to)) = self.ramp {
            let ramp = Table::from_iter([("from".to_owned(), from.into()), ("to".to_owned(), to.into())]);
            given.0.put(&format!("--ramp {from}..{to}"), "load.ramp", &Value::Table(ramp));
        }
        if let Some(Steps(steps)) = &self.steps {
            // They say how long it takes.
            given.remove(&["load.duration"]);
            let shown: Vec<String> = steps.iter().map(|(rate, lasts)| format!("{rate}:{lasts}")).collect();
            let step = |(rate, lasts): &(f64, String)| {
                let keys = [("rate".to_owned(), (*rate).into()), ("for".to_owned(), lasts.clone().into())];
                Value::Table(Table::from_iter(keys))
            };
            let steps = Value::Array(steps.iter().map(step).collect());
            given.0.put(&format!("--steps {}", shown.join(",")), "load.steps", &steps);
        }
        given.text("arrivals", "load.arrivals", self.arrivals.as_ref().map(word).as_ref());
        given.number("max-in-flight", "load.max_in_flight", self.max_in_flight);
        given.text("late-after", "load.late_after", self.late_after.as_ref());
        given.share("max-missed", "load.max_missed", self.max_missed);
    }

    fn put_load(&self, given: &mut Given) {
        given.text("transport", "load.transport", self.transport.as_ref().map(word).as_ref());
        given.number("rosters", "load.rosters", self.rosters);
        let per_connection = self.principals_per_connection;
        given.number("principals-per-connection", "load.principals_per_connection", per_connection);
        given.text("warm-up", "load.warm_up", self.warm_up.as_ref());
        given.text("duration", "load.duration", self.duration.as_ref());
        given.large_number("instances", "load.instances", self.instances);
        given.text("drain", "load.drain", self.drain.as_ref());
        given.text("hard-stop", "load.hard_stop", self.hard_stop.as_ref());
        given.text("stall", "load.stall", self.stall.as_ref());
        given.share("history-sample", "load.history_sample", self.history_sample);
        given.share("max-errors", "load.max_errors", self.max_errors);
    }
}
