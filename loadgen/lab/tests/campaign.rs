//! A campaign gives the same results however often it is interrupted and however many threads it has; nothing
//! that is done is lost; and its results say what its runs showed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::cell::Cell as Counter;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stickycas_harness::{Scenario, simulate};
use stickycas_lab::campaign::cell::{Made, Results};
use stickycas_lab::campaign::journal::{self, JOURNAL, Journal};
use stickycas_lab::campaign::report;
use stickycas_lab::campaign::{self, CampaignOptions, CampaignRun, CampaignSource, engine};
use stickycas_model::judge::{Observed, Outcome};
use stickycas_model::types::Phase;

const TEXT: &str = r#"
name = "small"
about = "for tests"
[instance]
patience = "20s"
[axes]
n = 8
r = 4
[[sweep]]
name = "broken"
figure = "resilience"
runs = 6
[sweep.axes]
p = [1, 2]
f = { from = 0, to = 4 }
distinct = [1, 2]
strategy = "collude(value=0)"
placement = "random"
arbiter = ["byzantine_first", "uniform"]
[[sweep]]
name = "blamed"
runs = 4
[sweep.axes]
p = 2
f = 2
strategy = ["late-append(access=2, value=0)", "distinct"]
"#;

fn source() -> CampaignSource {
    CampaignSource::new("small.toml".into(), TEXT.into(), 40, Vec::new())
}

fn options(jobs: usize) -> CampaignOptions {
    CampaignOptions { jobs: NonZeroUsize::new(jobs).unwrap(), budget: None, network: 0, quiet: true }
}

/// Runs what is left of the campaign, and writes its results.
fn run_campaign(
    source: &CampaignSource,
    folder: &Path,
    options: &CampaignOptions,
    stop: &AtomicBool,
    tell: impl FnMut(&str),
) -> anyhow::Result<CampaignRun> {
    let campaign_run = campaign::run(source, folder, options, stop, tell)?;
    report::write(&campaign_run.results, folder)?;
    Ok(campaign_run)
}

fn run(folder: &Path, jobs: usize) -> CampaignRun {
    run_campaign(&source(), folder, &options(jobs), &AtomicBool::new(false), |_| {}).unwrap()
}

/// The files that follow from the file and the seed, without where and when they were made.
fn files(folder: &Path) -> (Results, String) {
    let json = fs::read_to_string(folder.join("results.json")).unwrap();
    let made = Made { started: 0, finished: 0, busy_millis: 0, ..results(folder).made };
    assert_eq!(serde_json::from_str::<Results>(&json).unwrap(), results(folder));
    (Results { made, ..results(folder) }, fs::read_to_string(folder.join("results.csv")).unwrap())
}

fn results(folder: &Path) -> Results {
    serde_json::from_slice(&fs::read(folder.join("results.json")).unwrap()).unwrap()
}

fn cells_in(folder: &Path) -> usize {
    journal::read(folder).unwrap().1.cells.len()
}

#[test]
fn a_campaign_killed_between_cells_resumes_to_equal_results() {
    let temporary = tempfile::tempdir().unwrap();
    let whole = temporary.path().join("whole");
    assert!(run(&whole, 2).complete);
    let expected = files(&whole);
    let journal = fs::read_to_string(whole.join(JOURNAL)).unwrap();
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for kept in [0, 1, 2, 3, 17, lines.len() - 1, lines.len()] {
        let killed = temporary.path().join(format!("killed-{kept}"));
        fs::create_dir(&killed).unwrap();
        // What a kill leaves behind: whole lines, and one that it cut off.
        let cut = lines.get(kept).map_or("", |line| &line[..line.len() / 2]);
        fs::write(killed.join(JOURNAL), lines[..kept].concat() + cut).unwrap();
        let before = if kept == 0 { 0 } else { cells_in(&killed) };
        assert_eq!(before, kept.saturating_sub(2));
        let campaign_run = run(&killed, 1);
        assert!(campaign_run.complete);
        assert_eq!(files(&killed), expected, "{kept} lines were left");
        assert_eq!(fs::read_to_string(killed.join(JOURNAL)).unwrap().matches("\"cell\":{").count(), 42);
    }
}

