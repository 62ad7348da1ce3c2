//! Plans as they are written, good ones and wrong ones.

use std::time::Duration;

use stickycas_harness::files::values::DurationText;
use stickycas_harness::scenario::{FileError, Scenario};
use stickycas_model::judge::{Outcome, Property};

use super::*;

const GOOD: &str = r#"name = "good"
expect = "valid"
faulty = [5]
late = [6]

[instance]
pace = "300ms"

[[steps]]
when = "before"
do = "pause"
services = ["process-6"]
[[steps]]
when = { accepted = 5, access = 2 }
do = "kill"
services = ["process-5", "server"]
by = { phase = 4 }
[[steps]]
when = { phase = 9 }
do = "unpause"
services = ["process-6"]
[[steps]]
when = { after = "2s" }
do = "start"
services = ["server"]

[expectations]
never_joined = [6]
sessions = { 7 = 2 }
still = "2s"
missing = { strong_validity = "f = 4" }
"#;

fn process(number: u32) -> ProcessId {
    ProcessId::new(number).unwrap()
}

fn parse(text: &str) -> Result<Plan, String> {
    Plan::parse("bad.toml", text).map_err(|error: FileError| error.to_string())
}

/// The message for the good file with one piece of text replaced.
fn spoilt(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the file");
    parse(&GOOD.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn a_good_plan_is_taken_as_it_stands() {
    let plan = parse(GOOD).unwrap();
    assert_eq!((plan.name.as_str(), plan.expect), ("good", Outcome::Valid));
    let whens: Vec<String> = plan.steps.iter().map(|step| step.when.to_string()).collect();
    assert_eq!(
        whens,
        [
            "before the instance",
            "access 2 of process 5 is accepted",
            "phase 9 has come",
            "2s after the step before"
        ]
    );
    assert_eq!(plan.steps[1].services, [Service::Process(process(5)), Service::Server]);
    assert_eq!(plan.steps[1].by.map(|by| by.to_string()).as_deref(), Some("phase 4 has come"));
    assert_eq!(plan.gone(), [process(5)].into());
    assert_eq!(plan.expectations.sessions, [(process(7), 2)].into());
    assert_eq!(plan.expectations.missing, [(Property::StrongValidity, "f = 4".to_owned())].into());
}

#[test]
fn who_is_started_again_is_not_gone() {
    let again =
        "[[steps]]\nwhen = { phase = 12 }\ndo = \"start\"\nservices = [\"process-5\"]\n[expectations]";
    assert_eq!(parse(&GOOD.replacen("[expectations]", again, 1)).unwrap().gone(), BTreeSet::new());
}

#[test]
fn unknown_keys_and_words_are_refused_with_their_line() {
    let told = spoilt("faulty =", "fualty =");
    assert!(told.starts_with("bad.toml:3: there is no key fualty: did you mean faulty?"), "{told}");
    let told = spoilt("do = \"pause\"", "do = \"freeze\"");
    assert!(told.starts_with("bad.toml:11: there is no value freeze: give one of kill"), "{told}");
    let told = spoilt("phase = 9", "fase = 9");
    assert!(told.starts_with("bad.toml:19: there is no key fase: did you mean phase?"), "{told}");
    let told = spoilt("[\"process-5\", \"server\"]", "[\"process-05\"]");
    assert!(told.starts_with("bad.toml:16: there is no service \"process-05\": give server"), "{told}");
    let told = spoilt("7 = 2", "seven = 2");
    assert!(told.starts_with("bad.toml:29: sessions = { seven = 2 }: \"seven\" is no process"), "{told}");
    let told = spoilt("strong_validity", "strength");
    assert!(told.starts_with("bad.toml:31: there is no value strength"), "{told}");
    let told = spoilt("late = [6]", "late = [0]");
    assert!(told.starts_with("bad.toml:4: "), "{told}");
}

#[test]
fn a_moment_is_one_and_comes_with_what_belongs_to_it() {
    for wrong in [
        "\"later\"",
        "{}",
        "{ phase = 9, joined = 3 }",
        "{ gathered = false }",
        "{ phase = 9, after = \"1s\" }",
    ] {
        let told = spoilt("{ phase = 9 }", wrong);
        assert!(told.starts_with("bad.toml:19: when: give \"before\", or a table with one of"), "{told}");
        assert!(told.contains("decided, after, or in the kill test of served, under_way, ended"), "{told}");
    }
    let told = spoilt("{ phase = 9 }", "{ phase = 9, access = 1 }");
    assert!(told.starts_with("bad.toml:19: access goes with accepted or answered"), "{told}");
    let told = spoilt("after = \"2s\"", "after = \"soon\"");
    assert!(told.starts_with("bad.toml:23: after = \"soon\": "), "{told}");
    let told = spoilt("by = { phase = 4 }", "by = { after = \"1s\" }");
    assert!(told.starts_with("bad.toml:17: by: give a table with one of"), "{told}");
}

#[test]
fn every_step_can_be_done_after_those_before_it() {
    let told = spoilt("do = \"unpause\"", "do = \"reconnect\"");
    assert!(told.starts_with("bad.toml:21: reconnect process-6: it is connected at this step"), "{told}");
    let told = spoilt("do = \"start\"", "do = \"kill\"");
    assert!(told.starts_with("bad.toml:25: kill server: it does not run at this step"), "{told}");
    let told = spoilt("when = { phase = 9 }", "when = \"before\"");
    assert!(told.starts_with("bad.toml:19: when = \"before\" behind a step that is later"), "{told}");
    let told = spoilt("services = [\"process-6\"]", "services = [\"judge\"]");
    assert!(told.starts_with("bad.toml:12: the judge is made anew for each plan"), "{told}");
    let told = spoilt("services = [\"server\"]", "services = [\"server\", \"server\"]");
    assert!(told.starts_with("bad.toml:25: server is named already"), "{told}");
    let told = spoilt("services = [\"server\"]", "services = []");
    assert!(told.starts_with("bad.toml:25: names no service"), "{told}");
    let told = parse("name = \"idle\"\nexpect = \"valid\"\n").unwrap_err();
    assert!(told.contains("a plan without a step perturbs nothing"), "{told}");
}

#[test]
fn a_step_that_lasts_is_undone_after_its_time() {
    let step = "[[steps]]\nwhen = { phase = 3 }\ndo = \"pause\"\nservices = [\"server\"]\nlasts = \"2s\"\n";
    let text = format!("name = \"brief\"\nexpect = \"valid\"\n{step}");
    let steps = parse(&text).unwrap().without_durations().steps;
    let steps: Vec<String> = steps.iter().map(|step| format!("{} {}", step.action, step.when)).collect();
    assert_eq!(steps, ["pause phase 3 has come", "unpause 2s after the step before"]);
    let told = parse(&text.replace("pause", "restart")).unwrap_err();
    assert!(told.starts_with("bad.toml:7: restart is not undone: leave lasts out"), "{told}");
    let told = parse(&format!("{text}ahead = \"2s\"\n")).unwrap_err();
    assert!(told.starts_with("bad.toml:8: pause sets no clock: leave ahead out"), "{told}");
    let told = parse(&text.replace("\"2s\"", "\"2x\"")).unwrap_err();
    assert!(told.starts_with("bad.toml:7: lasts = \"2x\": "), "{told}");
    assert_eq!(told.lines().next().unwrap().matches("2x").count(), 1, "{told}");
}

const CLUSTER: &str = r#"name = "cluster"
expect = "valid"
[[steps]]
when = { phase = 5 }
do = "disconnect"
services = ["owner", "etcd-2"]
network = "etcd"
[[steps]]
when = { phase = 9 }
do = "reconnect"
services = ["owner", "etcd-2"]
network = "etcd"
[[steps]]
when = { phase = 12 }
do = "stop"
services = ["owner-2"]
[[steps]]
when = { after = "1s" }
do = "start"
services = ["owner-2"]
[expectations]
owners = 3
quiet = "5s"
"#;

#[test]
fn a_plan_for_a_cluster_names_owners_members_and_networks() {
    let plan = parse(CLUSTER).unwrap();
    let services: Vec<String> =
        plan.steps.iter().flat_map(|step| &step.services).map(ToString::to_string).collect();
    assert_eq!(services, ["owner", "etcd-2", "owner", "etcd-2", "owner-2", "owner-2"]);
    assert_eq!(plan.steps[0].network.as_deref(), Some("etcd"));
    assert_eq!((plan.steps[2].action, plan.expectations.owners), (Action::Stop, Some(3)));
    assert_eq!(plan.expectations.quiet, Some(DurationText(Duration::from_secs(5))));
    let by_number = CLUSTER.replace("owner-2", "server-2").replace("owner", "server-1");
    assert!(parse(&by_number.replace("server-1s = 3", "owners = 3")).is_ok());
}

#[test]
fn an_owner_or_a_network_that_cannot_be_meant_is_refused() {
    let spoilt = |from: &str, to: &str| {
        assert!(CLUSTER.contains(from), "{from:?} is not in the file");
        parse(&CLUSTER.replacen(from, to, 1)).unwrap_err()
    };
    let told = spoilt("{ phase = 5 }", "\"before\"");
    assert!(told.starts_with("bad.toml:6: there is no instance yet that a server owns"), "{told}");
    let told = spoilt("\"owner-2\"", "\"owner-3\"");
    assert!(told.starts_with("bad.toml:16: owner-3 is the owner after another one"), "{told}");
    let told = spoilt("\"owner-2\"", "\"server-2\"");
    assert!(told.starts_with("bad.toml:16: which server owns the instance is known in the run"), "{told}");
    let told = spoilt("\"owner\", \"etcd-2\"", "\"owner-1\"");
    assert!(told.starts_with("bad.toml:6: there is no service \"owner-1\""), "{told}");
    let told = spoilt("\"stop\"", "\"stop\"\nnetwork = \"etcd\"");
    assert!(told.starts_with("bad.toml:16: network goes with disconnect, depose"), "{told}");
    let told = spoilt("network = \"etcd\"", "network = \"default\"");
    let wanted = "bad.toml:11: reconnect owner: it is disconnected from another network";
    assert!(told.starts_with(wanted), "{told}");
    let told = spoilt("network = \"etcd\"", "network = \"\"");
    assert!(told.starts_with("bad.toml:7: no name of a network"), "{told}");
}

#[test]
fn whoever_is_faulty_or_late_has_something_done_to_it() {
    let told = spoilt("faulty = [5]", "faulty = [4]");
    assert!(told.starts_with("bad.toml:3: process 4 is faulty, and no step does anything to it"), "{told}");
    let told = spoilt("late = [6]", "late = [6, 6]");
    assert!(told.starts_with("bad.toml:4: process 6 is late already"), "{told}");
}

#[test]
fn keys_of_the_instance_are_those_of_scenarios() {
    let told = spoilt("pace = \"300ms\"", "peace = \"300ms\"");
    assert!(told.starts_with("bad.toml:7: there is no key peace: did you mean pace?"), "{told}");
    let told = spoilt("pace = \"300ms\"", "pace = 300");
    assert!(told.starts_with("bad.toml:7: the number 300 stands where a text is wanted"), "{told}");
}

const SCENARIO: &str = r#"name = "eight"
[instance]
processes = 8
warp_size = 2
read_size = 2
[proposals]
values = ["a", "a", "a", "a", "a", "a", "a", "a"]
[[faults]]
processes = [8]
strategy = "silent"
"#;

fn under(plan: &str) -> Result<Scenario, String> {
    let plan = parse(plan)?;
    let scenario = Scenario::parse_with("eight.toml", SCENARIO, Some(1), &plan.settings);
    let scenario = scenario.map_err(|error| error.to_string())?;
    plan.check_against(&scenario).map_err(|error| error.to_string())?;
    Ok(scenario)
}

#[test]
fn a_plan_takes_the_place_of_what_the_scenario_says() {
    let scenario = under(GOOD).unwrap();
    assert_eq!(scenario.params.spec().pace, Duration::from_millis(300));
    assert_eq!(scenario.truth.faulty(), &[process(5)].into());
    assert_eq!(scenario.truth.late(), &[process(6)].into());
}

#[test]
fn faulty_and_late_processes_count_in_f() {
    let verdict = stickycas_harness::simulate(&under(GOOD).unwrap()).verdict;
    assert_eq!((verdict.f, verdict.late), (3, vec![process(6)]));
    let judged: Vec<u32> = verdict.decisions.keys().map(|process| process.get()).collect();
    assert_eq!(judged, [1, 2, 3, 4, 6, 7]);
}

#[test]
fn a_wrong_value_of_a_plan_is_reported_with_its_line() {
    let told = under(&GOOD.replace("300ms", "300mx")).unwrap_err();
    assert!(told.starts_with("bad.toml:7: pace = \"300mx\": "), "{told}");
    let told = under(&GOOD.replace("[5]", "[8]").replace("process-5", "process-8")).unwrap_err();
    assert_eq!(told, "bad.toml:3: process 8 is in the fault plan: only a correct one can be faulty");
    let told = under(&GOOD.replace("faulty = [5]", "faulty = [5, 6]")).unwrap_err();
    assert!(told.starts_with("bad.toml:3: process 6 is late: "), "{told}");
    let told = under(&GOOD.replace("faulty = [5]\n", "")).unwrap_err();
    assert_eq!(told, "plan good: process 5 is correct and killed or restarted: name it in faulty (V4)");
    let shorter = SCENARIO.replace("\"silent\"", "\"stall(conduct=liar(value=zz))\"");
    let plan = parse(&GOOD.replace("pace = \"300ms\"", "max_value_bytes = 1")).unwrap();
    let told = Scenario::parse_with("eight.toml", &shorter, Some(1), &plan.settings).unwrap_err().to_string();
    assert!(told.starts_with("eight.toml:10: stall sends zz, which has 2 bytes"), "{told}");
    let told = under(&GOOD.replace("7 = 2", "9 = 2")).unwrap_err();
    assert_eq!(told, "plan good: there is no process 9: give 1 to n = 8");
}
