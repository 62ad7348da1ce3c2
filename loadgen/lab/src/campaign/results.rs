//! From what was counted to the results. [`report`](super::report) writes them into files.

use std::collections::BTreeMap;

use stickycas_harness::command_line::word_of;
use stickycas_harness::environment::Platform;
use stickycas_model::bounds;

use super::cell::{Cell, Made, POSSIBLE, RESULTS_VERSION, Results, Sweep};
use super::journal::{CampaignSource, Completed};
use super::plan::{Campaign, CellPlan, SweepPlan};

/// The results of a campaign that began like this, as far as it has come.
#[must_use]
pub fn results(source: &CampaignSource, campaign: &Campaign, completed: &Completed) -> Results {
    let file = word_of(&source.file);
    let set: String = source.set.iter().map(|setting| format!(" --set {}", word_of(setting))).collect();
    let all = format!("stickycas-loadgen campaign {file} --seed {}{set}", source.seed);
    let only: String = source.only.iter().map(|name| format!(" --only {}", word_of(name))).collect();
    let network = network(completed);
    let cell = |plan: &CellPlan| {
        let counts = completed.cells.get(&plan.number)?.clone();
        let (number, first_seed, runs) = (plan.number, plan.seeds.start, plan.runs());
        let (network_runs, network_differences) = network.get(&number).copied().unwrap_or_default();
        Some(Cell {
            number,
            point: plan.point.clone(),
            first_seed,
            phase_bound: bounds::phase_bound(&plan.point.params().expect(POSSIBLE), 0).get(),
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
        command: format!("{all} --only {}", word_of(&plan.name)),
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
        made: made(completed),
    }
}

/// Runs over the network and how many of them differ, by cell.
fn network(completed: &Completed) -> BTreeMap<u64, (u64, u64)> {
    let mut cells = BTreeMap::<u64, (u64, u64)>::new();
    for sampled in completed.network.values() {
        let (runs, differences) = cells.entry(sampled.cell).or_default();
        *runs += 1;
        *differences += u64::from(sampled.difference.is_some());
    }
    cells
}

fn made(completed: &Completed) -> Made {
    let first = completed.sessions.first();
    Made {
        platform: Platform {
            version: Platform::here().version,
            ..first.map(|session| session.platform.clone()).unwrap_or_default()
        },
        started: first.map_or(0, |session| session.at / 1000),
        finished: completed.last / 1000,
        busy_millis: completed.busy,
    }
}
