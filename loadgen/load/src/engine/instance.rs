//! One instance, from its planned start to its verdict.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use stickycas_client::watch::{Watch, WatchFrom, Watched};
use stickycas_harness::Scenario;
use stickycas_harness::record::{How, Record};
use stickycas_model::cast::Role;
use stickycas_model::counts::RunCounts;
use stickycas_model::history::{Event, OffenceKind, Recorded};
use stickycas_model::judge::Outcome;
use stickycas_model::process::Report;
use stickycas_model::types::{AccessNumber, ProcessId};
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::draw::Drawn;
use super::super::judged::{Excused, Judgement, Witnessed};
use super::super::measure::{Ended, Fault, Label, Measure, Party, record};
use super::super::profile::Pacing;
use super::super::seen;
use super::state::Engine;
use super::table::{Ending, Table};

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
    let drawn = Drawn::instance(&engine.profile, number);
    let created = create(engine, number, &drawn, measured).await;
    match created {
        Ok(instance) => {
            let table = Table::new(number, instance, drawn, measured);
            play(engine, table, Start { planned, begun }).await;
        }
        Err(ended) => {
            engine.not_created();
            Start { planned, begun }.ended(engine, number, measured, ended, Instant::now());
            hold_back(engine, ended).await;
        }
    }
}

