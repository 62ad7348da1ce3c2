//! One instance, from its planned start to its verdict.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stickycas_client::watch::{Watch, WatchFrom, Watched};
use stickycas_harness::Scenario;
use stickycas_harness::record::{ExecutionMode, Record};
use stickycas_model::counts::RunCounts;
use stickycas_model::ground_truth::Role;
use stickycas_model::history::{Event, OffenceKind, Recorded};
use stickycas_model::judge::Outcome;
use stickycas_model::process::Report;
use stickycas_model::types::{AccessNumber, ProcessId};
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::super::instance_generator::GeneratedInstance;
use super::super::measure::{Label, Measure, OperationOutcome, Party, Principal, record};
use super::super::observations;
use super::super::profile::Pacing;
use super::super::verdicts::{Excuse, InstanceObservations, InstanceVerdict};
use super::Engine;
use super::instance_state::{InstanceState, ProcessEnding};

/// When all correct processes have ended, Byzantine ones have so long to do what they still would.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// For so long, which is what servers advise, a place in a closed loop stays empty after a refusal.
const HOLD_BACK: Duration = Duration::from_millis(100);

/// Plays the instance with this number, whose start was planned for `planned`, and judges it.
pub(super) async fn run(engine: &Arc<Engine>, number: u64, planned: Instant) {
    let begun = Instant::now();
    let measured = engine.is_measured(planned);
    let late = begun.duration_since(planned);
    engine.started(measured, late);
    let drawn = GeneratedInstance::instance(&engine.profile, number);
    let created = create(engine, number, &drawn, measured).await;
    match created {
        Ok(instance) => {
            engine.has_created.store(true, Ordering::Relaxed);
            let state = InstanceState::new(number, instance, drawn, measured);
            play(engine, state, Start { planned, begun }).await;
        }
        Err(ended) => {
            if let OperationOutcome::Refused(reason) = ended {
                engine.not_created(reason);
            }
            engine.tally().judged.not_created += 1;
            Start { planned, begun }.ended(engine, number, measured, ended, Instant::now());
            hold_back(engine, ended).await;
        }
    }
}

/// In a closed loop, a place that was refused stays empty for a moment, as if a client waited before it tries
/// again: else the loop would spin on refusals. An open loop goes by its schedule.
async fn hold_back(engine: &Engine, ended: OperationOutcome) {
    let closed = matches!(engine.profile.pacing, Pacing::Closed { .. });
    if closed && matches!(ended, OperationOutcome::Refused(_)) {
        tokio::select! {
            () = sleep(HOLD_BACK) => {}
            () = engine.cut_off() => {}
        }
    }
}

/// When an instance was to begin, and when it did.
#[derive(Clone, Copy)]
struct Start {
    planned: Instant,
    begun: Instant,
}

impl Start {
    /// The instance ended so, then.
    fn ended(self, engine: &Engine, number: u64, measured: bool, ended: OperationOutcome, at: Instant) {
        if ended == OperationOutcome::Done {
            engine.shared.meter.instance();
        }
        if !measured {
            return;
        }
        let mut shard = engine.shared.meter.shard(shard(number));
        record(&mut shard, Label::own(Measure::Instance, ended), at.duration_since(self.planned));
        if ended == OperationOutcome::Done {
            record(&mut shard, Label::own(Measure::Service, ended), at.duration_since(self.begun));
        }
    }
}

fn shard(number: u64) -> usize {
    usize::try_from(number % 1024).unwrap_or_default()
}

async fn create(
    engine: &Engine,
    number: u64,
    drawn: &GeneratedInstance,
    measured: bool,
) -> Result<InstanceId, OperationOutcome> {
    let sent = Instant::now();
    let request = v1::CreateRequest {
        name: String::new(),
        parameters: Some(v1::Parameters::from(&*drawn.params)),
        roster: engine.client_pool.roster(number),
    };
    let connection = engine.client.connection();
    let mut instances = connection.instances();
    let answer = tokio::select! {
        answer = timeout(engine.shared.stall, instances.create(request)) => answer,
        () = engine.cut_off() => return Err(OperationOutcome::CutOff),
    };
    let created = match answer {
        Ok(Ok(response)) => {
            let id = response.into_inner().instance.and_then(|instance| instance.instance_id.parse().ok());
            id.ok_or(OperationOutcome::Protocol)
        }
        Ok(Err(status)) => Err(engine.shared.ended_by(&connection.error(&status))),
        Err(_) => Err(OperationOutcome::Stalled),
    };
    if measured {
        let ended = created.err().unwrap_or(OperationOutcome::Done);
        record(
            &mut engine.shared.meter.shard(shard(number)),
            Label::own(Measure::Create, ended),
            sent.elapsed(),
        );
    }
    created
}

