//! What is wrong with a scenario file is told with its line and the reason.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use stickycas_harness::Scenario;
use stickycas_model::byzantine::{Adaptive, Strategy};
use stickycas_model::ground_truth::Role;
use stickycas_model::judge::Outcome;
use stickycas_model::params::{AppendWindow, Arbiter, Order, Patience};

/// A file with nothing wrong. Each test below spoils one line of it.
const GOOD: &str = r#"name = "good"
expect = "valid"

[instance]
processes = 4
warp_size = 2
read_size = 2
order = "descending"
arbiter = { priority = [3, 1] }
patience = "250ms"
seed = 9

[proposals]
values = ["a", "b", "a", "0x00ff"]

[[faults]]
processes = [3]
strategy = "collude(value=zzz)"
"#;

/// The message for the good file with one piece of text replaced.
fn spoilt(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the file");
    refused(&GOOD.replacen(from, to, 1))
}

fn refused(text: &str) -> String {
    Scenario::parse("bad.toml", text, None).expect_err(text).to_string()
}

#[test]
fn a_good_file_is_taken_as_it_stands() {
    let scenario = Scenario::parse("good.toml", GOOD, None).unwrap();
    let spec = scenario.params.spec();
    assert_eq!((spec.processes, spec.warp_size, spec.read_size), (4, 2, 2));
    assert_eq!(spec.order, Order::Descending);
    assert!(matches!(&spec.arbiter, Arbiter::Priority(order) if order.len() == 2));
    assert_eq!(spec.append_window, AppendWindow::FirstAccess);
    assert_eq!(spec.patience, Patience::Finite(std::time::Duration::from_millis(250)));
    assert_eq!((scenario.seed, spec.seed.get()), (9, 9));
    assert_eq!(scenario.expect, Some(Outcome::Valid));
    let roles: Vec<bool> =
        scenario.truth.assignments().map(|(_, assignment)| assignment.role == Role::Correct).collect();
    assert_eq!(roles, [true, true, false, true]);
}

#[test]
fn a_seed_from_outside_takes_the_place_of_the_files() {
    let scenario = Scenario::parse("good.toml", GOOD, Some(77)).unwrap();
    assert_eq!((scenario.seed, scenario.params.spec().seed.get()), (77, 77));
}

#[test]
fn a_file_without_a_seed_gets_one_that_is_told() {
    let drawn = |_| Scenario::parse("good.toml", &GOOD.replace("seed = 9\n", ""), None).unwrap().seed;
    let seeds: std::collections::BTreeSet<u64> = (0..8).map(drawn).collect();
    assert!(seeds.len() > 1, "{seeds:?}");
}

#[test]
fn the_effective_file_is_the_same_scenario() {
    let drawn = r#"
        name = "drawn"
        [instance]
        processes = 18
        warp_size = 2
        read_size = 3
        patience = "none"
        arbiter = "uniform"
        [proposals]
        distinct = 3
        [[faults]]
        count = 2
        placement = "random"
        strategy = "distinct"
        [[faults]]
        count = 1
        strategy = "silent"
        [[faults]]
        count = 2
        corrupted_in = [1, 100]
        strategy = "stall(conduct=late-append(access=2, value=0x2c))"
        [[faults]]
        count = 2
        attack = "flood(frames=9)"
        [[faults]]
        count = 1
        attack = "slow-open"
    "#;
    let late = drawn.replacen("[instance]", "late = [18, 17]\n        [instance]", 1);
    for text in [GOOD, drawn, &late] {
        let scenario = Scenario::parse("before.toml", text, Some(3)).unwrap();
        let again = Scenario::parse("after.toml", &scenario.to_toml(), None).unwrap();
        assert_eq!(again, scenario, "{}", scenario.to_toml());
    }
}

#[test]
fn unknown_keys_are_refused() {
    assert_eq!(
        spoilt("expect = \"valid\"", "expects = \"valid\""),
        "bad.toml:2: there is no key expects: did you mean expect?\n  2 | expects = \"valid\""
    );
    let told = spoilt("order =", "ordre =");
    assert!(told.starts_with("bad.toml:8: there is no key ordre: did you mean order?"), "{told}");
    let told = spoilt("strategy =", "strategie =");
    assert!(told.starts_with("bad.toml:18: there is no key strategie: did you mean strategy?"), "{told}");
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    assert_eq!(
        spoilt("processes = 4", "processes = \"four\""),
        "bad.toml:5: the text \"four\" stands where a whole number from 0 on is wanted\n  5 | processes = \"four\""
    );
    assert_eq!(
        spoilt("processes = 4", "processes = -4"),
        "bad.toml:5: the number -4 stands where a whole number from 0 on is wanted\n  5 | processes = -4"
    );
    assert_eq!(
        spoilt("\"descending\"", "\"sideways\""),
        "bad.toml:8: there is no value sideways: give one of ascending, descending, shuffled\n  8 | order = \"sideways\""
    );
    assert_eq!(
        spoilt("\"valid\"", "\"fine\""),
        "bad.toml:2: there is no value fine: give one of valid, violation, outside, unknown\n  2 | expect = \"fine\""
    );
}

