//! The way to a fault: in words, and as a scenario that `run` repeats over the network.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use stickycas_harness::files::faults::Faults;
use stickycas_harness::files::instance::{Arbiter, Instance, PatienceText};
use stickycas_harness::scenario::{File, Proposals, Scenario};
use stickycas_model::byzantine::{Collude, LateAppend, Strategy};
use stickycas_model::explore::{Action, ProcessKind, ScheduleClass, Setup, Transition, Witness};
use stickycas_model::judge::Outcome;
use stickycas_model::params::Patience;
use stickycas_model::types::{AccessNumber, ProcessId, Value};

/// Longer than any real process takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The phases, each as a sentence.
pub(super) fn sentences(steps: &[Transition]) -> Vec<String> {
    (1..).zip(steps).map(|(phase, step)| sentence(phase, step)).collect()
}

fn sentence(phase: u64, step: &Transition) -> String {
    let roles = step.kinds.iter().map(|(process, role)| match role {
        ProcessKind::Byzantine => format!("{process} is Byzantine"),
        ProcessKind::Correct(value) => format!("{process} proposes {}", text_of(*value)),
    });
    let accesses = step.accesses.iter().map(|(process, doing)| match doing {
        Action::Follow => format!("{process} follows the algorithm"),
        Action::Append(value) => format!("{process} appends {}", text_of(*value)),
        Action::Read => format!("{process} reads"),
    });
    let restart = step.restart.map(|accepted| match accepted {
        0 => "the server restarts first".to_owned(),
        accepted => format!("the server restarts after {accepted} of the accesses"),
    });
    let said: Vec<String> = roles.chain(accesses).chain(restart).collect();
    let said = if said.is_empty() { "nobody has anything ready".to_owned() } else { said.join(", ") };
    format!("phase {phase}, warp {}: {said}", step.warp)
}

/// The value with this index, as the search names it.
fn value_of(index: u8) -> Value {
    Value::new(&[b'a' + index]).expect("it is one byte")
}

fn text_of(index: u8) -> String {
    value_of(index).to_string()
}

/// A disagreement as the text of a scenario file, with the phases in a comment.
///
/// # Errors
/// If no scenario can say it: another order of warps than the ascending one, a correct process that is late,
/// or conduct of a Byzantine process for which there is no strategy.
pub(super) fn scenario(setup: &Setup, witness: &Witness) -> anyhow::Result<String> {
    ensure!(
        setup.schedule == ScheduleClass::Ascending,
        "only the ascending order of warps can be written as a scenario"
    );
    ensure!(
        witness.transitions.iter().all(|step| step.restart.is_none()),
        "a restart of the server between two accesses cannot be written as a scenario"
    );
    let mut roles: BTreeMap<ProcessId, ProcessKind> = BTreeMap::new();
    let mut conduct: BTreeMap<ProcessId, Vec<Action>> = BTreeMap::new();
    for step in &witness.transitions {
        roles.extend(step.kinds.iter().copied());
        for &(process, doing) in &step.accesses {
            conduct.entry(process).or_default().push(doing);
        }
    }
    let parts = ProcessId::all(setup.processes).map(|process| {
        let role =
            roles.get(&process).copied().with_context(|| format!("process {process} plays no part"))?;
        Ok((process, role))
    });
    let parts: Vec<(ProcessId, ProcessKind)> = parts.collect::<anyhow::Result<_>>()?;
    let first: Vec<ProcessId> = if setup.warp_size > 1 { winners(witness) } else { Vec::new() };
    let instance = Instance {
        processes: Some(setup.processes.into()),
        warp_size: Some(setup.warp_size.into()),
        read_size: Some(setup.read_size.into()),
        append_window: Some(setup.window.into()),
        append_rounds: Some(setup.append_rounds.into()).filter(|_| setup.append_rounds > 1),
        patience: Some(PatienceText(Patience::Finite(PATIENCE)).into()),
        arbiter: (!first.is_empty()).then(|| Arbiter::Priority(first).into()),
        ..Instance::default()
    };
    let proposals = parts.iter().map(|(_, role)| match role {
        ProcessKind::Byzantine => text_of(setup.foreign).into(),
        ProcessKind::Correct(value) => text_of(*value).into(),
    });
    let byzantine = parts.iter().filter(|(_, role)| *role == ProcessKind::Byzantine);
    let faults = byzantine.map(|(process, _)| {
        let doings = conduct.get(process).map_or(&[][..], Vec::as_slice);
        let group = Faults {
            processes: Some(vec![process.get().into()].into()),
            strategy: Some(strategy(*process, doings)?.to_string().into()),
            ..Faults::default()
        };
        Ok(group.into())
    });
    let file = File {
        name: "explored-disagreement".to_owned().into(),
        about: "the shortest way to a disagreement inside the bound".to_owned(),
        expect: Some(Outcome::Outside),
        instance: instance.into(),
        proposals: Proposals { values: Some(proposals.collect::<Vec<_>>().into()), ..Proposals::default() }
            .into(),
        faults: faults.collect::<anyhow::Result<_>>()?,
        ..File::default()
    };
    let mut comment =
        format!("Found by explore, the shortest there is inside the bound: {}.\n#", witness.violation.what);
    for sentence in sentences(&witness.transitions) {
        comment += &format!("\n#   {sentence}");
    }
    let text = file.text(&comment);
    Scenario::parse("the witness", &text, Some(1)).context("the witness makes no scenario")?;
    Ok(text)
}

/// The strategy that does so: it reads, and appends once.
fn strategy(process: ProcessId, doings: &[Action]) -> anyhow::Result<Strategy> {
    let mut appends = (1..).zip(doings).filter_map(|(number, doing)| match doing {
        Action::Append(value) => Some((number, value_of(*value))),
        Action::Follow | Action::Read => None,
    });
    match (appends.next(), appends.next()) {
        (Some((1, value)), None) => Ok(Strategy::Collude(Collude { value })),
        (Some((number, value)), None) => {
            let access = AccessNumber::new(number).context("accesses count from 1")?;
            Ok(Strategy::LateAppend(LateAppend { access, value }))
        }
        _ => bail!("no strategy does what process {process} does: {doings:?}"),
    }
}

/// The winners of phases, in order. A correct process appends once and no other member of its warp wins that
/// phase, so one order of priority says it all.
fn winners(witness: &Witness) -> Vec<ProcessId> {
    let mut winners = Vec::new();
    for step in &witness.transitions {
        if let Some(&(process, doing)) = step.accesses.first()
            && doing != Action::Read
            && !winners.contains(&process)
        {
            winners.push(process);
        }
    }
    winners
}