/// Plays the instance that was created, and judges it.
async fn play(engine: &Arc<Engine>, state: InstanceState, start: Start) {
    let state = Arc::new(state);
    let watch = watch_along(engine, &state);
    engine.client_pool.play(&state);
    let stopped = wait(engine, &state).await;
    let over = Instant::now();
    let endings = state.clear();
    let ended = stopped.unwrap_or_else(|| how_it_ended(&state, &endings));
    let decided = endings.iter().filter(|ending| is_correct(&state, ending));
    let last_decision = decided.filter_map(|ending| ending.decided).max();
    let at = if ended == OperationOutcome::Done { last_decision.unwrap_or(over) } else { over };
    start.ended(engine, state.number, state.measured, ended, at);
    let everybody_left =
        endings.iter().filter(|ending| ending.left).count() == state.drawn.params.processes() as usize;
    if !everybody_left {
        engine.client_pool.clear(&state);
        close(engine, state.instance).await;
    }
    // Where we ourselves had processes give up, the history says that they did, and nothing of the server.
    let ended_by_itself = matches!(ended, OperationOutcome::Done | OperationOutcome::Stalled);
    let wanted = state.drawn.watched && ended_by_itself;
    judge(engine, &state, endings, wanted, watch.filter(|_| wanted)).await;
}

/// Waits until all processes have ended that end by themselves. Returns what stopped it before, if anything
/// did.
async fn wait(engine: &Engine, state: &InstanceState) -> Option<OperationOutcome> {
    let stall = engine.shared.stall;
    let mut grace = None;
    let mut look = Instant::now() + stall;
    loop {
        tokio::select! {
            () = state.changed() => {}
            () = sleep_until(grace.unwrap_or(look)) => {
                if grace.is_some() {
                    return None;
                }
                let idle = state.idle();
                if idle >= stall {
                    return Some(OperationOutcome::Stalled);
                }
                look = Instant::now() + (stall - idle);
            }
            () = engine.cut_off() => return Some(OperationOutcome::CutOff),
        }
        if state.all_ended() {
            return None;
        }
        if state.correct_ended() && grace.is_none() {
            grace = Some(Instant::now() + LAST_WORDS);
        }
    }
}

fn is_correct(state: &InstanceState, ending: &ProcessEnding) -> bool {
    state.party(ending.report.process) == Party::Correct
}

/// The first failure of a correct process, if there is one.
fn how_it_ended(state: &InstanceState, endings: &[ProcessEnding]) -> OperationOutcome {
    let correct = endings.iter().filter(|ending| is_correct(state, ending));
    correct.map(|ending| ending.ended).find(|ended| !ended.is_answer()).unwrap_or(OperationOutcome::Done)
}

/// Not every process has left, so the instance does not end by itself.
async fn close(engine: &Engine, instance: InstanceId) {
    let mut instances = engine.client.connection().instances();
    let request = v1::CloseRequest { instance_id: instance.to_string() };
    // If it cannot be closed it expires.
    let _ = timeout(engine.shared.stall, instances.close(request)).await;
}

/// A watch, with when which answer was told.
struct Collected {
    history: Vec<Recorded>,
    complete: bool,
    told: Vec<(ProcessId, AccessNumber, Instant)>,
}

/// Watches the instance from the start, if it is to be watched and there is a place among those that watch;
/// without a place, its history is collected when it is over.
fn watch_along(engine: &Arc<Engine>, state: &InstanceState) -> Option<AbortOnDropHandle<Collected>> {
    let watchers = Arc::clone(&engine.watchers);
    let place = state.drawn.watched.then(|| watchers.try_acquire_owned().ok())??;
    let watch = engine.client.watch(state.instance, WatchFrom::Start);
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let _place = place;
        follow(watch).await
    })))
}

async fn follow(mut watch: Watch) -> Collected {
    let mut collected = Collected { history: Vec::new(), complete: false, told: Vec::new() };
    while let Ok(Some(watched)) = watch.try_next().await {
        let Watched::Event(index, recorded) = watched else { continue };
        if index != collected.history.len() as u64 {
            return collected;
        }
        if let Event::Answered { process, number, .. } = recorded.event {
            collected.told.push((process, number, Instant::now()));
        }
        collected.complete |= matches!(recorded.event, Event::Closed | Event::Finished);
        collected.history.push(recorded);
    }
    collected
}

/// The history of an instance that is over.
async fn history(engine: &Engine, instance: InstanceId) -> Option<Collected> {
    let _place = engine.watchers.acquire().await.ok()?;
    timeout(engine.shared.stall, follow(engine.client.watch(instance, WatchFrom::Start))).await.ok()
}

