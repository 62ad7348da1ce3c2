//! The results of the turns beside attackers.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;
use stickycas_model::counts::{Counts, RunCounts};

use super::attack::AllDone;
use super::processes::Turn;
use super::server::shared_bytes_bound;
use crate::summary::quantile;
use crate::table::table;

/// A quiet turn, one beside a busy program, and one beside attackers.
#[derive(Debug, Serialize)]
pub(super) struct Attacked {
    name: String,
    quiet_us: Vec<f64>,
    busy_us: Vec<f64>,
    attacked_us: Vec<f64>,
    p50_ratio: Option<f64>,
    p99_ratio: Option<f64>,
    undecided: usize,
    late: usize,
    missed: usize,
    not_valid: usize,
    reasons: Vec<String>,
    /// Whether all went well in the two turns before.
    before_is_clean: bool,
    shown_by: BTreeMap<String, usize>,
    done: AllDone,
    counted: Counts,
    peak_quiet_bytes: u64,
    peak_bytes: u64,
    /// Shares of a processor.
    server: f64,
    attackers: f64,
    #[serde(skip)]
    times: [Vec<Duration>; 3],
}

impl Attacked {
    /// `peaks`: after the quiet turn and after the attacked one. `shares`: of the server and of the
    /// attackers.
    pub(super) fn new(
        name: String,
        [quiet, busy, attacked]: [Turn; 3],
        shown_by: BTreeMap<String, usize>,
        done: AllDone,
        counted: &RunCounts,
        peaks: [u64; 2],
        shares: [f64; 2],
    ) -> Self {
        let micros = |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        let before_is_clean = quiet.is_clean() && busy.is_clean();
        let times = [quiet.latencies, busy.latencies, attacked.latencies];
        let ratio = |of: f64| {
            let [quiet, _, attacked] = times.each_ref().map(|times| quantile(times.clone(), of));
            Some(attacked?.as_secs_f64() / quiet?.as_secs_f64())
        };
        let before = [("quiet", quiet.reasons), ("busy", busy.reasons)];
        let before = before
            .into_iter()
            .flat_map(|(turn, reasons)| reasons.into_iter().map(move |reason| format!("{turn}: {reason}")));
        let reasons = before.chain(attacked.reasons);
        Self {
            quiet_us: micros(&times[0]),
            busy_us: micros(&times[1]),
            attacked_us: micros(&times[2]),
            p50_ratio: ratio(0.5),
            p99_ratio: ratio(0.99),
            undecided: attacked.undecided,
            late: attacked.late,
            missed: attacked.missed,
            not_valid: attacked.not_valid,
            reasons: reasons.collect(),
            before_is_clean,
            shown_by,
            done,
            counted: counted.all.clone(),
            peak_quiet_bytes: peaks[0],
            peak_bytes: peaks[1],
            server: shares[0],
            attackers: shares[1],
            name,
            times,
        }
    }

    fn is_clean(&self) -> bool {
        self.before_is_clean
            && self.undecided + self.late + self.not_valid == 0
            && self.shown_by.values().all(|attackers| *attackers > 0)
    }

    /// Says at once, on standard error, what was done and what went wrong: a run takes minutes.
    pub(super) fn tell(&self) -> anyhow::Result<()> {
        let mut out = std::io::stderr().lock();
        let Self { name, server, attackers, .. } = self;
        writeln!(out, "{name}: server {server:.2}, attackers {attackers:.2} of a processor")?;
        for (attack, done) in &self.done {
            let shown = self.shown_by.get(attack).copied().unwrap_or_default();
            let (times, attempts, cut) = (done.carried_out, done.attempts, done.cut);
            writeln!(
                out,
                "  {attack}: {times} times, {attempts} attempts, {cut} ended by the server, shown of {shown}"
            )?;
            for (why, count) in done.refusals.iter().chain(&done.broke_off).chain(&done.surprises) {
                writeln!(out, "    {count} {why}")?;
            }
        }
        self.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))?;
        Ok(())
    }

    fn row(&self) -> Vec<String> {
        let show = |times: &[Duration], of| {
            quantile(times.to_vec(), of)
                .map_or_else(String::new, |time| format!("{:.1}", time.as_secs_f64() * 1e3))
        };
        let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let [quiet, busy, attacked] = &self.times;
        #[allow(clippy::cast_precision_loss)]
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
        let least = self.shown_by.values().min().copied().unwrap_or_default();
        vec![
            self.name.clone(),
            show(quiet, 0.5),
            show(busy, 0.5),
            show(attacked, 0.5),
            ratio(self.p50_ratio),
            show(quiet, 0.99),
            show(busy, 0.99),
            show(attacked, 0.99),
            ratio(self.p99_ratio),
            show(quiet, 1.0),
            show(busy, 1.0),
            show(attacked, 1.0),
            self.late.to_string(),
            self.missed.to_string(),
            (self.undecided + self.not_valid).to_string(),
            least.to_string(),
            mib(self.peak_quiet_bytes),
            mib(self.peak_bytes),
        ]
    }
}

/// All pairs.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    instances: usize,
    rate_per_s: f64,
    processes: u8,
    attackers: usize,
    lanes: usize,
    bound_bytes: u64,
    pub(super) attacks: Vec<Attacked>,
}

impl Results {
    pub(super) fn new(
        instances: usize,
        rate_per_s: f64,
        processes: u8,
        attackers: usize,
        lanes: usize,
    ) -> Self {
        let bound_bytes = shared_bytes_bound();
        Self { instances, rate_per_s, processes, attackers, lanes, bound_bytes, attacks: Vec::new() }
    }

    /// Whether all processes decided alike and in time, beside attacks that happened.
    pub(super) fn are_clean(&self) -> bool {
        self.attacks.iter().all(Attacked::is_clean)
    }

    /// Milliseconds, and MiB of the server at most.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let heads = [
            "attack",
            "quiet p50",
            "busy p50",
            "p50",
            "ratio",
            "quiet p99",
            "busy p99",
            "p99",
            "ratio",
            "quiet longest",
            "busy longest",
            "longest",
            "late",
            "missed",
            "wrong",
            "shown of",
            "quiet MiB",
            "MiB",
        ];
        let rows = self.attacks.iter().map(Attacked::row);
        writeln!(std::io::stdout(), "{}", table(heads.map(str::to_owned).to_vec(), rows))?;
        Ok(())
    }
}
