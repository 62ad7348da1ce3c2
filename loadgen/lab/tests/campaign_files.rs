//! What a campaign file means, and that what is wrong with one is told with its line and the reason.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use stickycas_harness::Scenario;
use stickycas_harness::fault_plan::Placement;
use stickycas_harness::files::Settings;
use stickycas_harness::files::instance;
use stickycas_lab::campaign::cell::{Figure, NO_STRATEGY};
use stickycas_lab::campaign::{Campaign, CellPlan};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Patience};

/// A file with nothing wrong. Each test below spoils one line of it.
const GOOD: &str = r#"name = "good"
seed = 100
budget = "90s"
network = 5

[instance]
patience = "250ms"

[axes]
n = 6
p = 2
r = 3

[[sweep]]
name = "first"
figure = "resilience"
runs = 10
[sweep.axes]
p = [1, 2, 7]
f = { from = 0, to = 2 }
distinct = 2
strategy = ["collude( value = 0 )", "silent"]
arbiter = ["byzantine_first", "uniform"]

[[sweep]]
name = "second"
runs = 3
[sweep.axes]
n = [4, 8]
order = "shuffled"
window = "open"
"#;

fn good() -> Campaign {
    Campaign::parse("good.toml", GOOD, None).unwrap().0
}

fn spoilt(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the file");
    refused(&GOOD.replacen(from, to, 1))
}

fn refused(text: &str) -> String {
    Campaign::parse("bad.toml", text, None).expect_err(text).to_string()
}

#[test]
fn a_strategy_of_a_campaign_sends_no_value_that_is_too_long() {
    let long = ["collude(value=abcd)", "adaptive(phase=3, then=liar(value=abcd))", "distinct"];
    for strategy in long {
        let file = GOOD.replace("silent", strategy).replace("patience = \"250ms\"", "max_value_bytes = 3");
        let told = refused(&file);
        assert!(told.starts_with("bad.toml:22: ") && told.contains("at most max_value_bytes = 3"), "{told}");
    }
    let fits =
        GOOD.replace("silent", "collude(value=abc)").replace("patience = \"250ms\"", "max_value_bytes = 3");
    assert!(Campaign::parse("good.toml", &fits, None).is_ok());
}

#[test]
fn every_combination_that_can_be_is_a_cell_once() {
    let (campaign, limits) = Campaign::parse("good.toml", GOOD, None).unwrap();
    assert_eq!((limits.budget, limits.network), (Some(Duration::from_secs(90)), 5));
    let [first, second] = &campaign.sweeps[..] else { panic!("two sweeps") };
    // p = 7 cannot be: a third of 3 * 3 * 2 * 2 points. f = 0 is the same for both strategies: p and arbiter
    // are left.
    assert_eq!((first.impossible, first.repeated, first.cells.len()), (12, 4, 20));
    assert_eq!(first.figure, Some(Figure::Resilience));
    assert!(first.cells.iter().all(|cell| cell.point.n == 6 && cell.point.r == 3 && cell.runs() == 10));
    let strategies: BTreeSet<&str> = first.cells.iter().map(|cell| cell.point.strategy.as_str()).collect();
    assert_eq!(strategies, BTreeSet::from([NO_STRATEGY, "collude(value=0)", "silent"]));

    let shapes: Vec<_> = second.cells.iter().map(|cell| (cell.point.n, cell.point.p, cell.point.f)).collect();
    assert_eq!(
        shapes,
        [(4, 2, 0), (8, 2, 0)],
        "what a sweep does not say stands under [axes], or is the default"
    );
    let point = &second.cells[0].point;
    assert_eq!((point.order, point.window), (Order::Shuffled, AppendWindow::Open));
    assert_eq!((point.placement, point.arbiter.clone()), (Placement::Spread, instance::Arbiter::FirstCome));
}

#[test]
fn cells_are_numbered_and_share_no_seed() {
    let campaign = good();
    let mut next = (1, 100);
    for cell in campaign.cells() {
        assert_eq!((cell.number, cell.seeds.start), next);
        next = (cell.number + 1, cell.seeds.end);
    }
    assert_eq!(next.1 - 100, campaign.runs());
    let cells: Vec<CellPlan> = campaign.sweeps[1].cells.clone();
    let alone = campaign.clone().only(&["second".to_owned()]).unwrap();
    assert!(alone.cells().eq(&cells));
    let unknown = campaign.only(&["third".to_owned()]).unwrap_err();
    assert_eq!(unknown, "there is no sweep \"third\": give one of first, second");
}