#[test]
fn impossible_parameters_are_refused_where_they_stand() {
    assert_eq!(
        spoilt("warp_size = 2", "warp_size = 9"),
        "bad.toml:6: warp size p = 9: give 1 to n = 4\n  6 | warp_size = 9"
    );
    assert_eq!(
        spoilt("read_size = 2", "read_size = 0"),
        "bad.toml:7: read size r = 0: give 1 to n = 4\n  7 | read_size = 0"
    );
    assert_eq!(
        spoilt("processes = 4", "processes = 0"),
        "bad.toml:5: n = 0 processes: give 1 to 65536\n  5 | processes = 0"
    );
    assert_eq!(
        spoilt("[3, 1]", "[3, 5]"),
        "bad.toml:9: priority arbiter: there is no process 5 among n = 4\n  9 | arbiter = { priority = [3, 5] }"
    );
    assert_eq!(
        spoilt("\"250ms\"", "\"48h\""),
        "bad.toml:10: patience = 172800s: give 0ns to 86400s\n  10 | patience = \"48h\""
    );
    assert_eq!(
        spoilt("\"250ms\"", "\"soon\""),
        "bad.toml:10: patience = \"soon\": expected number at 0: give a duration such as \"1s\", or \"none\"\n  \
         10 | patience = \"soon\""
    );
    assert_eq!(
        spoilt("seed = 9", "join_timeout = \"0s\""),
        "bad.toml:11: join_timeout = 0ns: give 1ns to 86400s\n  11 | join_timeout = \"0s\""
    );
    assert_eq!(
        spoilt("name = \"good\"", "name = \"../good\""),
        "bad.toml:1: name = \"../good\": give 1 to 64 letters, digits, '-' or '_'\n  1 | name = \"../good\""
    );
}

#[test]
fn what_is_missing_is_named() {
    let told = spoilt("processes = 4\n", "");
    assert_eq!(told, "bad.toml:4: the key processes of [instance] is missing\n  4 | [instance]");
    let told = spoilt("strategy = \"collude(value=zzz)\"", "");
    assert_eq!(told, "bad.toml:16: give strategy = \"...\" or attack = \"...\"\n  16 | [[faults]]");
}

#[test]
fn proposals_are_given_once_one_for_each() {
    assert_eq!(
        spoilt("[proposals]\n", "[proposals]\ndistinct = 2\n"),
        "bad.toml:14: values and distinct: give one of them\n  14 | distinct = 2"
    );
    assert_eq!(
        spoilt("\"b\", ", ""),
        "bad.toml:14: 3 values for n = 4 processes: give one for each\n  14 | values = [\"a\", \"a\", \"0x00ff\"]"
    );
    assert_eq!(
        spoilt("\"0x00ff\"", "\"0x0\""),
        "bad.toml:14: \"0x0\" is no value: give a text of one byte or more, or 0x and an even number of hex \
         digits\n  14 | values = [\"a\", \"b\", \"a\", \"0x0\"]"
    );
    assert_eq!(
        spoilt("values = [\"a\", \"b\", \"a\", \"0x00ff\"]", "distinct = 4"),
        "bad.toml:14: distinct = 4: give 1 to 3, the number of correct processes\n  14 | distinct = 4"
    );
    assert_eq!(
        spoilt("values = [\"a\", \"b\", \"a\", \"0x00ff\"]", ""),
        "bad.toml:13: give values = [...] or distinct = k\n  13 | [proposals]"
    );
}

