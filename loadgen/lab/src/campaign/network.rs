//! A sample of the runs of a campaign, made over the network as well: whether the simulator stands for the
//! real thing.
//!
//! Which runs is drawn from the campaign's seed: a larger sample holds the smaller one. Each is made by real
//! clients on a real server; then
//!
//! 1. the machine, given the inputs of its history again, must do and answer the same, event by event;
//! 2. the promises and their premises (f, |Vc|) must be as in the simulated run with the same seed;
//! 3. where the arbiter and not the order of arrival chooses who wins, the list and the decision must be the
//!    same too, unless a process was too slow for its patience on the real clock.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use stickycas_harness::record::Record;
use stickycas_harness::run::{self, COORDINATOR, OwnServer, RunOptions, ServerHandle};
use stickycas_harness::scenario::Scenario;
use stickycas_harness::simulate;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::judge::{Outcome, Property, Verdict};
use stickycas_model::params::Arbiter;
use stickycas_model::random::SplitMix64;
use stickycas_model::sim;
use stickycas_model::types::ProcessId;
use tokio::task::JoinSet;

use super::journal::{Sampled, now};
use super::plan::{Campaign, CellPlan};

/// Runs at a time, so that runs that wait for a patience do not delay the others.
pub(super) const AT_A_TIME: usize = 8;
/// Mixed into the seed of the campaign, so that the sample is not drawn from the same numbers as its runs.
const DRAW: u64 = 0x6e65_7477_6f72_6b00;

/// The runs of the sample, each with its cell, in the order in which they are drawn: `count` of them, or all
/// there are.
#[must_use]
pub fn draw(campaign: &Campaign, count: u64) -> Vec<(&CellPlan, u64)> {
    let cells: Vec<&CellPlan> = campaign.cells().collect();
    let mut random = SplitMix64::new(campaign.seed ^ DRAW);
    let (mut drawn, mut seen) = (Vec::new(), BTreeSet::new());
    while (drawn.len() as u64) < count.min(campaign.runs()) {
        // Cells have equal chances, not runs: a cell with many runs is no more worth a look than another.
        let cell = cells[random.index(cells.len())];
        let Range { start, end } = cell.seeds;
        let seed = start + random.below(end - start);
        if seen.insert(seed) {
            drawn.push((cell, seed));
        }
    }
    drawn
}

/// Makes these runs over the network, on a server of its own, and tells the result of each. False if it was
/// told to stop before the last.
///
/// # Errors
/// If there is no server to be had, a run cannot be set up, or what `tell` returns.
pub fn run(
    campaign: &Campaign,
    runs: &[(&CellPlan, u64)],
    stop: &AtomicBool,
    mut tell: impl FnMut(Sampled) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let server = OwnServer::start().await?;
        let handle = Arc::new(ServerHandle::open(server.url(), COORDINATOR).await?);
        let mut waiting = runs.iter();
        let mut running = JoinSet::new();
        let mut done = 0;
        loop {
            while running.len() < AT_A_TIME
                && !stop.load(Ordering::Relaxed)
                && let Some((cell, seed)) = waiting.next()
            {
                let scenario = campaign.template(cell)?.with_seed(*seed)?;
                running.spawn(compared(Arc::clone(&handle), cell.number, scenario));
            }
            let Some(sampled) = running.join_next().await else { break };
            tell(sampled.context("a run panicked")??)?;
            done += 1;
        }
        drop(handle);
        server.stop().await?;
        Ok(done == runs.len())
    })
}

/// Makes one run over the network and compares it.
async fn compared(handle: Arc<ServerHandle>, cell: u64, scenario: Scenario) -> anyhow::Result<Sampled> {
    let record = run::run(&handle, &scenario, &RunOptions::in_process()).await?;
    let difference = difference(&record, &simulate(&scenario));
    Ok(Sampled { at: now(), cell, seed: scenario.seed, difference })
}

/// The first thing in which a run over the network differs from its replay or from the simulated run.
fn difference(record: &Record, simulated: &Record) -> Option<String> {
    let Record { scenario, history, verdict, .. } = record;
    if !record.complete {
        return Some(format!("its history is incomplete: {}", verdict.reasons.join("; ")));
    }
    let machine = match sim::replay(&scenario.params, history) {
        Ok(machine) => machine,
        Err(difference) => return Some(format!("the replay differs: {difference}")),
    };
    if !machine.list().iter().map(|entry| &entry.value).eq(&verdict.list) {
        return Some("the replay ends with another list".to_owned());
    }
    if verdict.verdict == Outcome::Violation {
        return Some(format!("it is a violation: {}", verdict.reasons.join("; ")));
    }
    let same_list =
        scenario.params.spec().arbiter != Arbiter::FirstCome && too_slow(record) == too_slow(simulated);
    differs(verdict, &simulated.verdict, same_list)
}