#[test]
fn an_interrupt_keeps_the_cells_that_are_done() {
    let temporary = tempfile::tempdir().unwrap();
    let campaign = source().campaign().unwrap();
    let cells: Vec<_> = campaign.cells().collect();
    let folder = temporary.path().join("interrupted");
    let mut journal = Journal::open(&folder, &source()).unwrap();
    let (stop, done) = (AtomicBool::new(false), Counter::new(0));
    let complete = engine::run(&campaign, &cells, NonZeroUsize::MIN, &stop, |cell, _, counts| {
        if let Some(counts) = counts {
            journal.cell(cell.number, counts)?;
            done.set(done.get() + 1);
            stop.store(done.get() >= 5, Ordering::Relaxed);
        }
        Ok(())
    });
    assert!(!complete.unwrap());
    drop(journal);
    assert!((5..cells.len()).contains(&done.get()));
    assert_eq!(cells_in(&folder), done.get());

    let mut said = Vec::new();
    let never = AtomicBool::new(false);
    let resumed =
        run_campaign(&source(), &folder, &options(3), &never, |text| said.push(text.to_owned())).unwrap();
    assert!(resumed.complete);
    assert!(
        said[0].starts_with(&format!("going on: {} of {} cells are done", done.get(), cells.len())),
        "{said:?}"
    );
    let at_once = temporary.path().join("at-once");
    run(&at_once, 2);
    assert_eq!(files(&folder), files(&at_once));
    // Once more: there is nothing left to do, and the results are still those.
    run(&folder, 2);
    assert_eq!(files(&folder), files(&at_once));
}

#[test]
fn told_to_stop_it_says_how_far_it_came() {
    let temporary = tempfile::tempdir().unwrap();
    let campaign_run =
        run_campaign(&source(), temporary.path(), &options(1), &AtomicBool::new(true), |_| {}).unwrap();
    assert!(!campaign_run.complete && !campaign_run.results.complete());
    assert_eq!(campaign_run.results.cells().count(), 0);
    assert_eq!(campaign_run.results.sweeps[1].planned, 2);
}

#[test]
fn counts_are_what_the_runs_show_one_by_one() {
    let temporary = tempfile::tempdir().unwrap();
    let results = run(temporary.path(), 2).results;
    let campaign = source().campaign().unwrap();
    assert!(results.complete());
    let (mut broken, mut blamed) = (0, 0);
    for (cell, plan) in results.cells().zip(campaign.cells()) {
        let text = campaign.scenario(plan);
        let verdict = |seed| simulate(&Scenario::parse("cell.toml", &text, Some(seed)).unwrap()).verdict;
        let verdicts: Vec<_> = plan.seeds.clone().map(verdict).collect();
        let count = |which: &dyn Fn(&stickycas_model::judge::Verdict) -> bool| {
            verdicts.iter().filter(|verdict| which(verdict)).count() as u64
        };
        let counts = &cell.counts;
        assert_eq!((cell.number, &cell.point, cell.first_seed), (plan.number, &plan.point, plan.seeds.start));
        assert_eq!(counts.runs, plan.runs());
        assert_eq!(counts.valid, count(&|verdict| verdict.verdict == Outcome::Valid));
        assert_eq!(counts.outside, count(&|verdict| verdict.verdict == Outcome::Outside));
        assert_eq!((counts.unknown, counts.violation, counts.accused), (0, 0, 0));
        assert_eq!(counts.strong_broken, count(&|verdict| verdict.strong_validity == Observed::Violated));
        assert_eq!(counts.common_broken, count(&|verdict| verdict.common_validity == Observed::Violated));
        assert_eq!(counts.strong_promised, count(&|verdict| verdict.strong_validity_promised));
        let broke = |seed: &u64| verdict(*seed).strong_validity == Observed::Violated;
        assert_eq!(counts.example, plan.seeds.clone().find(broke));
        let phases = || verdicts.iter().filter_map(|verdict| verdict.last_decision_phase);
        assert_eq!(counts.first_phase, phases().min().map(Phase::get));
        assert_eq!(counts.last_phase, phases().max().map(Phase::get));
        assert!(verdicts.iter().all(|verdict| verdict.phase_bound.get() == cell.phase_bound));
        assert_eq!(counts.blamed, verdicts.iter().map(|verdict| verdict.blame.len() as u64).sum::<u64>());
        broken += counts.strong_broken;
        blamed += counts.blamed;
    }
    assert!(broken > 0 && blamed > 0, "the campaign shows something of both: {broken}, {blamed}");
}

#[test]
fn the_csv_file_has_a_line_for_each_cell() {
    let temporary = tempfile::tempdir().unwrap();
    let results = run(temporary.path(), 2).results;
    let mut table = csv::Reader::from_path(temporary.path().join("results.csv")).unwrap();
    let names = table.headers().unwrap().clone();
    let lines: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    assert_eq!(lines.len(), results.cells().count());
    let column =
        |name: &str| names.iter().position(|known| known == name).unwrap_or_else(|| panic!("{name}"));
    for (cell, line) in results.cells().zip(&lines) {
        let field = |name: &str| &line[column(name)];
        assert_eq!(field("number"), cell.number.to_string());
        assert_eq!(field("strategy"), cell.point.strategy, "commas in it survive");
        assert_eq!((field("window"), field("order")), ("first_access", "ascending"));
        assert_eq!(field("strong_broken"), cell.counts.strong_broken.to_string());
        assert_eq!(field("example"), cell.counts.example.map(|seed| seed.to_string()).unwrap_or_default());
        assert_eq!(field("command"), cell.command);
    }
    // A field that is in the JSON and not in the table would be a slip.
    let json = serde_json::to_value(results.cells().next().unwrap()).unwrap();
    let (cell, point) = (json.as_object().unwrap(), json["point"].as_object().unwrap());
    for name in cell.keys().chain(point.keys()).filter(|name| *name != "point") {
        column(name);
    }
}

