//! From a plan as written to one that can be carried out: every value checked, every step possible after
//! those before it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Range;

use stickycas_harness::files::values::{duration, name};
use stickycas_harness::files::{Fault, Problem, Settings, Spanned};
use stickycas_model::types::{AccessNumber, ProcessId};

use super::file::{self, File, WhenTable};
use super::{Action, Moment, Plan, Service, Step, When};

/// `text` is that of the file, named `called` in errors.
pub(super) fn read(file: File, called: &str, text: &str) -> Result<Plan, Fault> {
    let name = name(&file.name)?;
    let steps = steps(&file.steps)?;
    let faulty = touched("faulty", &file.faulty, &steps)?;
    let late = touched("late", &file.late, &steps)?;
    let settings = settings(&file, |span| {
        let line = Problem::new(called, text, Fault::new(span, "")).line;
        format!("{called}:{line}")
    });
    let File { about, expect, in_memory, expectations, .. } = file;
    Ok(Plan { name, about, expect, faulty, late, settings, in_memory, steps, expectations })
}

/// Refuses the keys of a plan that are of the demo alone, of all keys as they are written.
pub(super) fn without_keys_of_demo(
    written: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
) -> Result<(), Fault> {
    for (key, value) in written {
        let reason = match key.get_ref().as_str() {
            "name" | "about" | "steps" => continue,
            "expect" if value.get_ref().as_str() == Some("valid") => continue,
            "expect" => "expect: the kill test judges every instance by itself: give \"valid\"".to_owned(),
            key => format!("{key}: the kill test has only steps: leave it out"),
        };
        return Err(Fault::new(key.span(), reason));
    }
    Ok(())
}

fn settings(file: &File, origin: impl Fn(Range<usize>) -> String) -> Settings {
    let mut settings = Settings::default();
    for (key, value) in &file.instance {
        settings.put(&origin(key.span()), &format!("instance.{}", key.get_ref()), value.get_ref());
    }
    for (key, processes) in [("late", &file.late), ("faulty", &file.faulty)] {
        if let Some(first) = processes.first() {
            let numbers = processes.iter().map(|process| process.get_ref().get());
            settings.extend_list(&origin(first.span()), key, numbers);
        }
    }
    settings
}

/// Processes that a key names, and that a step operates on.
fn touched(key: &str, given: &[Spanned<ProcessId>], steps: &[Step]) -> Result<BTreeSet<ProcessId>, Fault> {
    let mut named = BTreeSet::new();
    for number in given {
        let process = *number.get_ref();
        let service = Service::Process(process);
        if !steps.iter().any(|step| step.services.contains(&service)) {
            let reason = format!("process {process} is {key}, and no step does anything to it: leave it out");
            return Err(Fault::new(number.span(), reason));
        }
        if !named.insert(process) {
            let reason = format!("process {process} is {key} already: name it once");
            return Err(Fault::new(number.span(), reason));
        }
    }
    Ok(named)
}

fn steps(given: &[file::Step]) -> Result<Vec<Step>, Fault> {
    let mut steps: Vec<Step> = Vec::new();
    let mut states: BTreeMap<Service, State> = BTreeMap::new();
    for written in given {
        let when = when(&written.when)?;
        let before = when == When::Before;
        if before && steps.iter().any(|step| step.when != When::Before) {
            let reason = "when = \"before\" behind a step that is later: put it first";
            return Err(Fault::new(written.when.span(), reason));
        }
        let by = match &written.by {
            Some(by) if before => {
                return Err(Fault::new(
                    by.span(),
                    "a step before the instance is always in time: leave by out",
                ));
            }
            Some(written) => Some(by(written)?),
            None => None,
        };
        let services = services(&written.services)?;
        let network = network(written)?;
        let action = written.action;
        if let (Some(lasts), None) = (&written.lasts, action.undone_by()) {
            return Err(Fault::new(lasts.span(), format!("{action} is not undone: leave lasts out")));
        }
        if let Some(ahead) = written.ahead.as_ref().filter(|_| action != Action::Kill) {
            return Err(Fault::new(ahead.span(), format!("{action} sets no clock: leave ahead out")));
        }
        let [lasts, ahead] =
            [&written.lasts, &written.ahead].map(|time| time.as_ref().map(|time| time.get_ref().0));
        for (service, name) in services.iter().zip(written.services.get_ref()) {
            nameable(*service, before, states.keys().copied()).map_err(|why| Fault::new(name.span(), why))?;
            let state = states.entry(*service).or_default();
            let undone = lasts.and(action.undone_by());
            let applied = state.apply(action, network.as_deref());
            let applied =
                applied.and_then(|()| undone.map_or(Ok(()), |by| state.apply(by, network.as_deref())));
            applied.map_err(|why| {
                let reason = format!("{action} {service}: {why} at this step");
                Fault::new(name.span(), reason)
            })?;
        }
        steps.push(Step { when, action, services, network, by, lasts, ahead });
    }
    if steps.is_empty() {
        return Err(Fault::new(0..0, "a plan without a step perturbs nothing: give [[steps]]"));
    }
    Ok(steps)
}

