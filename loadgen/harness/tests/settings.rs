//! Values of `--set` in the place of those of a file.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::time::Duration;

use stickycas_harness::Scenario;
use stickycas_harness::files;
use stickycas_model::params::{self, Patience};

const SCENARIO: &str = r#"name = "six"
[instance]
processes = 6
warp_size = 2
read_size = 3
pace = "1s"
[proposals]
distinct = 1
"#;

fn with(settings: &[&str]) -> Result<Scenario, String> {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let settings = files::settings(&settings).map_err(|error| error.to_string())?;
    Scenario::parse_with("six.toml", SCENARIO, None, &settings).map_err(|error| error.to_string())
}

#[test]
fn values_are_toml_or_bare_words_and_the_last_one_holds() {
    let scenario = with(&[
        "pace=250ms",
        "join_timeout = 3s",
        "patience=none",
        "arbiter={ priority = [3, 1] }",
        "seed=7",
        "warp_size=1",
        "warp_size=3",
    ])
    .unwrap();
    let spec = scenario.params.spec();
    assert_eq!((spec.pace, spec.join_timeout), (Duration::from_millis(250), Duration::from_secs(3)));
    assert_eq!((spec.patience, spec.warp_size, scenario.seed), (Patience::Endless, 3, 7));
    assert!(matches!(&spec.arbiter, params::Arbiter::Priority(order) if order.len() == 2));
    assert_eq!(with(&["arbiter=uniform"]).unwrap().params.spec().arbiter, params::Arbiter::Uniform);
}

#[test]
fn any_key_of_any_table_can_be_set() {
    let scenario = with(&["name=seven", "late=[6]", "proposals.distinct=2", "instance.pace=1ms"]).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.truth.late().len()), ("seven", 1));
    assert_eq!(scenario.params.spec().pace, Duration::from_millis(1));
    let scenario = with(&["faults=[{ processes = [2], strategy = \"silent\" }]"]).unwrap();
    assert_eq!(scenario.truth.correct().count(), 5);
}

#[test]
fn a_table_takes_the_place_of_a_table_and_a_file_may_be_long() {
    let settings = files::settings(&["proposals={ distinct = 2 }".to_owned()]).unwrap();
    let text = SCENARIO.replace("distinct = 1", "distinct = 1\nseed = 4");
    let long = format!("{}{text}", "# a comment\n".repeat(9_000));
    let scenario = Scenario::parse_with("six.toml", &long, None, &settings).unwrap();
    assert_eq!(
        scenario.truth.correct_proposals().into_iter().collect::<std::collections::BTreeSet<_>>().len(),
        2
    );
    let told = with(&["instance=1"]).unwrap_err();
    assert_eq!(told, "--set instance=1: the number 1 stands where a table is wanted");
}

#[test]
fn an_empty_value_leaves_the_key_as_it_is() {
    let scenario = with(&["pace=", "no_such_key="]).unwrap();
    assert_eq!(scenario.params.spec().pace, Duration::from_secs(1));
}

#[test]
fn what_is_wrong_is_told_with_the_flag() {
    let refused = |settings: &[&str]| with(settings).unwrap_err();
    assert_eq!(refused(&["pace"]), "--set pace: give KEY=VALUE, such as pace=250ms");
    assert_eq!(refused(&["peace=1s"]), "--set peace=1s: there is no key peace: did you mean pace?");
    assert!(refused(&["a b=1"]).starts_with("--set a b=1: there is no key a b: give one of processes,"));
    assert_eq!(refused(&["pace=7"]), "--set pace=7: the number 7 stands where a text is wanted");
    let told = refused(&["name.first=b"]);
    assert!(
        told.starts_with("six.toml:1: this value is no table, and a later setting gives a key in [name]"),
        "{told}"
    );
    let told = refused(&["join_timeout=9s", "pace=soon", "seed=1"]);
    assert!(told.starts_with("--set pace=soon: pace = \"soon\": "), "{told}");
    let told = refused(&["seed=1", "warp_size=7"]);
    assert_eq!(told, "--set warp_size=7: warp size p = 7: give 1 to n = 6");
}

#[test]
fn what_is_wrong_with_the_file_is_told_with_its_line() {
    let settings = files::settings(&["pace=1ms".to_owned()]).unwrap();
    let spoilt = SCENARIO.replace("distinct = 1", "distinct = 9");
    let told = Scenario::parse_with("six.toml", &spoilt, None, &settings).unwrap_err().to_string();
    assert!(told.starts_with("six.toml:8: "), "{told}");
    let cut = SCENARIO.split("[proposals]").next().unwrap();
    let told = Scenario::parse_with("six.toml", cut, None, &settings).unwrap_err().to_string();
    assert!(told.starts_with("six.toml:"), "{told}");
}
