//! From what was collected, and how processes ended, to a record that is judged.

use stickycas_model::counts::RunCounts;
use stickycas_model::process::{ProcessEnd, Report};

use super::collect::Collected;
use super::completion::{ProcessEnding, attackers};
use crate::record::{ExecutionMode, Record};
use crate::scenario::Scenario;

/// Judges what was collected, and what every process says or cannot say.
pub(crate) fn to_record(
    scenario: &Scenario,
    how: ExecutionMode,
    collected: Collected,
    counted: RunCounts,
    endings: Vec<ProcessEnding>,
    stalled: bool,
) -> Record {
    let Collected { history, complete, trouble } = collected;
    let mut anomalies: Vec<String> = trouble.into_iter().collect();
    if stalled {
        anomalies.push("nothing happened any more, and correct processes had not ended".to_owned());
    }
    let attackers = attackers(scenario);
    let mut reports = Vec::new();
    for ProcessEnding { process, report, trouble } in endings {
        let correct = scenario.truth.correct().any(|correct| correct == process);
        match (report, trouble) {
            (Some(report), _) if report.process != process => {
                anomalies.push(format!("process {process} says that it is process {}", report.process));
            }
            (Some(report), _) => reports.push(report),
            // A correct process without a report gets one that says why, and the judge draws its conclusions.
            (None, trouble) if correct => {
                let why = trouble.unwrap_or_else(|| "it never opened a session".to_owned());
                reports.push(Report {
                    process,
                    decision: None,
                    phase: None,
                    from: Vec::new().into(),
                    ended: ProcessEnd::Failed(why),
                    unanswered: None,
                });
            }
            // A server that defends itself may well stop an attacker; the judge asks if the attack fired.
            (None, Some(_)) if attackers.contains(&process) => {}
            (None, Some(trouble)) => {
                anomalies.push(format!("process {process} did not play its part to the end: {trouble}"));
            }
            // It never joined, as its strategy has it.
            (None, None) => {}
        }
    }
    Record::judged(scenario.clone(), how, history, complete, counted, reports).with_anomalies(anomalies)
}

#[cfg(test)]
mod tests {
    use stickycas_model::judge::Outcome;
    use stickycas_model::sim;
    use stickycas_model::types::ProcessId;

    use super::*;

    const SCENARIO: &str = r#"
        name = "six"
        [instance]
        processes = 6
        warp_size = 1
        read_size = 3
        [proposals]
        distinct = 1
        [[faults]]
        processes = [2]
        strategy = "collude(value=0)"
    "#;

    /// The record of a simulated run in which this process ended otherwise.
    fn judged(number: u32, ended: impl Fn(Report) -> (Option<Report>, Option<String>)) -> Record {
        let scenario = Scenario::parse("six.toml", SCENARIO, Some(1)).expect("the scenario is right");
        let outcome = sim::run(&scenario.plan());
        let ending = |report: Report| {
            let process = report.process;
            let (report, trouble) =
                if process.get() == number { ended(report) } else { (Some(report), None) };
            ProcessEnding { process, report, trouble }
        };
        let endings = outcome.reports.into_iter().map(ending).collect();
        let collected = Collected { history: outcome.history, complete: true, trouble: None };
        to_record(&scenario, ExecutionMode::Tasks, collected, RunCounts::default(), endings, false)
    }

    fn says(record: &Record, what: &str) -> bool {
        record.verdict.reasons.iter().any(|reason| reason.contains(what))
    }

    #[test]
    fn when_all_end_as_planned_the_judge_decides_alone() {
        let record = judged(0, |_| unreachable!("there is no process 0"));
        assert_eq!(record.verdict.verdict, Outcome::Valid, "{:?}", record.verdict.reasons);
    }

    #[test]
    fn an_attacker_that_dies_makes_the_run_prove_nothing() {
        let record = judged(2, |_| (None, Some("it fell over".to_owned())));
        assert_eq!(record.verdict.verdict, Outcome::Unknown);
        assert!(says(&record, "process 2 did not play its part to the end: it fell over"));
    }

    #[test]
    fn a_correct_process_that_dies_makes_the_run_prove_nothing() {
        let record = judged(4, |_| (None, Some("it fell over".to_owned())));
        assert_eq!(record.verdict.verdict, Outcome::Unknown);
        assert!(says(&record, "it fell over"), "{:?}", record.verdict.reasons);
    }

    #[test]
    fn nobody_reports_for_another() {
        let another = ProcessId::new(5).expect("it is not 0");
        let record = judged(4, |report| (Some(Report { process: another, ..report }), None));
        assert_eq!(record.verdict.verdict, Outcome::Unknown);
        assert!(says(&record, "process 4 says that it is process 5"));
    }
}
