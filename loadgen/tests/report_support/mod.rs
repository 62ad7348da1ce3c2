//! Results for reports: cells of a campaign, run one by one in the simulator and counted by their verdicts.

use stickycas_loadgen::campaign::cell::{Cell, Counts, Made, RESULTS_VERSION, Results, Sweep};
use stickycas_loadgen::campaign::{Campaign, CellPlan, SweepPlan};
use stickycas_loadgen::{Scenario, simulate};
use stickycas_model::bounds;
use stickycas_model::judge::{Observed, Outcome, Verdict};

/// The results of the campaign that this text describes.
pub(crate) fn results_of(text: &str) -> Results {
    let (campaign, _) = Campaign::parse("campaign.toml", text, None).unwrap();
    let command = format!("stickycas-loadgen campaign campaign.toml --seed {}", campaign.seed);
    Results {
        version: RESULTS_VERSION,
        name: campaign.name.clone(),
        about: campaign.about.clone(),
        seed: campaign.seed,
        sweeps: campaign.sweeps.iter().map(|plan| sweep(&campaign, plan, &command)).collect(),
        made: Made {
            version: "0.1.0".to_owned(),
            commit: None,
            debug_assertions: true,
            os: "linux".to_owned(),
            architecture: "x86_64".to_owned(),
            cpus: 2,
            started: 1_795_000_000,
            finished: 1_795_000_101,
            busy_millis: 98_700,
        },
        command,
    }
}

fn sweep(campaign: &Campaign, plan: &SweepPlan, command: &str) -> Sweep {
    let command = format!("{command} --sweep {}", plan.name);
    Sweep {
        name: plan.name.clone(),
        about: plan.about.clone(),
        figure: plan.figure,
        runs: plan.runs,
        planned: plan.cells.len() as u64,
        impossible: plan.impossible,
        repeated: plan.repeated,
        cells: plan.cells.iter().map(|plan| cell(campaign, plan, &command)).collect(),
        command,
    }
}

fn cell(campaign: &Campaign, plan: &CellPlan, command: &str) -> Cell {
    let text = campaign.scenario(plan);
    let template = Scenario::parse("cell.toml", &text, Some(plan.seeds.start)).unwrap();
    let mut counts = Counts::default();
    for seed in plan.seeds.clone() {
        let scenario = Scenario::parse("cell.toml", &text, Some(seed)).unwrap();
        add(&mut counts, &simulate(&scenario).verdict, seed);
    }
    Cell {
        number: plan.number,
        point: plan.point.clone(),
        first_seed: plan.seeds.start,
        phase_bound: bounds::phase_bound(&template.params, 0).get(),
        counts,
        network_runs: 0,
        network_differences: 0,
        command: format!("{command} --cell {}", plan.number),
    }
}

fn add(counts: &mut Counts, verdict: &Verdict, seed: u64) {
    let broke = |observed| u64::from(observed == Observed::Violated);
    counts.runs += 1;
    match verdict.verdict {
        Outcome::Valid => counts.valid += 1,
        Outcome::Outside => counts.outside += 1,
        Outcome::Unknown => counts.unknown += 1,
        Outcome::Violation => counts.violation += 1,
    }
    counts.agreement_broken += broke(verdict.agreement);
    counts.termination_broken += broke(verdict.termination);
    counts.weak_broken += broke(verdict.weak_validity);
    counts.common_broken += broke(verdict.common_validity);
    counts.strong_broken += broke(verdict.strong_validity);
    counts.common_promised += u64::from(verdict.common_validity_promised);
    counts.strong_promised += u64::from(verdict.strong_validity_promised);
    if verdict.strong_validity == Observed::Violated {
        counts.example.get_or_insert(seed);
    }
    let last = verdict.last_decision_phase.map(|phase| phase.get());
    counts.first_phase = [counts.first_phase, last].into_iter().flatten().min();
    counts.last_phase = counts.last_phase.max(last);
    let byzantine: Vec<_> =
        verdict.blame.keys().filter(|process| verdict.byzantine.contains_key(process)).collect();
    counts.blamed += verdict.blame.len() as u64;
    counts.accused += verdict.accused_correct.len() as u64;
    // Whose strategy commits an offence: of those that these campaigns play, who appends late.
    let culprits = verdict.byzantine.values().filter(|strategy| strategy.starts_with("late-append"));
    counts.culprits += culprits.count() as u64;
    counts.named += byzantine.len() as u64;
}
