//! Whether results that are to be merged belong together: the time in which all of them measured, the rates
//! in that time, and whether they are of the same work.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::{Context, bail};
use stickycas_harness::exit::UsageError;
use toml::Table;

use super::folder::GeneratorResult;
use crate::recorder::Second;

/// Generators that measure at the same time for this share of the longest time measures at the same time.
const ENOUGH: f64 = 0.95;
/// By so much may a second of the clock lie beside the time that all share.
const BESIDE: f64 = 0.05;

/// Tables of a profile that say what an instance is.
const WORK: [&str; 2] = ["instance", "proposals"];

/// The time in which all generators measured, and what they did in it.
#[derive(Debug)]
pub(super) struct Overlap {
    /// Its beginning, in seconds from when the first of them began.
    pub(super) from: f64,
    /// Its length.
    pub(super) seconds: f64,
    /// Instances per second of all of them.
    pub(super) rate: f64,
    /// Accesses per second of all of them.
    pub(super) access_rate: f64,
    /// The reasons why the sum means less than it seems.
    pub(super) warnings: Vec<String>,
}

/// When a generator measured, in seconds from when the first of them began.
struct Window<'a> {
    part: &'a GeneratorResult,
    from: f64,
    to: f64,
}

impl<'a> Window<'a> {
    fn of(part: &'a GeneratorResult, began: SystemTime) -> Self {
        let from = part.offset(began) + part.result.measured_from;
        Self { part, from, to: from + part.result.figures.seconds }
    }

    /// Its instances and accesses per second of this time; `None` if no second of it lies in there.
    fn rates(&self, began: SystemTime, (from, to): (f64, f64)) -> Option<(f64, f64)> {
        let offset = self.part.offset(began);
        let inside = |row: &&Second| {
            let end = offset + row.second;
            end - row.length >= from - BESIDE && end <= to + BESIDE
        };
        let rows = || self.part.seconds.iter().filter(inside);
        let length: f64 = rows().map(|row| row.length).sum();
        let per_second = |count: u64| count as f64 / length;
        let (done, accesses) = (rows().map(|row| row.done).sum(), rows().map(|row| row.accesses).sum());
        (length > 0.0).then(|| (per_second(done), per_second(accesses)))
    }
}

impl Overlap {
    /// Of these results, of which the first began then.
    ///
    /// # Errors
    /// They did not measure at the same time, or a profile cannot be read.
    pub(super) fn of(parts: &[GeneratorResult], began: SystemTime) -> anyhow::Result<Self> {
        let mut warnings = differences(parts)?;
        // A generator that measured for no time adds nothing.
        let windows =
            parts.iter().map(|part| Window::of(part, began)).filter(|window| window.to > window.from);
        let windows: Vec<Window<'_>> = windows.collect();
        let last_to_begin = windows.iter().max_by(|one, other| one.from.total_cmp(&other.from));
        let first_to_end = windows.iter().min_by(|one, other| one.to.total_cmp(&other.to));
        let (Some(last_to_begin), Some(first_to_end)) = (last_to_begin, first_to_end) else {
            return Ok(Self { from: 0.0, seconds: 0.0, rate: 0.0, access_rate: 0.0, warnings });
        };
        let (from, to) = (last_to_begin.from, first_to_end.to);
        let seconds = to - from;
        if seconds <= 0.0 {
            bail!(UsageError(format!(
                "{} began to measure {:.1} s after {} had ended: rates add up only if all measure at the same time; \
                 merge results of one load, and keep the clocks of its machines in step",
                last_to_begin.part.folder.display(),
                -seconds,
                first_to_end.part.folder.display()
            )));
        }
        let longest = windows.iter().map(|window| window.to - window.from).fold(0.0, f64::max);
        if seconds >= ENOUGH * longest {
            let figures = || parts.iter().map(|part| &part.result.figures);
            let rate = figures().map(|figures| figures.rate).sum();
            let access_rate = figures().map(|figures| figures.access_rate).sum();
            return Ok(Self { from, seconds, rate, access_rate, warnings });
        }
        warnings.push(format!(
            "all of them measured at the same time for {seconds:.1} s only, and one of them for {longest:.1} s: rates \
             are those of that time, latencies and counts those of the whole"
        ));
        let (mut rate, mut access_rate) = (0.0, 0.0);
        for window in &windows {
            let rates = window.rates(began, (from, to)).with_context(|| {
                format!("all of them measured at the same time for {seconds:.1} s only: too short for a rate")
            })?;
            rate += rates.0;
            access_rate += rates.1;
        }
        Ok(Self { from, seconds, rate, access_rate, warnings })
    }
}

/// In what the work of these results differs, in words. Generators may put on different loads of the same
/// work: other rates, other seeds, other principals.
fn differences(parts: &[GeneratorResult]) -> anyhow::Result<Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let profiles: Vec<&String> = parts.iter().flat_map(|part| &part.result.profiles).collect();
    for text in &profiles {
        let profile: Table = text.parse().context("a profile of the results is no TOML")?;
        for table in WORK {
            for (key, value) in profile.get(table).and_then(toml::Value::as_table).into_iter().flatten() {
                values.entry(format!("{table}.{key}")).or_default().push(value.to_string());
            }
        }
        let transport = profile.get("load").and_then(|load| load.get("transport"));
        for (key, value) in [("load.transport", transport), ("faults", profile.get("faults"))] {
            values.entry(key.to_owned()).or_default().extend(value.map(toml::Value::to_string));
        }
    }
    let mut differ = Vec::new();
    for (key, mut given) in values {
        if (1..profiles.len()).contains(&given.len()) {
            given.push("none".to_owned());
        }
        given.sort();
        given.dedup();
        if given.len() > 1 {
            differ.push(format!("{key} ({})", given.join(", ")));
        }
    }
    let warning =
        format!("the profiles differ in {}: the figures mix those of different work", differ.join(", "));
    Ok(if differ.is_empty() { Vec::new() } else { vec![warning] })
}
