//! The judge of processes that others have started.
//!
//! As in [`run`](mod@crate::run), there is a scenario, an instance of it and a verdict. But the processes are
//! started by whoever likes to, in any order, before or after the judge: by compose, by hand, in another language.
//! What ties them together is the name of the instance and the roster, in which process i is `process-i`.
//!
//! [`judge`] follows one instance from its first event on. A process has ended when it has reported to the
//! [`Desk`], or a moment after it has left without a report. A [`Series`] is one instance after another, and
//! remembers on disk where it stands, so that a judge that is restarted goes on with the same instance.
//!
//! What a judge cannot know, it does not judge: a server that lost its memory, or a correct process that was started
//! again without a plan, makes the run prove nothing, and the verdict says so. A correct process that plays another
//! part than the scenario gives it makes the scenario no ground truth, and what breaks then is nobody's bug.

mod attendance;
mod conduct;
mod desk;
mod door;
mod parts;
mod series;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use stickycas_client::Error;
use stickycas_client::watch::WatchFrom;
use stickycas_model::counts::RunCounts;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use self::attendance::Attendance;
pub use self::conduct::{Subject, conduct};
pub use self::desk::Desk;
use self::parts::Parts;
pub use self::series::{Asked, Judged, Series, SeriesError};
use crate::progress::Progress;
use crate::record::{How, Record};
use crate::run::collect::Collector;
use crate::run::conclude::conclude;
use crate::run::ends::{Waiting, await_byzantine, await_correct, await_ended};
use crate::run::{Site, counted};
use crate::scenario::Scenario;

/// When the server has lost an instance, processes have so long to say that they were told.
const TIME_TO_COMPLAIN: Duration = Duration::from_secs(5);

/// How to judge.
#[derive(Clone, Debug)]
pub struct Options {
    /// Give up waiting after so long without any event, beyond what the instance itself may wait.
    pub stall: Duration,
    /// Processes that are killed for good, so that nobody waits for them.
    pub gone: BTreeSet<ProcessId>,
    /// Show no progress.
    pub quiet: bool,
    /// Says what people want to know besides.
    pub tell: fn(&str),
}

/// Follows an instance of a scenario to its end, closes it and judges it. `before`: what the server had counted
/// before anybody acted at it.
///
/// # Errors
/// If the server is there and does not do what it is asked. Whatever processes do or fail to do is in the record, and
/// so is a server that is lost.
pub async fn judge(
    site: &Site,
    desk: &Desk,
    scenario: &Scenario,
    instance: InstanceId,
    before: &RunCounts,
    options: &Options,
) -> anyhow::Result<Record> {
    desk.expect(instance, &scenario.params);
    let everybody = || scenario.cast.parts().map(|(process, _)| process);
    let awaited: BTreeSet<ProcessId> =
        everybody().filter(|process| !options.gone.contains(process)).collect();
    let progress = Progress::new(scenario.cast.correct().collect(), options.quiet);
    let mut collector = Collector::start(site.client().watch(instance, WatchFrom::Start), progress);
    let mut attendance = Attendance::new(scenario, desk, options.tell);
    let mut waiting = Waiting { scenario, awaited, stall: options.stall, endings: Vec::new() };

    let stalled = await_correct(&mut attendance, &mut collector, &mut waiting).await?;
    await_byzantine(&mut attendance, &mut collector, &mut waiting, stalled).await?;
    let mut lost = collector.happened().lost.clone();
    let mut counts = RunCounts::default();
    if lost.is_none() {
        match known(counted(site, scenario).await)? {
            Ok(now) => counts = now.since(before),
            Err(error) => lost = Some(error),
        }
    }
    if lost.is_none() {
        let closed = site.client().close(instance).await;
        lost = known(closed.context("cannot close the instance"))?.err();
    }
    if lost.is_some() {
        attendance.go_on_without_the_instance();
        let playing = waiting.still(everybody());
        await_ended(playing, TIME_TO_COMPLAIN, &mut attendance, &mut collector, &mut waiting).await?;
    }
    let mut unplanned: Vec<String> =
        lost.iter().flat_map(|error| lost_server(scenario, instance, error, &mut attendance)).collect();
    let endings = attendance.endings();
    let collected = collector.finish(options.stall).await;
    let parts = Parts::seen(scenario, &collected.history);
    let miscast = parts.miscast(&attendance.proposals());
    unplanned.extend(parts.unplanned(collected.complete));
    let record = conclude(scenario, How::Judged, collected, counts, endings, stalled);
    let record = record.with_unplanned(unplanned).with_miscast(miscast);
    Ok(Record { told_unknown: attendance.told_unknown(), ..record })
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

/// What to say of a server that lost the instance.
fn lost_server(
    scenario: &Scenario,
    instance: InstanceId,
    error: &Error,
    attendance: &mut Attendance<'_>,
) -> [String; 2] {
    let (told, n) = (attendance.told_unknown(), scenario.params.processes());
    let what = if error.reason() == Some(RefusalReason::InstanceUnknown) {
        format!("the server does not know instance {instance} any more: it was lost, or it has expired (F11)")
    } else {
        format!("the instance was lost from sight: {error}")
    };
    [what, format!("{told} of {n} processes were told that the instance is unknown")]
}