#[test]
fn a_given_seed_replaces_that_of_the_file_or_is_drawn() {
    assert_eq!(Campaign::parse("good.toml", GOOD, Some(7)).unwrap().0.seed, 7);
    let drawn = |_| Campaign::parse("good.toml", &GOOD.replace("seed = 100\n", ""), None).unwrap().0.seed;
    assert!((0..8).map(drawn).collect::<BTreeSet<_>>().len() > 1);
}

#[test]
fn a_cell_is_a_scenario() {
    let campaign = good();
    for cell in campaign.cells() {
        let point = &cell.point;
        let scenario =
            Scenario::parse("cell.toml", &campaign.scenario(cell), Some(cell.seeds.start)).unwrap();
        let spec = scenario.params.spec();
        assert_eq!((spec.processes, spec.warp_size, spec.read_size), (point.n, point.p, point.r));
        assert_eq!((spec.order, spec.append_window), (point.order, point.window));
        assert_eq!(spec.patience, Patience::Finite(Duration::from_millis(250)));
        assert_eq!(scenario.truth.byzantine().count(), point.f as usize);
        assert_eq!(scenario.truth.correct_proposals().len(), point.distinct as usize);
        match &point.arbiter {
            instance::Arbiter::FirstCome => assert_eq!(spec.arbiter, Arbiter::FirstCome),
            instance::Arbiter::Uniform => assert_eq!(spec.arbiter, Arbiter::Uniform),
            instance::Arbiter::ByzantineFirst => {
                assert_eq!(spec.arbiter, Arbiter::Priority(scenario.truth.byzantine().collect()));
            }
            instance::Arbiter::Priority(order) => panic!("a campaign names no processes: {order:?}"),
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_what_to_do() {
    for (from, to, line, reason) in [
        ("runs = 10", "runs = 0", 17, "runs = 0: give 1 to"),
        ("runs = 10", "runs = \"ten\"", 17, "the text \"ten\" stands where a whole number"),
        ("budget = \"90s\"", "budget = \"soon\"", 3, "budget = \"soon\""),
        ("patience = \"250ms\"", "patience = \"long\"", 7, "patience = \"long\""),
        ("patience = \"250ms\"", "seed = 3", 7, "every run has a seed of its own"),
        ("r = 3", "z = 3", 12, "there is no key z"),
        ("r = 3\n", "", 13, "the axis read_size is missing"),
        ("r = 3", "r = 0", 12, "read_size = 0: give 1 to 65536"),
        ("p = [1, 2, 7]", "p = [1, \"x\"]", 19, "the text \"x\" stands where"),
        ("{ from = 0, to = 2 }", "{ from = 3, to = 2 }", 20, "from = 3 is above to = 2"),
        ("\"silent\"", "\"quiet\"", 22, "there is no strategy \"quiet\""),
        ("\"uniform\"]", "\"lucky\"]", 23, "there is no value lucky"),
        ("\"uniform\"]", "\"priority\"]", 23, "priority needs more than its name"),
        ("[1, 2, 7]", "[7, 8]", 14, "no point of its axes can be"),
        (
            "distinct = 2\nstrategy = [\"collude( value = 0 )\", \"silent\"]\n",
            "distinct = 2\n",
            14,
            "need a strategy",
        ),
        (
            "n = [4, 8]",
            "n = { from = 1, to = 4000 }\nr = { from = 1, to = 4000 }",
            25,
            "16000000 points: 100000 at most",
        ),
        ("name = \"second\"", "name = \"first\"", 26, "there are two sweeps called \"first\""),
        ("name = \"second\"", "name = \"se cond\"", 26, "letters, digits"),
        ("seed = 100", "seed = 9223372036854775800", 14, "beyond the largest"),
    ] {
        let told = spoilt(from, to);
        assert!(told.starts_with(&format!("bad.toml:{line}: ")), "{to}: {told}");
        assert!(told.contains(reason), "{to}: {told}");
    }
    assert!(refused("name = \"empty\"\n").contains("give a [[sweep]]"));
}

#[test]
fn shipped_campaigns_have_the_names_of_their_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaigns");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let (campaign, limits) = Campaign::load(&path, None, &Settings::default()).unwrap();
        assert_eq!(path.file_stem().unwrap(), campaign.name.as_str());
        assert!(!campaign.about.is_empty() && limits.budget.is_some(), "{}", campaign.name);
        assert!(campaign.sweeps.iter().all(|sweep| !sweep.about.is_empty()), "{}", campaign.name);
        names.insert(campaign.name);
    }
    assert!(names.is_superset(&BTreeSet::from(["paper".to_owned(), "quick".to_owned()])), "{names:?}");
}