/// Whether a step may name this service, once these were named.
fn nameable(service: Service, before: bool, mut named: impl Iterator<Item = Service>) -> Result<(), String> {
    match service {
        Service::Judge if before => {
            Err("the judge is made anew for each plan: give it another moment than \"before\"".to_owned())
        }
        Service::Owner(_) if before => {
            Err("there is no instance yet that a server owns: give it another moment than \"before\""
                .to_owned())
        }
        Service::Owner(number) if number > NonZeroU32::MIN => {
            let earlier = number.get().checked_sub(1).and_then(NonZeroU32::new).map(Service::Owner);
            if named.any(|named| named == service || Some(named) == earlier) {
                return Ok(());
            }
            Err(format!("{service} is the owner after another one, which no earlier step names"))
        }
        Service::Owner(_) if named.any(|named| matches!(named, Service::ServerOfCluster(_))) => {
            Err(BOTH.to_owned())
        }
        Service::ServerOfCluster(_) if named.any(|named| named.owner().is_some()) => Err(BOTH.to_owned()),
        _ => Ok(()),
    }
}

const BOTH: &str =
    "which server owns the instance is known in the run alone: name servers by number, or owners, not both";

fn network(written: &file::Step) -> Result<Option<String>, Fault> {
    let Some(network) = &written.network else { return Ok(None) };
    if written.action != Action::Reconnect && written.action.undone_by() != Some(Action::Reconnect) {
        let reason = format!(
            "network goes with disconnect, depose, drop_incoming and reconnect, and not with {}",
            written.action
        );
        return Err(Fault::new(network.span(), reason));
    }
    if network.get_ref().is_empty() {
        return Err(Fault::new(network.span(), "no name of a network: leave it out for all of them"));
    }
    Ok(Some(network.get_ref().clone()))
}

fn services(written: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Service>, Fault> {
    if written.get_ref().is_empty() {
        return Err(Fault::new(written.span(), "names no service: name one, or leave the step out"));
    }
    let mut services = Vec::new();
    for text in written.get_ref() {
        let service: Service = text.get_ref().parse().map_err(|error| Fault::new(text.span(), error))?;
        if services.contains(&service) {
            return Err(Fault::new(text.span(), format!("{service} is named already: name it once")));
        }
        services.push(service);
    }
    Ok(services)
}

/// The state of a service after the steps so far.
#[derive(Clone, Debug)]
struct State {
    runs: bool,
    paused: bool,
    /// The network from which it is disconnected; `None` within: all of them.
    off: Option<Option<String>>,
}

impl Default for State {
    fn default() -> Self {
        Self { runs: true, paused: false, off: None }
    }
}

impl State {
    /// The state after this operation.
    fn apply(&mut self, action: Action, network: Option<&str>) -> Result<(), &'static str> {
        let Self { runs, paused, off } = self;
        match action {
            Action::Kill | Action::Pause | Action::Restart | Action::Stop if !*runs => {
                return Err("it does not run");
            }
            Action::Pause | Action::Restart | Action::Stop if *paused => return Err("it is paused"),
            Action::Unpause if !*paused => return Err("it is not paused"),
            Action::Start if *runs => return Err("it runs"),
            Action::Disconnect | Action::Depose | Action::DropIncoming if off.is_some() => {
                return Err("it is disconnected");
            }
            Action::Reconnect if off.is_none() => return Err("it is connected"),
            Action::Reconnect if off.as_ref().is_some_and(|off| off.as_deref() != network) => {
                return Err("it is disconnected from another network");
            }
            Action::Kill | Action::Stop => (*runs, *paused) = (false, false),
            Action::Pause => *paused = true,
            Action::Unpause => *paused = false,
            Action::Start => *runs = true,
            Action::Restart => {}
            Action::Disconnect | Action::Depose | Action::DropIncoming => {
                *off = Some(network.map(str::to_owned));
            }
            Action::Reconnect => *off = None,
        }
        Ok(())
    }
}

