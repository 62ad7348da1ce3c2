//! `create`: the parameters of a new instance.

use std::time::Duration;

use clap::{Args, ValueEnum};
use stickycas_client::{Client, CreateInstance};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Patience};
use stickycas_model::types::ProcessId;

use super::output::{Exit, Failure, Output};
use super::render;

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
    /// r, the most entries that one read returns. Without it: as many as there are warps, for each append
    /// round.
    #[arg(long, short = 'r', value_name = "R")]
    read_size: Option<u32>,
    /// The order of warps in a round.
    #[arg(long, value_enum, default_value_t = OrderFlag::Ascending)]
    order: OrderFlag,
    /// Seed of the shuffled order and the uniform arbiter. Without it, the server draws one.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The rule for the winner among the appends of a phase: first_come, uniform, or priority:3,1,2
    /// (strongest first).
    #[arg(long, default_value = "first_come", value_parser = parse_arbiter)]
    arbiter: Arbiter,
    /// When appends count. With open, the paper as printed, agreement is not promised.
    #[arg(long, value_enum, default_value_t = WindowFlag::FirstAccess)]
    append_window: WindowFlag,
    /// q, the number of a warp's first phases in which it may append, 1 to p. More rounds take more phases
    /// and stand more Byzantine processes.
    #[arg(long, value_name = "Q", default_value_t = 1)]
    append_rounds: u32,
    /// The total time for which phases may be held open because of one process, or none: without end.
    #[arg(long, value_name = "DURATION|none", default_value = "1s", value_parser = parse_patience)]
    patience: Patience,
    /// How long phase 1 waits, from the first join, for all to join.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = stickycas_program::parse_duration)]
    join_timeout: Duration,
    /// A phase opens no earlier than this after the last step.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = stickycas_program::parse_duration)]
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
    /// A warp may append only in its own first phases, as many as there are append rounds.
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
    let parsed = stickycas_program::parse_duration(text).map(Patience::Finite);
    parsed.map_err(|error| format!("{error}; give a duration such as 1s, or none for one without end"))
}

impl Create {
    fn request(self, client: &Client) -> CreateInstance {
        let order = match self.order {
            OrderFlag::Ascending => Order::Ascending,
            OrderFlag::Descending => Order::Descending,
            OrderFlag::Shuffled => Order::Shuffled,
        };
        let window = match self.append_window {
            WindowFlag::FirstAccess => AppendWindow::FirstAccess,
            WindowFlag::Open => AppendWindow::Open,
        };
        let request = client
            .create_instance()
            .warp_size(self.warp_size)
            .order(order)
            .arbiter(self.arbiter)
            .append_window(window)
            .append_rounds(self.append_rounds)
            .patience(self.patience)
            .join_timeout(self.join_timeout)
            .pace(self.pace)
            .pipeline(self.pipeline)
            .max_value_bytes(self.max_value_bytes)
            .roster(self.roster)
            .roster_prefix(self.roster_prefix);
        let request = self.name.into_iter().fold(request, CreateInstance::name);
        let request = self.processes.into_iter().fold(request, CreateInstance::processes);
        let request = self.read_size.into_iter().fold(request, CreateInstance::read_size);
        self.seed.into_iter().fold(request, CreateInstance::seed)
    }

    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let created = self.request(client).send().await?;
        output.result(&created, || render::created(&created.instance, created.created))?;
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

    fn check(args: &[&str]) -> Result<(), String> {
        let line = Line::try_parse_from(std::iter::once(&"create").chain(args));
        let client = Client::builder("http://127.0.0.1:1").principal("ann").connect_lazy().unwrap();
        let request = line.map_err(|error| error.to_string())?.create.request(&client);
        request.check().map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn n_or_a_roster_alone_is_enough() {
        assert_eq!(check(&["-n", "3"]), Ok(()));
        assert_eq!(check(&["--roster", "ann,bob"]), Ok(()));
        let error = check(&["--roster", "ann,bob", "-n", "3"]).unwrap_err();
        assert_eq!(error, "the roster names 2 principals, but n = 3");
    }

    #[tokio::test]
    async fn parameters_out_of_range_are_bad_usage() {
        assert_eq!(check(&["-n", "0"]).unwrap_err(), "n = 0 processes: give 1 to 65536");
        assert_eq!(check(&["-n", "2", "-p", "3"]).unwrap_err(), "warp size p = 3: give 1 to n = 2");
        let rounds = check(&["-n", "4", "-p", "2", "--append-rounds", "3"]);
        assert_eq!(rounds.unwrap_err(), "append rounds q = 3: give 1 to p = 2");
        assert!(check(&["-n", "2", "--arbiter", "priority:3"]).unwrap_err().contains("no process 3"));
        assert!(check(&["-n", "2", "--name", "a b"]).unwrap_err().starts_with("name:"));
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
