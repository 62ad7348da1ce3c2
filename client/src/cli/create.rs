//! `create` and `close`: the life of an instance.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::{ProcessId, Seed};
use stickycas_proto::names::InstanceName;
use stickycas_proto::v1;

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::render;
use crate::client::Client;
use crate::error::Error;
use crate::hand::instance_ref;
use crate::info::InstanceInfo;

#[derive(Debug, Args)]
pub(super) struct Create {
    /// A name, unique among the living. With one, creating again gives the same instance.
    #[arg(long)]
    name: Option<String>,
    /// n, the number of processes. Taken from --roster if that is given.
    #[arg(long, short = 'n', value_name = "N", required_unless_present = "roster")]
    processes: Option<u32>,
    /// p, the number of processes in a warp.
    #[arg(long, short = 'p', value_name = "P", default_value_t = 1)]
    warp_size: u32,
    /// r, the most entries that one read returns. Without it: as many as there are warps.
    #[arg(long, short = 'r', value_name = "R")]
    read_size: Option<u32>,
    /// The order of warps in a round.
    #[arg(long, value_enum, default_value_t = OrderFlag::Ascending)]
    order: OrderFlag,
    /// Seed of the shuffled order and the uniform arbiter. Without it, the server draws one.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Who wins among the appends of a phase: first_come, uniform, or priority:3,1,2 (strongest first).
    #[arg(long, default_value = "first_come", value_parser = parse_arbiter)]
    arbiter: Arbiter,
    /// When appends count. With open, the paper as printed, agreement is not promised.
    #[arg(long, value_enum, default_value_t = WindowFlag::FirstAccess)]
    append_window: WindowFlag,
    /// The total time for which phases may be held open because of one process, or none: without end.
    #[arg(long, value_name = "DURATION|none", default_value = "1s", value_parser = parse_patience)]
    patience: Patience,
    /// How long phase 1 waits, from the first join, for all to join.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    join_timeout: Duration,
    /// A phase opens no earlier than this after the last step.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = humantime::parse_duration)]
    pace: Duration,
    /// The most accesses of one process that may wait.
    #[arg(long, value_name = "N", default_value_t = stickycas_model::params::DEFAULT_PIPELINE)]
    pipeline: u32,
    /// The most bytes of a value.
    #[arg(long, value_name = "N", default_value_t = stickycas_model::params::DEFAULT_MAX_VALUE_BYTES)]
    max_value_bytes: u32,
    /// The principals of processes 1, 2, 3, ...
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', conflicts_with = "roster_prefix")]
    roster: Vec<String>,
    /// Names the principals: p gives p1, p2, ..., pn.
    #[arg(long, value_name = "PREFIX", default_value = "p")]
    roster_prefix: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderFlag {
    /// Round robin by increasing warp number.
    Ascending,
    /// Round robin by decreasing warp number.
    Descending,
    /// Each round a fresh permutation, drawn from the seed.
    Shuffled,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum WindowFlag {
    /// A warp may append only in its own first phase.
    FirstAccess,
    /// Any phase may append until n entries stand.
    Open,
}

fn parse_arbiter(text: &str) -> Result<Arbiter, String> {
    let wrong =
        || "give first_come, uniform, or priority: with process numbers, as in priority:3,1,2".to_owned();
    match text.split_once(':') {
        None if text == "first_come" => Ok(Arbiter::FirstCome),
        None if text == "uniform" => Ok(Arbiter::Uniform),
        None if text == "priority" => Ok(Arbiter::Priority(Vec::new())),
        Some(("priority", order)) => {
            let process =
                |number: &str| number.trim().parse().ok().and_then(ProcessId::new).ok_or_else(wrong);
            Ok(Arbiter::Priority(order.split(',').map(process).collect::<Result<_, _>>()?))
        }
        _ => Err(wrong()),
    }
}

fn parse_patience(text: &str) -> Result<Patience, String> {
    if text == "none" {
        return Ok(Patience::Endless);
    }
    let parsed = humantime::parse_duration(text).map(Patience::Finite);
    parsed.map_err(|error| format!("{error}; give a duration such as 1s, or none for one without end"))
}

/// What is asked of the server, checked.
#[derive(Debug, PartialEq)]
struct Settings {
    name: Option<InstanceName>,
    parameters: v1::Parameters,
    roster: Vec<String>,
}

impl Create {
    fn checked(self) -> Result<Settings, Error> {
        let name = self.name.as_deref().map(str::parse).transpose();
        let name =
            name.map_err(|error: stickycas_proto::convert::WireError| Error::Usage(error.to_string()))?;
        let given = u32::try_from(self.roster.len()).unwrap_or(u32::MAX);
        let processes = self.processes.unwrap_or(given);
        if !self.roster.is_empty() && given != processes {
            return Err(Error::Usage(format!("the roster names {given} principals, but n = {processes}")));
        }
        let warps = processes.div_ceil(self.warp_size.max(1));
        let spec = ParamsSpec {
            order: match self.order {
                OrderFlag::Ascending => Order::Ascending,
                OrderFlag::Descending => Order::Descending,
                OrderFlag::Shuffled => Order::Shuffled,
            },
            seed: Seed::new(self.seed.unwrap_or(0)),
            arbiter: self.arbiter,
            append_window: match self.append_window {
                WindowFlag::FirstAccess => AppendWindow::FirstAccess,
                WindowFlag::Open => AppendWindow::Open,
            },
            patience: self.patience,
            join_timeout: self.join_timeout,
            pace: self.pace,
            pipeline: self.pipeline,
            max_value_bytes: self.max_value_bytes,
            ..ParamsSpec::new(processes, self.warp_size, self.read_size.unwrap_or(warps))
        };
        let params = Params::try_new(spec).map_err(|error| Error::Usage(error.to_string()))?;
        let roster = if self.roster.is_empty() {
            (1..=processes).map(|number| format!("{}{number}", self.roster_prefix)).collect()
        } else {
            self.roster
        };
        let parameters = v1::Parameters { seed: self.seed, ..v1::Parameters::from(&params) };
        Ok(Settings { name, parameters, roster })
    }

    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        #[derive(Serialize)]
        struct Created {
            instance: InstanceInfo,
            created: bool,
        }
        let Settings { name, parameters, roster } = self.checked()?;
        let (instance, created) = client.create(name.as_ref(), parameters, roster).await?;
        let created = Created { instance, created };
        output.result(&created, || render::created(&created.instance, created.created))?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(super) struct Close {
    /// The instance: its id, or its name.
    #[arg(value_name = "ID|NAME")]
    instance: String,
}

impl Close {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        instance_ref(&self.instance)?;
        let instance = client.find(&self.instance).await?;
        client.close(instance).await?;
        let closed = serde_json::json!({ "closed": instance.to_string() });
        output.result(&closed, || format!("closed {instance}"))?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        create: Create,
    }

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let line = Line::try_parse_from(std::iter::once(&"create").chain(args));
        line.map_err(|error| error.to_string())?.create.checked().map_err(|error| error.to_string())
    }

    #[test]
    fn n_alone_is_enough() {
        let settings = settings(&["-n", "3"]).unwrap();
        assert_eq!(settings.roster, ["p1", "p2", "p3"]);
        let parameters = settings.parameters;
        assert_eq!((parameters.processes, parameters.warp_size, parameters.read_size), (3, 1, 3));
        assert_eq!(parameters.seed, None, "the server draws it");
    }

    #[test]
    fn a_roster_says_how_many() {
        assert_eq!(settings(&["--roster", "ann,bob"]).unwrap().parameters.processes, 2);
        let error = settings(&["--roster", "ann,bob", "-n", "3"]).unwrap_err();
        assert_eq!(error, "the roster names 2 principals, but n = 3");
    }

    #[test]
    fn parameters_out_of_range_are_bad_usage() {
        assert_eq!(settings(&["-n", "0"]).unwrap_err(), "n = 0 processes: give 1 to 65536");
        assert_eq!(settings(&["-n", "2", "-p", "3"]).unwrap_err(), "warp size p = 3: give 1 to n = 2");
        assert!(settings(&["-n", "2", "--arbiter", "priority:3"]).unwrap_err().contains("no process 3"));
        assert!(settings(&["-n", "2", "--name", "a b"]).unwrap_err().starts_with("name:"));
    }

    #[test]
    fn arbiters_and_patience_are_written_as_documented() {
        let process = |number| ProcessId::new(number).unwrap();
        let order = vec![process(3), process(1), process(2)];
        assert_eq!(parse_arbiter("priority:3,1,2"), Ok(Arbiter::Priority(order)));
        assert_eq!(parse_arbiter("uniform"), Ok(Arbiter::Uniform));
        for wrong in ["", "priority:", "priority:0", "uniform:1", "last_come"] {
            assert!(parse_arbiter(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_patience("none"), Ok(Patience::Endless));
        assert_eq!(parse_patience("250ms"), Ok(Patience::Finite(Duration::from_millis(250))));
        assert!(parse_patience("soon").is_err());
    }
}
