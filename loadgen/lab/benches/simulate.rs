//! How many runs a second the simulator makes that are judged and not recorded: n = 32, p = 4, r = 8.
//!
//! A run is 32 hellos, 64 accesses in 16 phases and 32 decisions; its proposals are drawn and its verdict
//! counted, as `stickycas-loadgen simulate --runs` does. Told are runs a second by the clock, and by the
//! processor time that the process took, which suffers less from other work on the machine.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use stickycas_harness::scenario::Template;
use stickycas_lab::batch::tally;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUNS: u64 = 50_000;

const ROUNDS: usize = 5;

fn scenario(faults: &str) -> Template {
    let text = format!(
        "name = \"simulate\"\n\
         [instance]\nprocesses = 32\nwarp_size = 4\nread_size = 8\nseed = 1\n\
         [proposals]\ndistinct = 3\n{faults}"
    );
    Template::parse("simulate", &text, None).expect("the scenario is sound")
}

/// Processor time of this process so far, of all its threads.
fn processor_time() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which is in parentheses: fields 3, 4, ...; user and system time are fields 14 and 15.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    // Linux counts in hundredths of a second for user space.
    Ok(Duration::from_millis(ticks * 10))
}

fn main() -> anyhow::Result<()> {
    let all = std::thread::available_parallelism()?;
    let faults = "[[faults]]\nstrategy = \"collude(value=0)\"\ncount = 3\n";
    let mut out = io::stdout().lock();
    writeln!(out, "| runs | threads | runs/s | best | us of a processor for each |")?;
    writeln!(out, "| --- | --- | --- | --- | --- |")?;
    for (name, template) in [("all correct", scenario("")), ("3 collude", scenario(faults))] {
        for jobs in [NonZeroUsize::MIN, all] {
            let mut rates = Vec::new();
            let begin = processor_time()?;
            for _ in 0..ROUNDS {
                let start = Instant::now();
                let counted = tally(&template, 1..RUNS + 1, jobs, &AtomicBool::new(false), |_| {})?;
                rates.push(counted.runs as f64 / start.elapsed().as_secs_f64());
            }
            let spent = (processor_time()? - begin).as_secs_f64() * 1e6 / (RUNS * ROUNDS as u64) as f64;
            rates.sort_by(f64::total_cmp);
            let (median, best) = (rates[ROUNDS / 2], rates[ROUNDS - 1]);
            writeln!(out, "| {name} | {jobs} | {median:.0} | {best:.0} | {spent:.1} |")?;
        }
    }
    Ok(())
}
