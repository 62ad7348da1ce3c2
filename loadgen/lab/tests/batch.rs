//! Many runs of one scenario: each is the run that its seed gives alone, and they add up the same however
//! they are shared out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stickycas_harness::files::Settings;
use stickycas_harness::scenario::Template;
use stickycas_harness::simulate;
use stickycas_lab::batch::{IN_FULL, Runs, Tally, tally};
use stickycas_model::judge::{Outcome, VerdictSummary};

fn jobs(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// Every scenario that ships and that the simulator can show, and some in which everything is drawn.
fn templates() -> Vec<Template> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let shipped = files.map(|file| Template::load(&file, Some(0), &Settings::default()).unwrap());
    let drawn = |text: &str| Template::parse("drawn", text, Some(0)).unwrap();
    let mut templates: Vec<Template> =
        shipped.filter(|template| template.scenario().check_simulable().is_ok()).collect();
    assert!(templates.len() >= 8, "{} scenarios", templates.len());
    templates.extend([drawn(ALL_DRAWN), drawn(BEYOND_THE_BOUND)]);
    templates
}

const ALL_DRAWN: &str = r#"
    name = "all-drawn"
    [instance]
    processes = 13
    warp_size = 3
    read_size = 2
    order = "shuffled"
    arbiter = "uniform"
    [proposals]
    distinct = 3
    [[faults]]
    count = 2
    placement = "random"
    strategy = "distinct"
    [[faults]]
    count = 2
    placement = "random"
    strategy = "silent"
"#;

/// Strong validity breaks in some runs and not in others.
const BEYOND_THE_BOUND: &str = include_str!("beyond_the_bound.toml");

#[test]
fn a_run_of_many_is_the_run_that_its_seed_gives_alone() {
    for template in templates() {
        let mut runs = Runs::of(&template);
        // Not in order, so that nothing of one run can be mistaken for the next one's.
        for seed in [1, 7, 2, 9_000_000_001, 3, 1] {
            let alone = simulate(&template.with_seed(seed).unwrap());
            let summary = runs.summary(seed).unwrap();
            assert_eq!(
                summary,
                VerdictSummary::from(&alone.verdict),
                "{} with seed {seed}",
                template.scenario().name
            );
        }
    }
}

#[test]
fn any_number_of_threads_counts_the_same() {
    let template = Template::parse("beyond", BEYOND_THE_BOUND, None).unwrap();
    let seeds = IN_FULL - 300..IN_FULL + 300;
    let mut expected = Tally::default();
    for seed in seeds.clone() {
        let verdict = simulate(&template.with_seed(seed).unwrap()).verdict;
        expected.add(seed, &VerdictSummary::from(&verdict));
    }
    assert_eq!(expected.runs, 600);
    let verdicts = expected.verdicts;
    assert!(
        verdicts.of(Outcome::Valid).runs > 0 && verdicts.of(Outcome::Outside).runs > 0,
        "both happen: {verdicts:?}"
    );
    assert_eq!(expected.worst(), Outcome::Outside);
    for threads in [1, 3] {
        let ran = AtomicU64::new(0);
        let go_on = AtomicBool::new(false);
        let told = |runs| _ = ran.fetch_add(runs, Ordering::Relaxed);
        let counted = tally(&template, seeds.clone(), jobs(threads), &go_on, told).unwrap();
        assert_eq!(counted, expected, "{threads} threads");
        assert_eq!(ran.into_inner(), 600);
    }
}

#[test]
fn who_is_told_to_stop_returns_what_was_counted_so_far() {
    let template = Template::parse("beyond", BEYOND_THE_BOUND, None).unwrap();
    let stop = AtomicBool::new(false);
    let told = |_| stop.store(true, Ordering::Relaxed);
    let counted = tally(&template, 0..1_000_000_000, jobs(2), &stop, told).unwrap();
    assert!((1..10_000).contains(&counted.runs), "{} runs", counted.runs);
}

#[test]
fn a_seed_that_draws_a_process_twice_ends_the_runs() {
    let text = ALL_DRAWN.replacen(
        "count = 2\n    placement = \"random\"\n    strategy = \"silent\"",
        "processes = [1, 2, 3]\n    strategy = \"silent\"",
        1,
    );
    assert_ne!(text, ALL_DRAWN);
    let seed = (0..).find(|seed| Template::parse("drawn", &text, Some(*seed)).is_ok()).unwrap();
    let template = Template::parse("drawn", &text, Some(seed)).unwrap();
    let error = tally(&template, 0..1_000, jobs(2), &AtomicBool::new(false), |_| {}).unwrap_err();
    assert!(error.to_string().contains("is in the fault plan already"), "{error}");
}