#[test]
fn faults_name_existing_processes_once_and_strategies() {
    assert_eq!(
        spoilt("processes = [3]", "processes = [\n  2,\n  5,\n]"),
        "bad.toml:19: there is no process 5: give 1 to n = 4\n  19 |   5,"
    );
    assert_eq!(
        spoilt("processes = [3]", "processes = [3, 3]"),
        "bad.toml:17: process 3 is in the fault plan already: name it once\n  17 | processes = [3, 3]"
    );
    assert_eq!(
        spoilt("processes = [3]", "processes = []"),
        "bad.toml:17: names no process: name one, or leave the group out\n  17 | processes = []"
    );
    assert_eq!(
        spoilt("processes = [3]", "count = 5"),
        "bad.toml:17: count = 5: give 1 to 4, the processes that are not in the fault plan yet\n  17 | count = 5"
    );
    assert_eq!(
        spoilt("processes = [3]", "processes = [3]\ncount = 1"),
        "bad.toml:18: processes, count, share: give one of them\n  18 | count = 1"
    );
    assert_eq!(
        spoilt("processes = [3]", "processes = [3]\nplacement = \"spread\""),
        "bad.toml:18: goes with count, not with processes: leave it out\n  18 | placement = \"spread\""
    );
    let told = spoilt("collude(value=zzz)", "collude");
    assert!(told.starts_with("bad.toml:18: collude lacks value"), "{told}");
    let told = spoilt("collude(value=zzz)", "slient");
    assert!(told.starts_with("bad.toml:18: there is no strategy \"slient\""), "{told}");
    let told = spoilt("strategy = \"collude(value=zzz)\"", "attack = \"flood(frames=0)\"");
    assert!(told.starts_with("bad.toml:18: flood: frames = \"0\": give a number"), "{told}");
    let told = spoilt("strategy = \"collude(value=zzz)\"", "strategy = \"silent\"\nattack = \"flood\"");
    assert!(told.starts_with("bad.toml:19: strategy and attack: give one of them"), "{told}");
}

#[test]
fn a_strategy_sends_no_value_that_the_instance_refuses() {
    let short = |text: &str| {
        let good = GOOD.replace("seed = 9", "seed = 9\nmax_value_bytes = 2").replace("\"0x00ff\"", "\"b\"");
        Scenario::parse("bad.toml", &good.replace("collude(value=zzz)", text), None)
            .map_err(|error| error.to_string())
    };
    for nested in
        ["S", "stall(conduct=S)", "adaptive(phase=3, then=S)", "stall(conduct=adaptive(phase=3, then=S))"]
    {
        for (strategy, value) in [
            ("collude(value=zzz)", "zzz"),
            ("mimic(value=zzz)", "zzz"),
            ("distinct(value=0x00ff00)", "0x00ff00"),
            ("mixed(collude=zzz, mimic=b)", "zzz"),
            ("mixed(collude=b, mimic=zzz)", "zzz"),
            ("late-append(access=2, value=zzz)", "zzz"),
            ("repeat-append(value=zzz)", "zzz"),
            ("liar(value=zzz)", "zzz"),
            // Values that they make up.
            ("distinct", "byzantine-3"),
            ("mixed(collude=b, mimic=b)", "byzantine-3"),
            ("repeat-append", "byzantine-3-2"),
            ("liar", "byzantine-3"),
        ] {
            let told = short(&nested.replace('S', strategy)).expect_err(strategy);
            assert!(told.starts_with("bad.toml:19: "), "{told}");
            assert!(told.contains(&format!("sends {value}, which has ")), "{told}");
            assert!(told.contains("bytes: give a value of at most max_value_bytes = 2"), "{told}");
        }
        for strategy in ["collude(value=zz)", "liar(value=z)", "reader", "silent", "empty", "crash@2"] {
            assert_eq!(short(&nested.replace('S', strategy)).map(drop), Ok(()), "{strategy}");
        }
    }
    let drawn = GOOD.replace("seed = 9", "max_value_bytes = 2").replace("\"0x00ff\"", "\"b\"");
    let told = refused(&(drawn + "corrupted_in = [2, 3]\n"));
    assert!(told.starts_with("bad.toml:18: collude sends zzz, which has 3 bytes"), "{told}");
}

#[test]
fn late_processes_exist_and_are_correct() {
    let late = |late: &str| spoilt("expect = \"valid\"", &format!("late = {late}"));
    assert_eq!(late("[5]"), "bad.toml:2: there is no process 5: give 1 to n = 4\n  2 | late = [5]");
    assert_eq!(
        late("[1, 3]"),
        "bad.toml:2: process 3 is in the fault plan: only a correct one can be late\n  2 | late = [1, 3]"
    );
    assert_eq!(late("[1, 1]"), "bad.toml:2: process 1 is late already: name it once\n  2 | late = [1, 1]");
    let text = GOOD.replacen("expect = \"valid\"", "late = [4]", 1);
    let scenario = Scenario::parse("good.toml", &text, None).unwrap();
    assert_eq!(scenario.truth.late().iter().map(|process| process.get()).collect::<Vec<_>>(), [4]);
}

