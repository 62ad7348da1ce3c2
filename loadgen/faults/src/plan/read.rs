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