#[test]
fn what_does_not_fit_its_budget_is_refused_before_it_begins() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("never");
    let tight = CampaignOptions { budget: Some(Duration::from_nanos(1)), ..options(1) };
    let refused =
        run_campaign(&source(), &folder, &tight, &AtomicBool::new(false), |_| {}).unwrap_err().to_string();
    for part in [
        "42 cells with 248 runs take about",
        "the budget is 1ns",
        "cut runs to 0 %",
        "--budget",
        "broken",
        "blamed",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(!folder.exists());
    let ample = CampaignOptions { budget: Some(Duration::from_secs(3600)), ..options(1) };
    assert!(run_campaign(&source(), &folder, &ample, &AtomicBool::new(false), |_| {}).unwrap().complete);
    // What is done costs nothing.
    assert!(run_campaign(&source(), &folder, &tight, &AtomicBool::new(false), |_| {}).unwrap().complete);
}

#[test]
fn a_folder_holds_one_campaign_and_nothing_else() {
    let temporary = tempfile::tempdir().unwrap();
    let refused = |folder: &Path, source: &CampaignSource| {
        let never = AtomicBool::new(false);
        let error = run_campaign(source, folder, &options(1), &never, |_| {}).unwrap_err();
        format!("{error:#}")
    };
    let folder = temporary.path().join("small");
    run(&folder, 2);
    let other_seed = CampaignSource::new("small.toml".into(), TEXT.into(), 41, Vec::new());
    assert!(refused(&folder, &other_seed).contains("holds another campaign (small.toml with seed 40)"));
    let other_text =
        CampaignSource::new("small.toml".into(), TEXT.replace("runs = 6", "runs = 7"), 40, Vec::new());
    assert!(refused(&folder, &other_text).contains("holds another campaign"));
    let part = CampaignSource::new("small.toml".into(), TEXT.into(), 40, vec!["blamed".into()]);
    assert!(refused(&folder, &part).contains("holds another campaign"));
    // The same campaign with another comment is the same campaign.
    let comment = CampaignSource::new("copy.toml".into(), format!("# a copy\n{TEXT}"), 40, Vec::new());
    assert!(run_campaign(&comment, &folder, &options(1), &AtomicBool::new(false), |_| {}).unwrap().complete);

    let held = Journal::open(&folder, &source()).unwrap();
    assert!(refused(&folder, &source()).contains("is in use"));
    drop(held);

    let foreign = temporary.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("mine"), "keep me").unwrap();
    assert!(refused(&foreign, &source()).contains("holds no campaign: give another --out"));
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);

    let path = folder.join(JOURNAL);
    let whole = fs::read_to_string(&path).unwrap();
    // Runs are written down as they end, in whatever order.
    let line = 1 + whole.lines().position(|line| line.contains("\"number\":2,")).unwrap();
    fs::write(&path, whole.replacen("\"number\":2,", "\"number\":two,", 1)).unwrap();
    let told = refused(&folder, &source());
    assert!(told.contains(&format!("{JOURNAL}:{line}: this is no line of a journal")), "{told}");
}

#[test]
fn a_sample_over_the_network_agrees_with_the_simulator() {
    let temporary = tempfile::tempdir().unwrap();
    let sampled = CampaignOptions { network: 12, ..options(2) };
    let campaign_run =
        run_campaign(&source(), temporary.path(), &sampled, &AtomicBool::new(false), |_| {}).unwrap();
    assert!(campaign_run.complete);
    let sum = |count: fn(&campaign::cell::Cell) -> u64| campaign_run.results.cells().map(count).sum::<u64>();
    let completed = journal::read(temporary.path()).unwrap().1;
    let differences: Vec<_> =
        completed.network.values().filter(|sampled| sampled.difference.is_some()).collect();
    assert!(differences.is_empty(), "{differences:?}");
    assert_eq!((sum(|cell| cell.network_runs), sum(|cell| cell.network_differences)), (12, 0));
    // A larger sample holds the smaller one: only the rest is made.
    let more = CampaignOptions { network: 14, ..sampled };
    let mut said = String::new();
    run_campaign(&source(), temporary.path(), &more, &AtomicBool::new(false), |text| said.push_str(text))
        .unwrap();
    assert!(said.ends_with("left: 0 runs, 2 over the network as well"), "{said}");
    let past_again = journal::read(temporary.path()).unwrap().1;
    assert!(completed.network.iter().all(|(seed, sampled)| past_again.network.get(seed) == Some(sampled)));
    assert_eq!(past_again.network.len(), 14);
}
