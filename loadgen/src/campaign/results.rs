//! From what was counted to the results, and to the files in which they are kept.
//!
//! | file | content |
//! | --- | --- |
//! | `journal.ndjson` | what has been done, see [`super::journal`] |
//! | `results.json` | [`Results`] |
//! | `results.csv` | a line for each cell |
//! | `report.html` | the same for people, in one file that needs no network |
//!
//! The last three follow from the first. Each appears whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::cell::{Cell, Made, RESULTS_VERSION, Results, Sweep};
use super::journal::{Origin, Past};
use super::plan::{Campaign, CellPlan, SweepPlan};
use crate::report::html;

/// The results of a campaign that began like this, as far as it has come.
#[must_use]
pub fn results(origin: &Origin, campaign: &Campaign, past: &Past) -> Results {
    let all = format!("stickycas-loadgen campaign {} --seed {}", origin.file, origin.seed);
    let only: String = origin.only.iter().map(|name| format!(" --only {name}")).collect();
    let network = network(past);
    let cell = |plan: &CellPlan| {
        let counts = past.cells.get(&plan.number)?.clone();
        let (number, first_seed, runs) = (plan.number, plan.seeds.start, plan.runs());
        let (network_runs, network_differences) = network.get(&number).copied().unwrap_or_default();
        Some(Cell {
            number,
            point: plan.point.clone(),
            first_seed,
            phase_bound: u64::from(plan.point.warps()) * (1 + u64::from(plan.point.reads())),
            counts,
            network_runs,
            network_differences,
            command: format!(
                "{all} --cell {number} > cell-{number}.toml && \
                 stickycas-loadgen simulate cell-{number}.toml --seed {first_seed} --runs {runs}"
            ),
        })
    };
    let sweep = |plan: &SweepPlan| Sweep {
        name: plan.name.clone(),
        about: plan.about.clone(),
        figure: plan.figure,
        command: format!("{all} --only {}", plan.name),
        runs: plan.runs,
        planned: plan.cells.len() as u64,
        impossible: plan.impossible,
        repeated: plan.repeated,
        cells: plan.cells.iter().filter_map(cell).collect(),
    };
    Results {
        version: RESULTS_VERSION,
        name: campaign.name.clone(),
        about: campaign.about.clone(),
        command: format!("{all}{only}"),
        seed: campaign.seed,
        sweeps: campaign.sweeps.iter().map(sweep).collect(),
        made: made(past),
    }
}

/// Runs over the network and how many of them differ, by cell.
fn network(past: &Past) -> BTreeMap<u64, (u64, u64)> {
    let mut cells = BTreeMap::<u64, (u64, u64)>::new();
    for sampled in past.network.values() {
        let (runs, differences) = cells.entry(sampled.cell).or_default();
        *runs += 1;
        *differences += u64::from(sampled.difference.is_some());
    }
    cells
}

fn made(past: &Past) -> Made {
    let first = past.sessions.first();
    Made {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: first.and_then(|session| session.commit.clone()),
        debug_assertions: first.is_some_and(|session| session.debug_assertions),
        os: first.map(|session| session.os.clone()).unwrap_or_default(),
        architecture: first.map(|session| session.architecture.clone()).unwrap_or_default(),
        cpus: first.map_or(0, |session| session.cpus),
        started: first.map_or(0, |session| session.at / 1000),
        finished: past.last / 1000,
        busy_millis: past.busy,
    }
}

/// Writes the results into a folder, each file in the place of an older one.
///
/// # Errors
/// If a file cannot be written.
pub fn write(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let files =
        [("results.json", json(results)), ("results.csv", csv(results)), ("report.html", html(results))];
    for (name, content) in files {
        let path = folder.join(name);
        replace(&path, content.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Writes a file so that it is there whole or not at all: beside its place, and then moved there.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // That what is left of it cannot be removed either is not the news.
        let _ = fs::remove_file(&temporary);
    })
}

/// The content of `results.json`.
#[must_use]
pub fn json(results: &Results) -> String {
    crate::report::json::text(results)
}

/// The content of `results.csv`: the names of the columns, and a line for each cell. The columns are the fields of a
/// cell, those of its point among them, after the name of its sweep; what is none is empty.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut table = csv::Writer::from_writer(Vec::new());
    let cells =
        results.sweeps.iter().flat_map(|sweep| sweep.cells.iter().map(move |cell| fields(sweep, cell)));
    for (line, fields) in cells.enumerate() {
        let (names, values): (Vec<&str>, Vec<String>) = fields.into_iter().unzip();
        let named = if line == 0 { table.write_record(names) } else { Ok(()) };
        let written = named.and_then(|()| table.write_record(values));
        written.expect("memory takes everything, and every line has the same columns");
    }
    let bytes = table.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("texts were written")
}

fn fields(sweep: &Sweep, cell: &Cell) -> Vec<(&'static str, String)> {
    let Cell { number, point, first_seed, phase_bound, counts, network_runs, network_differences, command } =
        cell;
    let some = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    vec![
        ("sweep", sweep.name.clone()),
        ("number", number.to_string()),
        ("n", point.n.to_string()),
        ("p", point.p.to_string()),
        ("r", point.r.to_string()),
        ("f", point.f.to_string()),
        ("distinct", point.distinct.to_string()),
        ("strategy", point.strategy.clone()),
        ("placement", name_of(&point.placement)),
        ("arbiter", name_of(&point.arbiter)),
        ("order", name_of(&point.order)),
        ("window", name_of(&point.window)),
        ("first_seed", first_seed.to_string()),
        ("runs", counts.runs.to_string()),
        ("valid", counts.valid.to_string()),
        ("outside", counts.outside.to_string()),
        ("unknown", counts.unknown.to_string()),
        ("violation", counts.violation.to_string()),
        ("agreement_broken", counts.agreement_broken.to_string()),
        ("termination_broken", counts.termination_broken.to_string()),
        ("weak_broken", counts.weak_broken.to_string()),
        ("common_broken", counts.common_broken.to_string()),
        ("strong_broken", counts.strong_broken.to_string()),
        ("common_promised", counts.common_promised.to_string()),
        ("strong_promised", counts.strong_promised.to_string()),
        ("first_phase", some(counts.first_phase)),
        ("last_phase", some(counts.last_phase)),
        ("phase_bound", phase_bound.to_string()),
        ("culprits", counts.culprits.to_string()),
        ("named", counts.named.to_string()),
        ("blamed", counts.blamed.to_string()),
        ("accused", counts.accused.to_string()),
        ("example", some(counts.example)),
        ("network_runs", network_runs.to_string()),
        ("network_differences", network_differences.to_string()),
        ("command", command.clone()),
    ]
}

/// A name as it stands in files.
fn name_of(name: &impl Serialize) -> String {
    match serde_json::to_value(name) {
        Ok(Value::String(name)) => name,
        other => unreachable!("an axis of names has a name: {other:?}"),
    }
}
