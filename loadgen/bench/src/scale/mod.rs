//! The capacity of one server: memory of each connected principal, of each finished and each live instance
//! and of each waiting call, and the cost of an access beside many live instances.
//!
//! ```text
//! cargo build --release -p stickycas-server -p stickycas-bench
//! target/release/stickycas-bench scale --principals 10000    connected, used and idle; beside a server that does nothing
//! target/release/stickycas-bench scale --finished 1000000    within their retention, and what they still answer
//! target/release/stickycas-bench scale --live 100000         all processes have joined, half of the warps have appended
//! target/release/stickycas-bench scale --waiting 50000       unary calls, each with its access in the machine
//! target/release/stickycas-bench scale --table 1000000       the table of so many finished instances on the live page, while viewers look at it
//! target/release/stickycas-bench scale --cost 1,100,10000    processor time of an access beside so many live instances
//! ```
//!
//! The server is the program `stickycas-server` in a process of its own; the server that does nothing is
//! `serve baseline` of this program. The memory of each is the `Rss` of that process
//! (`/proc/PID/smaps_rollup`; also given as `Pss`, without what others share) after less before, divided by
//! the count. It includes allocator, page size and fragmentation, but not what the kernel holds for a socket.
//! Clients use TCP over loopback.
//!
//! **Limits of the server are lifted**: on instances, on instances of one creator, on requests per second and
//! on the memory of an instance; retention and idle lifetime are an hour. The behaviour at the limits is not
//! measured here. The command line of the server is in the results.
//!
//! Every instance that ends is judged, from the observations of all of its processes; one that is not valid
//! fails the measurement. Those of `--live`, `--waiting` and `--cost` do not end.
//!
//! Each principal has one connection and one Attach stream. Instances have n = 8, p = 2, r = 8, values of 8
//! bytes and endless patience: a process appends once, reads once and decides.
//!
//! # Keys of the raw results
//! `server_arguments`: the command line of the server, in which N stands for as many instances as a
//! measurement needs. `measurements`: of each `what`, `count`, `before` and `after` (`rss_bytes`,
//! `pss_bytes`), `bytes_each`, `wall_s`. `costs`: of each number of `live` instances, `accesses`, `server_us`
//! (processor time of the server for an access). `tables`: of each number of `instances`, memory `before` and
//! `after` somebody looks, the time of the first of the `requests` (`first_ms`), and the processor time of
//! the server for a second (`idle`, `looked`).

mod cost;
pub(crate) mod finished;
pub(crate) mod fixture;
pub(crate) mod live;
mod page_table;
mod principals;
pub(crate) mod process;
pub(crate) mod server;
mod verdict;
mod waiting;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use crate::results;
use crate::serve::runtime;
use crate::table::table;
use cost::Cost;
use page_table::TableCost;
use server::{Memory, Serving};

/// The measurements, each with its number of principals or instances.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Connected principals; a multiple of 8, because they play in groups of 8.
    #[arg(long, value_name = "N", value_parser = principals)]
    principals: Option<usize>,
    /// Finished instances.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    finished: Option<usize>,
    /// Live instances.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    live: Option<usize>,
    /// Unary calls that wait for their phase.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    waiting: Option<usize>,
    /// Finished instances in the table of the live page.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    table: Option<usize>,
    /// How long viewers look at that table.
    #[arg(long, value_name = "DURATION", default_value = "2min", value_parser = stickycas_program::parse_duration)]
    look: std::time::Duration,
    /// Live instances while accesses are timed; several counts, each on a server of its own.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = at_least_one())]
    cost: Vec<usize>,
    /// Gives every finished instance a roster of its own: eight of sixteen principals, in any order.
    #[arg(long, requires = "finished")]
    own_rosters: bool,
    /// The server's program; by default beside this one.
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Writes the raw results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn principals(text: &str) -> Result<usize, String> {
    let count = text
        .parse()
        .ok()
        .filter(|count: &usize| *count > 0 && count.is_multiple_of(fixture::PROCESSES as usize));
    count.ok_or_else(|| format!("give a multiple of {}, such as 10000", fixture::PROCESSES))
}

