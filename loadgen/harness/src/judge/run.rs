//! A series, carried out: each instance created or gone on with, judged, and shown.

use anyhow::Context;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::v1::RefusalReason;

use super::JudgeOptions;
use super::checkpoint::{CurrentInstance, SeriesCheckpoint};
use super::instance::judge;
use super::report_service::ReportService;
use crate::record::Record;
use crate::run::{ServerHandle, counted, create};
use crate::scenario::{FileError, Scenario, Settings};

/// The scenario that is judged again and again, with one seed after another.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The scenario's file, as errors name it.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The settings that take the place of its values.
    pub settings: Settings,
    /// The name that always leads to the instance that is being judged.
    pub name: InstanceName,
}

impl Subject {
    /// The scenario with this seed, or the one that it has, or that is drawn.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn scenario(&self, seed: Option<u64>) -> Result<Scenario, FileError> {
        Scenario::parse_with(&self.file, &self.text, seed, &self.settings)
    }
}

/// Judges instance after instance until the series is done. `each` is given the record of every one, before
/// the processes are told.
///
/// # Errors
/// As for [`judge`], or the state of the series cannot be kept.
pub async fn run(
    handle: &ServerHandle,
    reports_at: &ReportService,
    subject: &Subject,
    series: &mut SeriesCheckpoint,
    options: &JudgeOptions,
    mut each: impl FnMut(&Record, InstanceId) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for (instance, verdict) in series.recent().rev() {
        reports_at.judged(instance, verdict);
    }
    while let Some(seed) = series.next_seed()? {
        let scenario = subject.scenario(Some(seed))?;
        let instance = enter(handle, &subject.name, &scenario, series, options).await?;
        let before = series.current().map(|current| current.before.clone()).unwrap_or_default();
        let record = judge(handle, reports_at, &scenario, instance, before, options).await?;
        each(&record, instance)?;
        series.judged(instance, record.verdict.verdict)?;
        reports_at.judged(instance, record.verdict.verdict);
    }
    Ok(())
}

/// The instance to judge next: the one that an earlier life of this judge left, or a new one.
async fn enter(
    handle: &ServerHandle,
    name: &InstanceName,
    scenario: &Scenario,
    series: &mut SeriesCheckpoint,
    options: &JudgeOptions,
) -> anyhow::Result<InstanceId> {
    if let Some(abandoned) = series.abandoned.take() {
        close_abandoned(handle, abandoned, options).await?;
    }
    if let Some(current) = series.current().cloned()
        && let Some(instance) = left(handle, &current, options).await?
    {
        (options.tell)(&format!("goes on with instance {instance}"));
        series.goes_on(instance)?;
        return Ok(instance);
    }
    // If an earlier judge may have created it already, the counts from before that creation are kept.
    if series.current().is_none_or(|current| current.instance.is_some()) {
        series.begin(counted(handle, scenario).await?)?;
    }
    let instance = match create(handle, Some(name), scenario).await {
        Err(error) if is_name_taken(&error) => {
            close_leftover(handle, name, options).await?;
            create(handle, Some(name), scenario).await?
        }
        created => created?,
    };
    (options.tell)(&format!("instance {instance}, named {name}, for {}", who(scenario)));
    series.goes_on(instance)?;
    Ok(instance)
}

fn who(scenario: &Scenario) -> String {
    let n = scenario.params.processes();
    let principal = |process: Option<ProcessId>| process.map(crate::run::principal).unwrap_or_default();
    match n {
        1 => principal(ProcessId::new(1)),
        n => format!("{} to {}", principal(ProcessId::new(1)), principal(ProcessId::new(n))),
    }
}

/// The instance that an earlier life of this judge left. One that the server has lost meanwhile is gone on
/// with all the same, so that this is said and judged; unless that judge was told to end, since then
/// everything may have been.
async fn left(
    handle: &ServerHandle,
    current: &CurrentInstance,
    options: &JudgeOptions,
) -> anyhow::Result<Option<InstanceId>> {
    let Some(instance) = current.instance.as_ref().and_then(|id| id.parse().ok()) else { return Ok(None) };
    if !current.interrupted {
        return Ok(Some(instance));
    }
    match handle.client().get(&InstanceRef::Id(instance)).await {
        Ok(_) => Ok(Some(instance)),
        Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => {
            (options.tell)(&format!("instance {instance} was interrupted and is gone: beginning anew"));
            Ok(None)
        }
        Err(error) => Err(error).context("cannot ask for the instance that was interrupted"),
    }
}

fn is_name_taken(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<stickycas_client::Error>();
    error.and_then(stickycas_client::Error::reason) == Some(RefusalReason::NameTaken)
}

/// Closes the instance of this name, if it is one of ours and no longer judged.
async fn close_leftover(
    handle: &ServerHandle,
    name: &InstanceName,
    options: &JudgeOptions,
) -> anyhow::Result<()> {
    let looked = handle.client().get(&InstanceRef::Name(name.clone())).await;
    let found = looked.with_context(|| format!("{name} is the name of another instance"))?.instance;
    let me = handle.client().principal();
    anyhow::ensure!(
        found.creator == me,
        "{name} is the name of instance {}, which {} created: give another --name, or close it",
        found.id,
        found.creator
    );
    close_abandoned(handle, found.id, options).await
}

/// Closes an instance that an earlier judge left, so that its processes go on to the next.
async fn close_abandoned(
    handle: &ServerHandle,
    instance: InstanceId,
    options: &JudgeOptions,
) -> anyhow::Result<()> {
    match handle.client().close(instance).await {
        Ok(()) => {
            (options.tell)(&format!("closed instance {instance}, which an earlier judge left"));
            Ok(())
        }
        // It is gone already.
        Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => Ok(()),
        Err(error) => Err(error).context("cannot close the instance that an earlier judge left"),
    }
}