/// In a closed loop, a place that was refused stays empty for a moment, as it would if somebody waited to try again:
/// else the loop would spin on refusals. An open loop goes by its schedule.
async fn hold_back(engine: &Engine, ended: Ended) {
    let closed = matches!(engine.profile.load.pacing, Pacing::Closed { .. });
    if closed && matches!(ended, Ended::Refused(_)) {
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
    fn ended(self, engine: &Engine, number: u64, measured: bool, ended: Ended, at: Instant) {
        if ended == Ended::Done {
            engine.shared.meter.instance();
        }
        if !measured {
            return;
        }
        let mut shard = engine.shared.meter.shard(near(number));
        record(&mut shard, Label::own(Measure::Instance, ended), at.duration_since(self.planned));
        if ended == Ended::Done {
            record(&mut shard, Label::own(Measure::Service, ended), at.duration_since(self.begun));
        }
    }
}

fn near(number: u64) -> usize {
    usize::try_from(number % 1024).unwrap_or_default()
}

async fn create(engine: &Engine, number: u64, drawn: &Drawn, measured: bool) -> Result<InstanceId, Ended> {
    let sent = Instant::now();
    let request = v1::CreateRequest {
        name: String::new(),
        parameters: Some(v1::Parameters::from(&*drawn.params)),
        roster: engine.crowd.roster(number),
    };
    let connection = engine.client.connection();
    let mut instances = connection.instances();
    let answer = tokio::select! {
        answer = timeout(engine.shared.stall, instances.create(request)) => answer,
        () = engine.cut_off() => return Err(Ended::Failed(Fault::CutOff)),
    };
    let created = match answer {
        Ok(Ok(response)) => {
            let id = response.into_inner().instance.and_then(|instance| instance.instance_id.parse().ok());
            id.ok_or(Ended::Failed(Fault::Protocol))
        }
        Ok(Err(status)) => Err(engine.shared.ended_by(&connection.error(&status))),
        Err(_) => Err(Ended::Failed(Fault::Stalled)),
    };
    if measured {
        let ended = created.err().unwrap_or(Ended::Done);
        record(
            &mut engine.shared.meter.shard(near(number)),
            Label::own(Measure::Create, ended),
            sent.elapsed(),
        );
    }
    created
}

/// Plays the instance that was created, and judges it.
async fn play(engine: &Arc<Engine>, table: Table, start: Start) {
    let table = Arc::new(table);
    let watching = watch_along(engine, &table);
    engine.crowd.play(&table);
    let stopped = wait(engine, &table).await;
    let over = Instant::now();
    let endings = table.clear();
    let ended = stopped.unwrap_or_else(|| how_it_ended(&table, &endings));
    let decided = endings.iter().filter(|ending| is_correct(&table, ending));
    let last_decision = decided.filter_map(|ending| ending.decided).max();
    let at = if ended == Ended::Done { last_decision.unwrap_or(over) } else { over };
    start.ended(engine, table.number, table.measured, ended, at);
    let everybody_left =
        endings.iter().filter(|ending| ending.left).count() == table.drawn.params.processes() as usize;
    if !everybody_left {
        engine.crowd.clear(&table);
        close(engine, table.instance).await;
    }
    // Where we ourselves had processes give up, the history says that they did, and nothing of the server.
    let watching = match ended {
        Ended::Done | Ended::Failed(Fault::Stalled) => watching,
        _ => Watching::No,
    };
    judge(engine, &table, endings, watching).await;
}

/// Waits until everybody has ended who ends by himself. What stopped it, if anything did before.
async fn wait(engine: &Engine, table: &Table) -> Option<Ended> {
    let stall = engine.shared.stall;
    let mut grace = None;
    let mut look = Instant::now() + stall;
    loop {
        tokio::select! {
            () = table.changed() => {}
            () = sleep_until(grace.unwrap_or(look)) => {
                if grace.is_some() {
                    return None;
                }
                let idle = table.idle();
                if idle >= stall {
                    return Some(Ended::Failed(Fault::Stalled));
                }
                look = Instant::now() + (stall - idle);
            }
            () = engine.cut_off() => return Some(Ended::Failed(Fault::CutOff)),
        }
        if table.all_ended() {
            return None;
        }
        if table.correct_ended() && grace.is_none() {
            grace = Some(Instant::now() + LAST_WORDS);
        }
    }
}

fn is_correct(table: &Table, ending: &Ending) -> bool {
    table.party(ending.report.process) == Party::Correct
}

/// The first failure of a correct process, if there is one.
fn how_it_ended(table: &Table, endings: &[Ending]) -> Ended {
    let correct = endings.iter().filter(|ending| is_correct(table, ending));
    correct.map(|ending| ending.ended).find(|ended| !ended.is_answer()).unwrap_or(Ended::Done)
}

/// Not everybody has left, so the instance does not come to its end by itself.
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

/// How the history of an instance is come by.
enum Watching {
    /// It is not.
    No,
    /// When the instance is over.
    Later,
    /// As it happens.
    Along(AbortOnDrop<Collected>),
}

/// A task that ends when nobody waits for it any more.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Watches the instance from the start, if it is to be watched and there is a place among those that watch.
fn watch_along(engine: &Arc<Engine>, table: &Table) -> Watching {
    if !table.drawn.watched {
        return Watching::No;
    }
    let Ok(place) = Arc::clone(&engine.watchers).try_acquire_owned() else { return Watching::Later };
    let watch = engine.client.watch(table.instance, WatchFrom::Start);
    Watching::Along(AbortOnDrop(tokio::spawn(async move {
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

/// Judges what everybody saw, and if it is watched the whole history.
async fn judge(engine: &Engine, table: &Table, mut endings: Vec<Ending>, watching: Watching) {
    let drawn = &table.drawn;
    let seen: Vec<seen::Seen> = endings
        .iter_mut()
        .filter_map(|ending| is_correct(table, ending).then(|| ending.seen.take())?)
        .collect();
    let correct: Vec<&Ending> = endings.iter().filter(|ending| is_correct(table, ending)).collect();
    let finding = seen::judge(&drawn.params, &drawn.cast, &seen);
    let mut judgement = Judgement {
        number: table.number,
        seed: drawn.seed,
        finding,
        record: None,
        excused: None,
        witnessed: None,
        lost: false,
    };
    let wanted = !matches!(watching, Watching::No);
    let collected = match watching {
        Watching::Along(mut task) => {
            let collected = timeout(engine.shared.stall, &mut task.0).await.ok().and_then(Result::ok);
            if let (true, Some(collected)) = (table.measured, &collected) {
                watch_lags(engine, table, &correct, &collected.told);
            }
            collected
        }
        Watching::Later => history(engine, table.instance).await,
        // Evidence is collected of what should not be, whether it was to be watched or not.
        Watching::No if judgement.finding.outcome == Outcome::Violation => {
            history(engine, table.instance).await
        }
        Watching::No => None,
    };
    match collected {
        Some(Collected { history, complete: true, .. }) => {
            let reports = endings.into_iter().map(|ending| ending.report).collect();
            let record = recorded(engine, drawn, table.number, history, reports);
            judgement.excused = excused(&record).map(|(outcome, accused)| Excused {
                outcome,
                accused: accused.into_iter().map(|it| engine.crowd.principal(table.number, it)).collect(),
            });
            judgement.record = Some(record);
        }
        Some(Collected { complete: false, .. }) => judgement.lost = true,
        None => judgement.lost = wanted,
    }
    if judgement.outcome() != Outcome::Valid {
        judgement.witnessed = Some(Box::new(Witnessed {
            instance: table.instance.to_string(),
            seed: drawn.seed,
            proposals: drawn.cast.parts().map(|(_, part)| part.proposal.clone()).collect(),
            seen,
        }));
    }
    engine.judged(judgement);
}

/// The whole run of an instance, judged.
fn recorded(
    engine: &Engine,
    drawn: &Drawn,
    number: u64,
    history: Vec<Recorded>,
    reports: Vec<Report>,
) -> Box<Record> {
    let scenario = Scenario {
        name: engine.profile.name.clone(),
        about: format!("instance {number} of a load with seed {}", engine.profile.seed),
        expect: None,
        params: Arc::clone(&drawn.params),
        cast: drawn.cast.clone(),
        seed: drawn.seed,
    };
    Box::new(Record::judged(scenario, How::Tasks, history, true, RunCounts::default(), reports))
}

/// What a history shows without the offences of correct processes that exceeded what they may send, and whom it
/// accuses of that; `None` if nobody. Whether they did is known only at the end of the load.
fn excused(record: &Record) -> Option<(Outcome, BTreeSet<ProcessId>)> {
    let cast = &record.scenario.cast;
    let accused = |recorded: &Recorded| match &recorded.event {
        Event::Offence(offence) if offence.kind == OffenceKind::QuotaExceeded => {
            let correct = cast.part(offence.process).is_some_and(|part| part.role == Role::Correct);
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
    let excused = Record::judged(scenario, How::Tasks, history, true, RunCounts::default(), reports);
    Some((excused.verdict.verdict, all))
}

/// How long after the processes the watcher was told the same.
fn watch_lags(
    engine: &Engine,
    table: &Table,
    correct: &[&Ending],
    told: &[(ProcessId, AccessNumber, Instant)],
) {
    let answered: HashMap<ProcessId, &[Instant]> =
        correct.iter().map(|ending| (ending.report.process, ending.told.as_slice())).collect();
    let mut shard = engine.shared.meter.shard(near(table.number));
    for (process, number, watched) in told {
        let place = usize::try_from(number.get() - 1).unwrap_or(usize::MAX);
        if let Some(answered) = answered.get(process).and_then(|told| told.get(place)) {
            let lag = watched.saturating_duration_since(*answered);
            record(&mut shard, Label::own(Measure::WatchLag, Ended::Done), lag);
        }
    }
}
