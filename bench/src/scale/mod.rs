//! How much one server holds: memory for each connected principal, each instance that has finished and each that lives,
//! and what an access costs when many live.
//!
//! ```text
//! cargo build --release -p stickycas-server -p stickycas-bench
//! target/release/stickycas-bench scale --principals 10000     connected, used and idle; beside a server that does nothing
//! target/release/stickycas-bench scale --finished 1000000     within their retention, and what they still answer
//! target/release/stickycas-bench scale --live 100000          everybody has joined, half of the warps have appended
//! target/release/stickycas-bench scale --cost 1,100,10000     processor time of an access with so many instances alive
//! ```
//!
//! The server is the real program, `stickycas-server`, in a process of its own; the one that does nothing is `serve
//! floor` of this program. Memory is what the system says of that process (`Rss` of `/proc/PID/smaps_rollup`, and `Pss`,
//! which leaves out what others share) after less what it said before, divided by the count: allocator, kernel's page
//! size and fragmentation included. What the kernel itself holds for a socket is in neither. Everything goes over TCP on loopback.
//!
//! Each principal has one connection and one Attach stream. Instances have n = 8, p = 2, r = 8, values of 8 bytes and
//! patience without end: a process appends once, reads once and decides.
//!
//! # Keys of the raw results
//! `measurements`: of each `what`, `count`, `before` and `after` (`rss_bytes`, `pss_bytes`), `bytes_each`, `wall_s`.
//! `costs`: of each number of `live` instances, `accesses`, `server_us` (processor time of the server for an access).

mod cost;
mod finished;
mod live;
mod play;
mod principals;
mod program;
mod town;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::results;
use crate::serve::runtime;
use cost::Cost;
use program::Memory;

/// What to count, and how many of it.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Principals that are connected.
    #[arg(long, value_name = "N")]
    principals: Option<usize>,
    /// Instances that have finished.
    #[arg(long, value_name = "N")]
    finished: Option<usize>,
    /// Instances that live.
    #[arg(long, value_name = "N")]
    live: Option<usize>,
    /// Instances that live while accesses are timed; several counts, each on a server of its own.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    cost: Vec<usize>,
    /// Gives every finished instance a roster of its own: eight of sixteen principals, in some order.
    #[arg(long)]
    own_rosters: bool,
    /// The server's program; by default beside this one.
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Writes the raw results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What so many of something take.
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

#[derive(Debug, Default, Serialize)]
struct Findings {
    measurements: Vec<Measurement>,
    costs: Vec<Cost>,
}

/// Measures, and prints what came of it.
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
    let program = program::find(options.server.as_deref())?;
    let mut findings = Findings::default();
    if let Some(count) = options.principals {
        findings.measurements.push(principals::floor(count).await?);
        findings.measurements.push(principals::server(&program, count).await?);
    }
    if let Some(count) = options.finished {
        findings.measurements.push(finished::measure(&program, count, options.own_rosters).await?);
    }
    if let Some(count) = options.live {
        findings.measurements.push(live::measure(&program, count).await?);
    }
    for &live in &options.cost {
        findings.costs.push(cost::measure(&program, live).await?);
    }
    anyhow::ensure!(
        !findings.measurements.is_empty() || !findings.costs.is_empty(),
        "say what to measure: --principals, --finished, --live, --cost"
    );
    Ok(findings)
}

fn print(findings: &Findings) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    if !findings.measurements.is_empty() {
        let mut table = table(["what", "count", "bytes each", "MiB before", "MiB after", "seconds"]);
        for it in &findings.measurements {
            let mib = |memory: &Memory| format!("{}", memory.rss_bytes >> 20);
            table.add_row([
                it.what.clone(),
                it.count.to_string(),
                it.bytes_each.to_string(),
                mib(&it.before),
                mib(&it.after),
                format!("{:.1}", it.wall_s),
            ]);
        }
        writeln!(out, "{table}")?;
    }
    if !findings.costs.is_empty() {
        let mut table = table(["live instances", "accesses", "server us/access", "bytes each"]);
        for it in &findings.costs {
            let row = [it.live.to_string(), it.accesses.to_string(), format!("{:.3}", it.server_us)];
            table.add_row(row.into_iter().chain([it.bytes_each.to_string()]));
        }
        writeln!(out, "{table}")?;
    }
    Ok(())
}

fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(head);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