const MOMENTS: &str = "a table with one of gathered, phase, joined, accepted, answered, decided";
const OF_KILL_TEST: &str = "in the kill test of served, under_way, ended";

fn when(written: &Spanned<file::When>) -> Result<When, Fault> {
    one_moment(written, &format!("when: give \"before\", or {MOMENTS}, after, or {OF_KILL_TEST}"))
}

fn by(written: &Spanned<file::When>) -> Result<Moment, Fault> {
    let wanted = format!("by: give {MOMENTS}");
    match one_moment(written, &wanted)? {
        When::Observed(moment) => Ok(moment),
        _ => Err(Fault::new(written.span(), wanted)),
    }
}

/// The one moment that is named here.
fn one_moment(written: &Spanned<file::When>, wanted: &str) -> Result<When, Fault> {
    let wanted = || Fault::new(written.span(), wanted);
    let table = match written.get_ref() {
        file::When::Word(word) if word == "before" => return Ok(When::Before),
        file::When::Word(_) => return Err(wanted()),
        file::When::Table(table) => table,
    };
    let WhenTable { gathered, phase, joined, accepted, answered, access, decided, .. } = table;
    let number = access.unwrap_or(AccessNumber::FIRST);
    let time = |key: &str, text: &Option<String>| {
        text.as_ref().map(|text| duration(key, &Spanned::new(written.span(), text.clone()))).transpose()
    };
    let is = |given: Option<bool>, when: When| given.filter(|given| *given).map(|_| when);
    let given = [
        is(*gathered, When::Observed(Moment::Gathered)),
        phase.map(|phase| When::Observed(Moment::Phase(phase))),
        joined.map(|process| When::Observed(Moment::Joined(process))),
        accepted.map(|process| When::Observed(Moment::Accepted(process, number))),
        answered.map(|process| When::Observed(Moment::Answered(process, number))),
        decided.map(|process| When::Observed(Moment::Decided(process))),
        time("after", &table.after)?.map(When::After),
        time("served", &table.served)?.map(When::Served),
        is(table.under_way, When::UnderWay),
        is(table.ended, When::Ended),
    ];
    let mut given = given.into_iter().flatten();
    let (Some(when), None) = (given.next(), given.next()) else { return Err(wanted()) };
    let is_of_access = matches!(when, When::Observed(Moment::Accepted(..) | Moment::Answered(..)));
    if access.is_some() && !is_of_access {
        return Err(Fault::new(written.span(), "access goes with accepted or answered: leave it out"));
    }
    Ok(when)
}

#[cfg(test)]
mod tests {
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
            assert!(
                told.contains("decided, after, or in the kill test of served, under_way, ended"),
                "{told}"
            );
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
        let step =
            "[[steps]]\nwhen = { phase = 3 }\ndo = \"pause\"\nservices = [\"server\"]\nlasts = \"2s\"\n";
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
        assert!(
            told.starts_with("bad.toml:16: which server owns the instance is known in the run"),
            "{told}"
        );
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
        assert!(
            told.starts_with("bad.toml:3: process 4 is faulty, and no step does anything to it"),
            "{told}"
        );
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
        let told =
            Scenario::parse_with("eight.toml", &shorter, Some(1), &plan.settings).unwrap_err().to_string();
        assert!(told.starts_with("eight.toml:10: stall sends zz, which has 2 bytes"), "{told}");
        let told = under(&GOOD.replace("7 = 2", "9 = 2")).unwrap_err();
        assert_eq!(told, "plan good: there is no process 9: give 1 to n = 8");
    }
}