/// Judges the observations of all processes, and if it is `wanted` the whole history, which `watch` follows.
async fn judge(
    engine: &Engine,
    state: &InstanceState,
    mut endings: Vec<ProcessEnding>,
    wanted: bool,
    watch: Option<AbortOnDropHandle<Collected>>,
) {
    let drawn = &state.drawn;
    let seen: Vec<observations::ProcessObservation> = endings
        .iter_mut()
        .filter_map(|ending| is_correct(state, ending).then(|| ending.seen.take())?)
        .collect();
    let correct: Vec<&ProcessEnding> = endings.iter().filter(|ending| is_correct(state, ending)).collect();
    let finding = observations::judge(&drawn.params, &drawn.truth, &seen);
    let mut judgement = InstanceVerdict {
        number: state.number,
        seed: drawn.seed,
        finding,
        record: None,
        excuse: None,
        observations: None,
        lost: false,
    };
    let collected = match watch {
        Some(watch) => {
            let collected = timeout(engine.shared.stall, watch).await.ok().and_then(Result::ok);
            if let (true, Some(collected)) = (state.measured, &collected) {
                watch_lags(engine, state, &correct, &collected.told);
            }
            collected
        }
        // Evidence is collected of what should not be, whether it was to be watched or not.
        None if wanted || judgement.finding.outcome == Outcome::Violation => {
            history(engine, state.instance).await
        }
        None => None,
    };
    match collected {
        Some(Collected { history, complete: true, .. }) => {
            let reports = endings.into_iter().map(|ending| ending.report).collect();
            let record = recorded(engine, drawn, state.number, history, reports);
            judgement.excuse = excuse(&record, |process| engine.client_pool.principal(state.number, process));
            judgement.record = Some(record);
        }
        Some(Collected { complete: false, .. }) => judgement.lost = true,
        None => judgement.lost = wanted,
    }
    if judgement.outcome() != Outcome::Valid {
        judgement.observations = Some(Box::new(InstanceObservations {
            instance: state.instance.to_string(),
            seed: drawn.seed,
            proposals: drawn.truth.assignments().map(|(_, assignment)| assignment.proposal.clone()).collect(),
            seen,
        }));
    }
    engine.tally().take(judgement);
}

/// The whole run of an instance, judged.
fn recorded(
    engine: &Engine,
    drawn: &GeneratedInstance,
    number: u64,
    history: Vec<Recorded>,
    reports: Vec<Report>,
) -> Box<Record> {
    let scenario = Scenario {
        name: engine.profile.name.clone(),
        about: format!("instance {number} of a load with seed {}", engine.profile.seed),
        expect: None,
        params: Arc::clone(&drawn.params),
        truth: drawn.truth.clone(),
        seed: drawn.seed,
    };
    Box::new(Record::judged(scenario, ExecutionMode::Tasks, history, true, RunCounts::default(), reports))
}

/// The outcome of a history without the offences of correct processes that exceeded what they may send, and
/// the accused principals; `None` if there are none. Whether they did is known only at the end of the load.
fn excuse(record: &Record, principal: impl Fn(ProcessId) -> Principal) -> Option<Excuse> {
    let truth = &record.scenario.truth;
    let accused = |recorded: &Recorded| match &recorded.event {
        Event::Offence(offence) if offence.kind == OffenceKind::QuotaExceeded => {
            let correct =
                truth.assignment(offence.process).is_some_and(|assignment| assignment.role == Role::Correct);
            correct.then_some(offence.process)
        }
        _ => None,
    };
    let all: BTreeSet<ProcessId> = record.history.iter().filter_map(accused).collect();
    if all.is_empty() {
        return None;
    }
    let history = record.history.iter().filter(|recorded| accused(recorded).is_none()).cloned().collect();
    let (scenario, reports) = (record.scenario.clone(), record.reports.clone());
    let excused =
        Record::judged(scenario, ExecutionMode::Tasks, history, true, RunCounts::default(), reports);
    Some(Excuse { outcome: excused.verdict.verdict, accused: all.into_iter().map(principal).collect() })
}

/// How long after the processes the watcher was told the same.
fn watch_lags(
    engine: &Engine,
    state: &InstanceState,
    correct: &[&ProcessEnding],
    told: &[(ProcessId, AccessNumber, Instant)],
) {
    let answered: HashMap<ProcessId, &[Instant]> =
        correct.iter().map(|ending| (ending.report.process, ending.told.as_slice())).collect();
    let mut shard = engine.shared.meter.shard(shard(state.number));
    for (process, number, watched) in told {
        let place = usize::try_from(number.get() - 1).unwrap_or(usize::MAX);
        if let Some(answered) = answered.get(process).and_then(|told| told.get(place)) {
            let lag = watched.saturating_duration_since(*answered);
            record(&mut shard, Label::own(Measure::WatchLag, OperationOutcome::Done), lag);
        }
    }
}
