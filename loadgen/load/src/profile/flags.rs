//! Flags of the command line that take the place of keys of a profile.

use clap::{Arg, ArgAction, ArgMatches, Command};
use stickycas_harness::files::{SettingError, Settings, settings};
use toml::{Table, Value};

/// A flag that takes the place of a key.
#[derive(Debug)]
struct Flag {
    /// Its name; that of the key has `_` for `-`.
    name: &'static str,
    /// The table of the key.
    table: &'static str,
    value_name: &'static str,
    help: &'static str,
}

const fn flag(name: &'static str, table: &'static str, value_name: &'static str, help: &'static str) -> Flag {
    Flag { name, table, value_name, help }
}

const FLAGS: [Flag; 28] = [
    flag("seed", "", "N", "From which everything is drawn"),
    flag("processes", "instance", "N", "n, the processes of an instance"),
    flag("warp-size", "instance", "P", "p, the processes of a warp"),
    flag("read-size", "instance", "R", "r, the most entries that a read returns"),
    flag("append-rounds", "instance", "Q", "q, the phases of a warp in which it may append"),
    flag("patience", "instance", "DURATION", PATIENCE),
    flag("distinct", "proposals", "K", "Different values that correct processes propose"),
    flag("value-bytes", "proposals", "BYTES", "Bytes of each value"),
    flag("byzantine", "", "SHARE", "The share of Byzantine processes, with --strategy"),
    flag("strategy", "", "STRATEGY", STRATEGY),
    flag("transport", "load", "TRANSPORT", "How processes speak to the server: attach or unary"),
    flag("rosters", "load", "N", "Rosters of n principals each, on which instances take turns"),
    flag("principals-per-connection", "load", "N", "How many principals share one connection"),
    flag("in-flight", "load", "K", "Closed loop: instances under way at any time"),
    flag("rate", "load", "RATE", "Open loop: instances per second"),
    flag("ramp", "load", "FROM..TO", RAMP),
    flag("steps", "load", "STEPS", STEPS),
    flag("arrivals", "load", "SPACING", "Open loop: how regularly instances begin: fixed or poisson"),
    flag("max-in-flight", "load", "N", "Open loop: starts that would be one more under way are missed"),
    flag("late-after", "load", "DURATION", "Open loop: a start so late after its plan is missed"),
    flag("max-missed", "load", "SHARE", "Open loop: a larger share of missed starts fails the run"),
    flag("warm-up", "load", "DURATION", "Instances that begin in this time count in no figure"),
    flag("duration", "load", "DURATION", "For how long instances begin, the warm-up included"),
    flag("instances", "load", "N", "How many instances begin at most"),
    flag("drain", "load", "DURATION", "How long what has begun has to end"),
    flag("hard-stop", "load", "DURATION", "When everything ends, whatever is under way"),
    flag("stall", "load", "DURATION", STALL),
    flag("history-sample", "load", "SHARE", HISTORY),
];
const PATIENCE: &str = "How long one process may hold phases open in all: a duration, or none";
const STRATEGY: &str =
    "The strategy of Byzantine processes, as in scenarios: 'collude(value=0)'; with --byzantine";
const RAMP: &str = "Open loop: instances per second at the beginning and at the end, as FROM..TO";
const STEPS: &str = "Open loop: one rate after the other, as RATE:DURATION,RATE:DURATION";
const STALL: &str = "Calls and instances without progress for so long are given up";
const HISTORY: &str = "The share of instances of which the server's whole history is judged too";
const MAX_ERRORS: Flag = flag(
    "max-errors",
    "load",
    "SHARE",
    "A larger share of instances that fail or are refused fails the run [default: 0.01, or what the \
     profile's own conditions say of errors]",
);
/// Any key, and conditions; both may be repeated.
const SET: &str =
    "Any key of the profile, such as order=descending or load.principal_prefix=a; repeat for several";
const FAIL_IF: &str = "Fail the run if this holds, such as 'instance_p99 > 50ms'; repeat for several";

/// The keys of which a profile has one.
const PACING: [&str; 4] = ["in-flight", "rate", "ramp", "steps"];
/// Those that go with an open loop alone.
const OPEN_LOOP: [&str; 4] = ["load.arrivals", "load.max_in_flight", "load.late_after", "load.max_missed"];

/// The flags that were given, in the place of single keys; everything else is the profile's.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    given: Vec<(&'static Flag, String)>,
    set: Vec<String>,
    fail_if: Vec<String>,
}

impl Flag {
    fn key(&self) -> String {
        let key = self.name.replace('-', "_");
        if self.table.is_empty() { key } else { format!("{}.{key}", self.table) }
    }

    fn arg(&self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).value_name(self.value_name).help(self.help);
        let arg = arg.allow_negative_numbers(true);
        match self.name {
            "byzantine" => arg.requires("strategy"),
            "strategy" => arg.requires("byzantine"),
            name if PACING.contains(&name) => arg.group("pacing"),
            _ if self.value_name == "DURATION" => arg.value_parser(no_number),
            _ => arg,
        }
    }
}