/// The processes whose patience was spent.
fn too_slow(record: &Record) -> BTreeSet<ProcessId> {
    let spent = |recorded: &Recorded| match recorded.event {
        Event::PatienceSpent { process, .. } => Some(process),
        _ => None,
    };
    record.history.iter().filter_map(spent).collect()
}

/// The first different field of those that follow from the scenario and, if `list`, of those that follow from
/// the winners.
fn differs(networked: &Verdict, simulated: &Verdict, list: bool) -> Option<String> {
    let premises =
        |verdict: &Verdict| Property::ALL.map(|property| verdict.finding(property).1.map(str::to_owned));
    let observed = |verdict: &Verdict| Property::ALL.map(|property| verdict.finding(property).0);
    let all_in_time = networked.late == simulated.late;
    let fields = [
        ("f", all_in_time && networked.f != simulated.f),
        ("|Vc|", networked.distinct_correct_proposals != simulated.distinct_correct_proposals),
        ("what was promised", all_in_time && premises(networked) != premises(simulated)),
        ("the list", list && networked.list != simulated.list),
        ("the decision", list && networked.decision != simulated.decision),
        ("what was observed", list && observed(networked) != observed(simulated)),
        (
            "the phase of the last decision",
            list && networked.last_decision_phase != simulated.last_decision_phase,
        ),
    ];
    let (name, _) = fields.into_iter().find(|(_, differs)| *differs)?;
    Some(format!("{name} is not that of the simulated run"))
}

#[cfg(test)]
mod tests {
    use stickycas_model::types::Value;

    use super::*;

    const TEXT: &str = r#"
        name = "drawn"
        seed = 5
        [[sweep]]
        name = "only"
        runs = 3
        [sweep.axes]
        n = 8
        p = 2
        r = 4
        f = [1, 2, 3]
        strategy = "collude(value=0)"
        arbiter = "byzantine_first"
    "#;

    fn campaign() -> Campaign {
        Campaign::parse("drawn.toml", TEXT, None).unwrap().0
    }

    #[test]
    fn a_larger_sample_holds_the_smaller_without_repeats() {
        let campaign = campaign();
        let all = draw(&campaign, 100);
        assert_eq!(all.len(), 9, "there are no more runs");
        assert_eq!(draw(&campaign, 4), all[..4]);
        let seeds: BTreeSet<u64> = all.iter().map(|(_, seed)| *seed).collect();
        assert_eq!(seeds, (5..14).collect());
        assert!(all.iter().all(|(cell, seed)| cell.seeds.contains(seed)));
    }

    fn record(seed: u64) -> Record {
        let campaign = campaign();
        let cell = campaign.cells().last().unwrap();
        simulate(&campaign.template(cell).unwrap().with_seed(seed).unwrap())
    }

    fn told(spoil: impl FnOnce(&mut Record)) -> Option<String> {
        let mut record = record(5);
        spoil(&mut record);
        difference(&record, &self::record(5))
    }

    #[test]
    fn a_run_does_not_differ_from_itself() {
        assert_eq!(told(|_| {}), None);
    }

    #[test]
    fn what_differs_is_told() {
        let says = |what: &str, spoil: fn(&mut Record)| {
            let told = told(spoil).unwrap_or_else(|| panic!("nobody says: {what}"));
            assert!(told.contains(what), "{told}");
        };
        says("incomplete", |record| record.complete = false);
        says("the replay differs: event", |record| {
            let added = |recorded: &Recorded| matches!(recorded.event, Event::Added { .. });
            let index = record.history.iter().position(added).unwrap();
            record.history.remove(index);
        });
        says("another list", |record| record.verdict.list.push(Value::parse("x").unwrap()));
        says("a violation", |record| record.verdict.verdict = Outcome::Violation);
        says("f is not", |record| record.verdict.f += 1);
        says("what was promised", |record| record.verdict.strong_validity_missing_premise = None);
        says("the decision", |record| record.verdict.decision = None);
        says("the phase", |record| record.verdict.last_decision_phase = None);
    }
}