/// The memory of `count` of something.
#[derive(Debug, Serialize)]
struct Measurement {
    what: String,
    count: usize,
    before: Memory,
    after: Memory,
    bytes_each: u64,
    wall_s: f64,
}

impl Measurement {
    fn new(what: &str, count: usize, before: Memory, after: Memory, wall: std::time::Duration) -> Self {
        let bytes_each = after.rss_bytes.saturating_sub(before.rss_bytes) / count.max(1) as u64;
        Self { what: what.to_owned(), count, before, after, bytes_each, wall_s: wall.as_secs_f64() }
    }
}

#[derive(Debug, Serialize)]
struct Findings {
    server_arguments: Vec<String>,
    measurements: Vec<Measurement>,
    costs: Vec<Cost>,
    tables: Vec<TableCost>,
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = runtime(2)?;
    let findings = runtime.block_on(measure(options))?;
    print(&findings)?;
    if let Some(path) = &options.json {
        results::write(path, "scale", &BTreeMap::new(), &findings)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &Options) -> anyhow::Result<Findings> {
    let Options { principals, finished, live, waiting, table, cost, .. } = options;
    anyhow::ensure!(
        [principals, finished, live, waiting, table].iter().any(|count| count.is_some()) || !cost.is_empty(),
        "say what to measure: --principals, --finished, --live, --waiting, --table, --cost"
    );
    let program = server::find(options.server.as_deref())?;
    let mut findings = Findings {
        server_arguments: Serving::in_memory("N").arguments(),
        measurements: Vec::new(),
        costs: Vec::new(),
        tables: Vec::new(),
    };
    if let Some(count) = *principals {
        findings.measurements.push(principals::baseline(count).await?);
        findings.measurements.push(principals::server(&program, count).await?);
    }
    if let Some(count) = *finished {
        findings.measurements.push(finished::measure(&program, count, options.own_rosters).await?);
    }
    if let Some(count) = *live {
        findings.measurements.push(live::measure(&program, count).await?);
    }
    if let Some(count) = *waiting {
        findings.measurements.push(waiting::measure(&program, count).await?);
    }
    if let Some(count) = *table {
        findings.tables.push(page_table::measure(&program, count, options.look).await?);
    }
    for &live in cost {
        findings.costs.push(cost::measure(&program, live).await?);
    }
    Ok(findings)
}

fn print(findings: &Findings) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "server, its limits lifted: stickycas-server {}", findings.server_arguments.join(" "))?;
    if !findings.measurements.is_empty() {
        let head = ["what", "count", "bytes each", "MiB before", "MiB after", "seconds"];
        let rows = findings.measurements.iter().map(|it| {
            let mib = |memory: &Memory| (memory.rss_bytes >> 20).to_string();
            let wall = format!("{:.1}", it.wall_s);
            let numbers =
                [it.count.to_string(), it.bytes_each.to_string(), mib(&it.before), mib(&it.after), wall];
            std::iter::once(it.what.clone()).chain(numbers).collect()
        });
        writeln!(out, "{}", table(head.map(str::to_owned).into(), rows))?;
    }
    if !findings.costs.is_empty() {
        let head = ["live instances", "accesses", "server us/access", "bytes each"];
        let rows = findings.costs.iter().map(|it| {
            let cost = format!("{:.3}", it.server_us);
            vec![it.live.to_string(), it.accesses.to_string(), cost, it.bytes_each.to_string()]
        });
        writeln!(out, "{}", table(head.map(str::to_owned).into(), rows))?;
    }
    if !findings.tables.is_empty() {
        let head = ["instances", "the table", "costs"];
        let rows = findings.tables.iter().flat_map(TableCost::rows);
        writeln!(out, "{}", table(head.map(str::to_owned).into(), rows))?;
    }
    Ok(())
}
