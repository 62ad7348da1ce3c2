//! One instance, from its first event to its verdict.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use stickycas_client::Error;
use stickycas_model::counts::{Counts, RunCounts};
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use super::JudgeOptions;
use super::completion::Completion;
use super::report_service::ReportService;
use super::role_check::RoleCheck;
use crate::progress::RunProgress;
use crate::record::{ExecutionMode, Record};
use crate::run::collect::Collector;
use crate::run::completion::Waiting;
use crate::run::result::to_record;
use crate::run::{CountsBefore, CountsObserver, ServerHandle, TIME_TO_REPORT};
use crate::scenario::Scenario;

/// When the server has lost an instance, processes have so long to say that they were told.
const TIME_TO_COMPLAIN: Duration = Duration::from_secs(5);

/// The name of the count of calls to the judge in the name of another process than the certificate's.
pub const REPORTS_FOR_OTHERS: &str = "reports_for_others";

/// Follows an instance of a scenario to its end, closes it and judges it. `before`: the counts of the servers
/// before any process acted at it.
///
/// # Errors
/// If the server is there and does not do what it is asked. Whatever processes do or fail to do is in the
/// record, and so is a server that is lost.
pub async fn judge(
    handle: &ServerHandle,
    reports_at: &ReportService,
    scenario: &Scenario,
    instance: InstanceId,
    before: CountsBefore,
    options: &JudgeOptions,
) -> anyhow::Result<Record> {
    reports_at.expect(instance, &scenario.params);
    let everybody = || scenario.truth.assignments().map(|(process, _)| process);
    let awaited: BTreeSet<ProcessId> =
        everybody().filter(|process| !options.gone.contains(process)).collect();
    let progress = RunProgress::new(scenario.truth.correct().collect(), options.quiet);
    let collector = Collector::start(handle.client(), instance, progress);
    let observer = CountsObserver::start(handle, scenario, before);
    let ends = Completion::new(scenario, reports_at, options.tell);
    let mut waiting =
        Waiting { scenario, awaited, stall: options.stall, ends, collector, endings: Vec::new() };
    let stalled = waiting.for_correct().await?;
    waiting.for_byzantine(stalled).await?;
    let mut lost = waiting.collector.happened().lost.clone();
    let mut counts = RunCounts::default();
    if lost.is_none() {
        match known(observer.finish().await)? {
            Ok(counted) => counts = counted,
            Err(error) => lost = Some(error),
        }
    }
    if lost.is_none() {
        let closed = handle.client().close(instance).await;
        lost = known(closed.context("cannot close the instance"))?.err();
    }
    if lost.is_none() && stalled {
        // The close tells the processes that still wait; each says in its report for which answer (V1).
        waiting.until(scenario.truth.correct(), TIME_TO_REPORT).await?;
    }
    if lost.is_some() {
        waiting.ends.go_on_without_the_instance();
        waiting.until(everybody(), TIME_TO_COMPLAIN).await?;
    }
    let Waiting { ends: mut completion, collector, .. } = waiting;
    let mut anomalies: Vec<String> =
        lost.iter().flat_map(|error| lost_server(scenario, instance, error, &mut completion)).collect();
    counts.add(&reported_for_others(reports_at));
    let endings = completion.endings();
    let collected = collector.finish(lost.is_none(), options.stall).await;
    let assignments = RoleCheck::seen(scenario, &collected.history);
    let role_mismatches = assignments.role_mismatches(&completion.proposals());
    anomalies.extend(assignments.anomalies(collected.complete));
    let record = to_record(scenario, ExecutionMode::Judged, collected, counts, endings, stalled);
    let record = record.with_anomalies(anomalies).with_role_mismatches(role_mismatches);
    Ok(Record { told_unknown: completion.told_unknown(), ..record })
}

/// The judge's own counts: calls in the name of another process.
fn reported_for_others(reports_at: &ReportService) -> RunCounts {
    let counts = |count| Counts::from_iter([(REPORTS_FOR_OTHERS.to_owned(), count)]);
    let impersonations = reports_at.impersonations();
    RunCounts {
        all: counts(impersonations.values().sum()),
        processes: impersonations.into_iter().map(|(process, count)| (process, counts(count))).collect(),
    }
}

/// Sorts out the errors by which the instance turns out to be lost, or the server with it.
fn known<T>(answer: anyhow::Result<T>) -> anyhow::Result<Result<T, Error>> {
    let is_loss = |error: &Error| {
        error.reason() == Some(RefusalReason::InstanceUnknown) || matches!(error, Error::GaveUp { .. })
    };
    answer.map(Ok).or_else(|error| match error.downcast_ref::<Error>() {
        Some(loss) if is_loss(loss) => Ok(Err(loss.clone())),
        _ => Err(error),
    })
}

/// The sentences on a server that lost the instance.
fn lost_server(
    scenario: &Scenario,
    instance: InstanceId,
    error: &Error,
    completion: &mut Completion<'_>,
) -> [String; 2] {
    let (told, n) = (completion.told_unknown(), scenario.params.processes());
    let what = if error.reason() == Some(RefusalReason::InstanceUnknown) {
        format!("the server does not know instance {instance} any more: it was lost, or it has expired (F11)")
    } else {
        format!("the instance was lost from sight: {error}")
    };
    [what, format!("{told} of {n} processes were told that the instance is unknown")]
}