#[test]
fn faulty_processes_exist_and_are_correct_and_not_late() {
    let faulty = |keys: &str| spoilt("expect = \"valid\"", keys);
    assert_eq!(
        faulty("faulty = [5]"),
        "bad.toml:2: there is no process 5: give 1 to n = 4\n  2 | faulty = [5]"
    );
    let told = faulty("faulty = [3]");
    assert!(told.starts_with("bad.toml:2: process 3 is in the fault plan: only a correct one can be faulty"));
    let told = faulty("late = [1]\nfaulty = [1]");
    assert!(told.starts_with("bad.toml:3: process 1 is late: a faulty one is not judged"), "{told}");
    let text = GOOD.replacen("expect = \"valid\"", "faulty = [4]", 1);
    let scenario = Scenario::parse("good.toml", &text, None).unwrap();
    assert_eq!(scenario.truth.faulty().iter().map(|process| process.get()).collect::<Vec<_>>(), [4]);
    assert_eq!(Scenario::parse("again.toml", &scenario.to_toml(), None).unwrap(), scenario);
}

#[test]
fn processes_are_corrupted_in_phases_of_their_own_drawn_by_seed() {
    let drawn = |seed: u64| {
        let corrupted = format!("count = 2\ncorrupted_in = [3, 9]\nseed = {seed}");
        let scenario =
            Scenario::parse("good.toml", &GOOD.replacen("processes = [3]", &corrupted, 1), Some(1));
        let corrupted =
            |(_, assignment): (_, &stickycas_model::ground_truth::Assignment)| match &assignment.role {
                Role::Byzantine(Strategy::Adaptive(Adaptive { phase, then })) => {
                    assert_eq!(then.to_string(), "collude(value=zzz)");
                    Some(phase.get())
                }
                _ => None,
            };
        scenario.unwrap().truth.assignments().filter_map(corrupted).collect::<Vec<u64>>()
    };
    let phases: std::collections::BTreeSet<u64> = (0..60).flat_map(drawn).collect();
    assert_eq!(phases, (3..=9).collect());
    assert_eq!(drawn(5).len(), 2);
    assert_eq!(drawn(5), drawn(5));
}

#[test]
fn impossible_corruption_is_refused() {
    let corrupted =
        |phases: &str| spoilt("processes = [3]", &format!("processes = [3]\ncorrupted_in = {phases}"));
    for phases in ["[0, 3]", "[4, 3]"] {
        let told = corrupted(phases);
        assert!(
            told.starts_with(&format!("bad.toml:18: corrupted_in = {phases}: give a first phase")),
            "{told}"
        );
    }
    let absent = GOOD.replacen("collude(value=zzz)", "absent", 1);
    let told = refused(&absent.replacen("processes = [3]", "processes = [3]\ncorrupted_in = [1, 9]", 1));
    assert!(told.contains("then = \"absent\": give a strategy that joins"), "{told}");
    let attack = GOOD.replacen("strategy = \"collude(value=zzz)\"", "attack = \"replay\"", 1);
    let told = refused(&attack.replacen("processes = [3]", "processes = [3]\ncorrupted_in = [1, 9]", 1));
    assert!(told.starts_with("bad.toml:18: corrupted_in goes with a strategy"), "{told}");
}

#[test]
fn a_file_that_is_no_toml_is_refused_at_its_line() {
    let told = spoilt("read_size = 2", "read_size =");
    assert!(told.starts_with("bad.toml:7: "), "{told}");
    let told = Scenario::load(std::path::Path::new("nowhere.toml"), None).unwrap_err().to_string();
    assert!(told.starts_with("nowhere.toml: "), "{told}");
}

#[test]
fn byzantine_first_follows_the_drawn_byzantine_processes() {
    let text = r#"
        name = "drawn"
        [instance]
        processes = 12
        warp_size = 3
        read_size = 3
        arbiter = "byzantine_first"
        [proposals]
        distinct = 2
        [[faults]]
        count = 3
        placement = "random"
        strategy = "silent"
    "#;
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..8 {
        let scenario = Scenario::parse("drawn.toml", text, Some(seed)).unwrap();
        let byzantine: Vec<_> = scenario.truth.byzantine().collect();
        assert_eq!(scenario.params.spec().arbiter, Arbiter::Priority(byzantine.clone()), "seed {seed}");
        assert_eq!(Scenario::parse("again.toml", &scenario.to_toml(), None).unwrap(), scenario);
        orders.insert(byzantine);
    }
    assert!(orders.len() > 1, "{orders:?}");
}
