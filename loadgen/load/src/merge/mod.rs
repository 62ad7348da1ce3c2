//! Results of several load generators as one.
//!
//! Each of them has written its folder, on whatever machine, and none knew of the others. Their HDR logs hold
//! every histogram of every second with the clock time at which it was taken; so they are laid side by side
//! by their clocks, second by second, and recorded again as if one generator had measured all of it.
//! Percentiles are those of the merged histograms: nothing is averaged.
//!
//! Rates add up only where all generators measured at the same time: `overlap` finds that time, and says what
//! makes the sum mean less than it seems.

mod folder;
mod overlap;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use stickycas_harness::exit::UsageError;

pub use self::folder::read_result;
use self::folder::{GeneratorResult, read};
use self::overlap::Overlap;
use super::figures::{Counts, Figures};
use super::measure::{Histograms, empty};
use super::profile::{Flags, Profile};
use super::recorder::{Recorder, Starts};
use super::result::{LoadResult, Measurement, check, conditions};

/// The most seconds that merged results may span: clocks that differ by more are not those of one load.
const LONGEST: f64 = 7.0 * 24.0 * 3600.0;

/// The results of these folders, as one.
///
/// # Errors
/// One cannot be read or is named twice, there is none, or they did not measure at the same time.
pub fn merge(folders: &[PathBuf]) -> anyhow::Result<Measurement> {
    for (place, folder) in folders.iter().enumerate() {
        let same = |other: &PathBuf| {
            folder.canonicalize().ok().is_some_and(|it| other.canonicalize().ok() == Some(it))
        };
        ensure!(
            !folders[..place].iter().any(same),
            UsageError(format!("{} is named twice: name each result once", folder.display()))
        );
    }
    let parts =
        folders.iter().map(|folder| read(folder)).collect::<anyhow::Result<Vec<GeneratorResult>>>()?;
    let first = parts
        .iter()
        .min_by_key(|part| part.began)
        .with_context(|| UsageError("name the folders to be merged".to_owned()))?;
    let last = parts.iter().map(|part| part.began).max().unwrap_or(first.began);
    let apart = last.duration_since(first.began).unwrap_or_default();
    ensure!(
        apart.as_secs_f64() < LONGEST,
        UsageError(format!("these results began {apart:.0?} apart: merge those of one load only"))
    );
    let overlap = Overlap::of(&parts, first.began)?;
    let recorder = recorded(&parts, first.began);

    let mut judged = first.result.judged.clone();
    let mut messages = first.result.messages.clone();
    let others = || parts.iter().filter(|part| !std::ptr::eq(*part, first)).map(|part| &part.result);
    for result in others() {
        judged.merge(&result.judged);
        for (ended, message) in &result.messages {
            messages.entry(*ended).or_insert_with(|| message.clone());
        }
    }
    let all = || std::iter::once(&first.result).chain(others());
    let Starts { planned, late, dropped } = recorder.starts;
    let counts = Counts { planned, late, dropped, ..Counts::default() };
    let figures = Figures {
        rate: overlap.rate,
        access_rate: overlap.access_rate,
        ..Figures::of(&recorder.histograms, counts, overlap.seconds, (0, 0))
    };
    let profiles: Vec<String> = all().flat_map(|result| result.profiles.clone()).collect();
    let (failed, passed) = check(&conditions_of(&profiles)?, &figures);
    let result = LoadResult {
        verdict: judged.verdict(),
        judged,
        failed,
        passed,
        cut_short: all().find_map(|result| result.cut_short),
        measured_from: overlap.from,
        figures,
        messages,
        warnings: overlap.warnings,
        baseline: Vec::new(),
        hosts: all().flat_map(|result| result.hosts.clone()).collect(),
        servers: all().flat_map(|result| result.servers.clone()).collect(),
        profiles,
        ..first.result.clone()
    };
    Ok(Measurement { result, recorder, evidence: Vec::new() })
}

/// The conditions of all profiles, each once.
fn conditions_of(profiles: &[String]) -> anyhow::Result<Vec<super::fail_if::FailIf>> {
    let mut all = Vec::new();
    for text in profiles {
        for condition in conditions(&Profile::parse("profile.toml", text, &Flags::default())?) {
            if !all.contains(&condition) {
                all.push(condition);
            }
        }
    }
    Ok(all)
}

/// The events of one second, in all generators.
#[derive(Default)]
struct Slot {
    histograms: Histograms,
    starts: Starts,
    in_flight: u64,
}

/// All of it, side by side by the clock, as if one had recorded it from `began` on.
fn recorded(parts: &[GeneratorResult], began: SystemTime) -> Recorder {
    let mut slots: Vec<Slot> = Vec::new();
    let zero = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    for part in parts {
        let offset = part.offset(began);
        for row in &part.seconds {
            let slot = slot(&mut slots, offset + row.second - row.length);
            slot.starts.planned += row.planned;
            slot.starts.late += row.late;
            slot.starts.dropped += row.dropped;
            slot.in_flight += row.in_flight;
        }
        for (at, label, histogram) in &part.intervals {
            let sum = slot(&mut slots, at - zero).histograms.entry(*label).or_insert_with(empty);
            sum.add(histogram).expect("a histogram that grows takes whatever another one holds");
        }
    }
    let mut recorder = Recorder::new(began);
    let mut all = Starts::default();
    for (second, Slot { histograms, starts, in_flight }) in (1..).zip(&slots) {
        all.planned += starts.planned;
        all.late += starts.late;
        all.dropped += starts.dropped;
        recorder.second(Duration::from_secs(second), histograms, all, *in_flight);
    }
    recorder.finished()
}

/// The second that begins nearest to this one.
fn slot(slots: &mut Vec<Slot>, seconds: f64) -> &mut Slot {
    let place = seconds.round().clamp(0.0, LONGEST) as usize;
    if slots.len() <= place {
        slots.resize_with(place + 1, Slot::default);
    }
    &mut slots[place]
}

#[cfg(test)]
mod tests;