/// A duration has a unit.
fn no_number(text: &str) -> Result<String, &'static str> {
    if text.parse::<f64>().is_ok() { Err("give a duration such as 10s") } else { Ok(text.to_owned()) }
}

/// All flags of one key.
fn all() -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().chain(std::iter::once(&MAX_ERRORS))
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let list = |name, value_name, help| {
            Arg::new(name).long(name).value_name(value_name).help(help).action(ArgAction::Append)
        };
        command
            .next_help_heading("In the place of keys of the profile")
            .args(all().map(Flag::arg))
            .arg(list("set", "KEY=VALUE", SET))
            .arg(list("fail-if", "CONDITION", FAIL_IF))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let list = |name| matches.get_many(name).into_iter().flatten().cloned().collect();
        let given = all().filter_map(|flag| Some((flag, matches.get_one::<String>(flag.name)?.clone())));
        Ok(Self { given: given.collect(), set: list("set"), fail_if: list("fail-if") })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Flags {
    /// Whether this flag was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Gives a flag this value.
    pub fn put(&mut self, name: &str, value: &str) {
        match name {
            "set" => self.set.push(value.to_owned()),
            "fail-if" => self.fail_if.push(value.to_owned()),
            _ => {
                let flag = all().find(|flag| flag.name == name).expect("it is one of the flags");
                self.given.retain(|(flag, _)| flag.name != name);
                self.given.push((flag, value.to_owned()));
            }
        }
    }

    /// These flags, each with its value.
    #[must_use]
    pub fn of(given: &[(&str, &str)]) -> Self {
        let mut flags = Self::default();
        given.iter().for_each(|(name, value)| flags.put(name, value));
        flags
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(flag, _)| flag.name == name).map(|(_, value)| value.as_str())
    }

    /// The flags as values that take the place of the file's.
    pub(super) fn settings(&self) -> Result<Settings, SettingError> {
        let mut settings = settings(&self.set)?;
        let key = |name: &str| format!("load.{}", name.replace('-', "_"));
        let is_paced = PACING.into_iter().any(|name| self.has(name));
        if is_paced || PACING.into_iter().any(|name| settings.has(&key(name))) {
            let others = PACING.map(key).into_iter().filter(|key| is_paced || !settings.has(key));
            others.collect::<Vec<_>>().iter().for_each(|key| settings.remove(key));
        }
        if self.has("in-flight") {
            OPEN_LOOP.iter().for_each(|key| settings.remove(key));
        }
        if self.has("steps") {
            settings.remove("load.duration");
        }
        if let (Some(share), Some(strategy)) = (self.value("byzantine"), self.value("strategy")) {
            let keys = [("share".to_owned(), value(share)), ("strategy".to_owned(), strategy.into())];
            let origin = format!("--byzantine {share} --strategy {strategy}");
            settings.put(&origin, "faults", &Value::Array(vec![Value::Table(Table::from_iter(keys))]));
        }
        for (flag, text) in self.given.iter().filter(|(flag, _)| !is_of_faults(flag)) {
            let origin = format!("--{} {text}", flag.name);
            let wrong = |reason: &str| SettingError { origin: origin.clone(), reason: reason.to_owned() };
            let value = match flag.name {
                "ramp" => ramp(text).ok_or_else(|| wrong("give two rates as FROM..TO, such as 100..1000"))?,
                "steps" => {
                    let form = "give RATE:DURATION,..., such as 100:10s,200:10s";
                    steps(text).ok_or_else(|| wrong(form))?
                }
                _ => value(text),
            };
            settings.put(&origin, &flag.key(), &value);
        }
        for condition in &self.fail_if {
            settings.extend_list(&format!("--fail-if {condition}"), "fail_if", [condition.as_str()]);
        }
        Ok(settings)
    }
}

/// `--byzantine` and `--strategy` make one group of faults.
fn is_of_faults(flag: &Flag) -> bool {
    matches!(flag.name, "byzantine" | "strategy")
}

/// A number, or else a text.
fn value(text: &str) -> Value {
    let whole = text.parse().ok().map(Value::Integer);
    whole.or_else(|| text.parse().ok().map(Value::Float)).unwrap_or_else(|| text.into())
}

/// `FROM..TO`.
fn ramp(text: &str) -> Option<Value> {
    let (from, to) = text.split_once("..")?;
    Some(Value::Table(Table::from_iter([("from".to_owned(), value(from)), ("to".to_owned(), value(to))])))
}

/// `RATE:DURATION,RATE:DURATION,...`.
fn steps(text: &str) -> Option<Value> {
    let step = |step: &str| {
        let (rate, lasts) = step.split_once(':')?;
        let keys = [("rate".to_owned(), value(rate)), ("for".to_owned(), lasts.into())];
        Some(Value::Table(Table::from_iter(keys)))
    };
    text.split(',').map(step).collect::<Option<Vec<_>>>().map(Value::Array)
}
