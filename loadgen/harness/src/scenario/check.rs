//! From a file as written to a scenario that can be run: every value checked, every default and draw made.

use std::collections::BTreeSet;
use std::sync::Arc;

use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::params::Params;
use stickycas_model::types::{ProcessId, Value};

use super::Scenario;
use super::file::{File, Proposals};
use crate::fault_plan::FaultPlan;
use crate::files::faults::{fault_plan, process};
use crate::files::instance::{params, with_arbiter};
use crate::files::values::{name, seed_or};
use crate::files::{Fault, Spanned, draw_seed};
use crate::proposals;

pub(super) fn check(file: &File, seed: Option<u64>) -> Result<Scenario, Fault> {
    let name = name(&file.name)?;
    let seed = match seed {
        Some(given) => given,
        None => seed_or(file.seed.as_ref().or(file.instance.get_ref().seed.as_ref()), draw_seed)?,
    };
    let params = params(&file.instance, seed)?;
    let faults = fault_plan(&file.faults, &params, seed)?;
    let params = Arc::new(with_arbiter(params, &file.instance, &faults)?);
    let proposals = proposals(&file.proposals, &params, &faults, seed)?;
    let assignments = ProcessId::all(params.processes()).zip(proposals).map(|(process, proposal)| {
        Assignment { role: faults.role(process).cloned().unwrap_or(Role::Correct), proposal }
    });
    let late = correct("late", &file.late, &params, &faults)?;
    let faulty = correct("faulty", &file.faulty, &params, &faults)?;
    let twice = |number: &&Spanned<u32>| late.iter().any(|late| late.get() == *number.get_ref());
    if let Some(number) = file.faulty.iter().find(twice) {
        let reason = format!(
            "process {} is late: a faulty one is not judged, so leave it out of late",
            number.get_ref()
        );
        return Err(Fault::new(number.span(), reason));
    }
    let truth = GroundTruth::new(assignments.collect()).with_late(late).with_faulty(faulty);
    Ok(Scenario { name, about: file.about.clone(), expect: file.expect, params, truth, seed })
}

/// Correct processes of which a key says something.
fn correct(
    key: &str,
    given: &[Spanned<u32>],
    params: &Params,
    faults: &FaultPlan,
) -> Result<BTreeSet<ProcessId>, Fault> {
    let mut named = BTreeSet::new();
    for number in given {
        let process = process(number, params)?;
        if faults.role(process).is_some() {
            let reason = format!("process {process} is in the fault plan: only a correct one can be {key}");
            return Err(Fault::new(number.span(), reason));
        }
        if !named.insert(process) {
            let reason = format!("process {process} is {key} already: name it once");
            return Err(Fault::new(number.span(), reason));
        }
    }
    Ok(named)
}

pub(super) fn proposals(
    proposals: &Spanned<Proposals>,
    params: &Params,
    faults: &FaultPlan,
    seed: u64,
) -> Result<Vec<Value>, Fault> {
    let given = proposals.get_ref();
    match (&given.values, &given.distinct) {
        (Some(values), None) => match &given.seed {
            Some(seed) => {
                Err(Fault::new(seed.span(), "nothing is drawn from an explicit list: leave the seed out"))
            }
            None => explicit(values, params),
        },
        (None, Some(distinct)) => {
            let seed = seed_or(given.seed.as_ref(), || seed)?;
            proposals::draw(*distinct.get_ref(), params, faults, seed)
                .map_err(|error| Fault::new(distinct.span(), error))
        }
        (Some(_), Some(distinct)) => {
            Err(Fault::new(distinct.span(), "values and distinct: give one of them"))
        }
        (None, None) => Err(Fault::new(proposals.span(), "give values = [...] or distinct = k")),
    }
}

fn explicit(values: &Spanned<Vec<Spanned<String>>>, params: &Params) -> Result<Vec<Value>, Fault> {
    let (given, n) = (values.get_ref().len(), params.processes());
    if given != n as usize {
        let reason = format!("{given} values for n = {n} processes: give one for each");
        return Err(Fault::new(values.span(), reason));
    }
    values.get_ref().iter().map(|text| value(text, params)).collect()
}

fn value(text: &Spanned<String>, params: &Params) -> Result<Value, Fault> {
    let value = Value::parse(text.get_ref()).ok_or_else(|| {
        let wanted = "give a text of one byte or more, or 0x and an even number of hex digits";
        Fault::new(text.span(), format!("{:?} is no value: {wanted}", text.get_ref()))
    })?;
    params.value(value.as_bytes()).map_err(|error| Fault::new(text.span(), error))?;
    Ok(value)
}
