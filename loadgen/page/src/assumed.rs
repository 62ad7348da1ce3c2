//! A history without its ground truth, as a server or its log has it: neither the Byzantine processes nor the
//! reads as processes saw them are known. So a truth is assumed, and [`ASSUMPTIONS`] tells readers which.

use std::collections::BTreeSet;
use std::sync::Arc;

use stickycas_model::access::Op;
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::detect;
use stickycas_model::entries::Entries;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::{Event, Offence, Recorded};
use stickycas_model::judge::{Case, Expectations, Explanation, explain};
use stickycas_model::params::Params;
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::{ProcessId, Value};

/// The assumptions, in sentences.
pub const ASSUMPTIONS: &str = "A server does not know who is Byzantine: a process with an offence on record counts as faulty, \
                               every other one as correct, with its first append as its proposal.";

/// The ground truth that is assumed: a process with an offence on record is faulty, every other one correct.
///
/// One that never appended proposes what the first append of all proposes, so that it adds no value to those
/// of correct processes.
#[must_use]
pub fn assumed_truth(params: &Params, history: &[Recorded]) -> GroundTruth {
    let accused = history.iter().filter_map(|recorded| match &recorded.event {
        Event::Offence(Offence { process, .. }) => Some(*process),
        _ => None,
    });
    let accused: BTreeSet<ProcessId> = accused.collect();
    GroundTruth::new(assignments(params, history)).with_faulty(accused)
}

fn assignments(params: &Params, history: &[Recorded]) -> Vec<Assignment> {
    let mut proposals: Vec<Option<&Value>> = vec![None; params.processes() as usize];
    let mut first = None;
    for recorded in history {
        if let Event::Accepted { process, op: Op::Append(value), .. } = &recorded.event
            && let Some(proposal) = proposals.get_mut(process.index())
        {
            proposal.get_or_insert(value);
            first.get_or_insert(value);
        }
    }
    let none = Value::parse("none").expect("a text is a value");
    let first = first.unwrap_or(&none);
    let assignment = |proposal: Option<&Value>| Assignment {
        role: Role::Correct,
        proposal: proposal.unwrap_or(first).clone(),
    };
    proposals.into_iter().map(assignment).collect()
}

/// The decisions that the server was told, as reports.
#[must_use]
pub fn reports_to_server(history: &[Recorded]) -> Vec<Report> {
    let decided = history.iter().filter_map(|recorded| match &recorded.event {
        Event::Decided { process, value } => Some(Report {
            process: *process,
            decision: Some(value.clone()),
            phase: None,
            from: Entries::default(),
            ended: ProcessEnd::Decided,
            unanswered: None,
        }),
        _ => None,
    });
    let mut reports: Vec<Report> = decided.collect();
    reports.sort_by_key(|report| report.process);
    reports
}

/// Explains a whole history under these assumptions.
#[must_use]
pub fn explain_assumed(params: &Arc<Params>, history: &[Recorded]) -> Explanation {
    let (truth, reports) = (assumed_truth(params, history), reports_to_server(history));
    let detection = detect(params, &truth, 0, history, &RunCounts::default());
    let over = history.iter().any(|recorded| matches!(recorded.event, Event::Finished | Event::Closed));
    explain(&Case {
        params: params.clone(),
        expected: &Expectations { assumed: true, ..Expectations::new(&truth, &detection) },
        truth: &truth,
        history,
        complete: over,
        reports: &reports,
        fired: detection.fired,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::history::OffenceKind;
    use stickycas_model::judge::FaultReason;
    use stickycas_model::params::ParamsSpec;
    use stickycas_model::types::Time;

    #[test]
    fn only_who_has_an_offence_on_record_counts_as_faulty() {
        let params = Arc::new(Params::try_new(ParamsSpec::new(3, 1, 3)).unwrap());
        let offence = Offence {
            process: ProcessId::new(2).unwrap(),
            kind: OffenceKind::Malformed,
            number: None,
            phase: None,
            detail: "x".to_owned(),
        };
        let history = [Recorded { at: Time::ZERO, event: Event::Offence(offence) }];
        let explanation = explain_assumed(&params, &history);
        let faulty: Vec<_> = explanation.faulty.iter().map(|it| (it.process.get(), &it.why)).collect();
        assert_eq!(faulty, [(2, &FaultReason::Planned)]);
    }
}
