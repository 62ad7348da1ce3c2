//! The course of a load: instances begin and end; those that are left at last are cut off.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};
use stickycas_harness::run::ServerHandle;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client_pool::ClientPool;
use super::pacer::Pacer;
use super::{Engine, Shared, instance, until};
use crate::figures::{Counts, Figures};
use crate::measure::{Messages, Meter, OperationOutcome};
use crate::profile::{Pacing, Profile};
use crate::recorder::{Recorder, Starts};
use crate::server::{Observer, ServerSide};
use crate::verdicts::{Evidence, VerdictCounts};

/// Histories followed at a time: within what the server allows one principal.
const WATCHERS: usize = 48;
/// How long what is cut off may take to close what it has open.
const LAST_ACTS: Duration = Duration::from_secs(3);
/// How often progress is recorded.
const SECOND: Duration = Duration::from_secs(1);

/// The outcome of a load.
#[derive(Debug)]
pub struct LoadOutcome {
    /// Everything that was measured.
    pub recorder: Recorder,
    /// The same as numbers.
    pub figures: Figures,
    /// The verdicts on the instances.
    pub judged: VerdictCounts,
    /// Of each way to be refused or to fail, the first message.
    pub messages: Messages,
    /// Some of those that were not valid.
    pub evidence: Vec<Evidence>,
    /// The server's side of the load; `None` if the server does not tell.
    pub server: Option<ServerSide>,
    /// Whether an interrupt or the hard stop ended it before its time.
    pub cut_short: Option<CutShort>,
}

/// The cause of an early end of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutShort {
    /// An interrupt.
    Interrupted,
    /// The profile's `hard_stop`.
    HardStop,
}

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Interrupted => "interrupted",
            Self::HardStop => "ended by its hard stop",
        })
    }
}

/// The progress of a load.
#[derive(Debug)]
pub struct LoadProgress<'a> {
    /// Everything until now.
    pub recorder: &'a Recorder,
    /// The verdicts until now.
    pub judged: &'a VerdictCounts,
    /// The phase of the last answer that came.
    pub phase: u64,
}

/// Puts the load of a profile on a server, until its end or until `stop` resolves. Once a second `look` is
/// shown how far it is.
///
/// # Errors
/// If not all principals can connect, or no instance can be created whatever is tried. Whatever else happens
/// is a result.
pub async fn run(
    handle: &ServerHandle,
    profile: &Profile,
    stop: impl Future<Output = ()>,
    look: impl FnMut(&LoadProgress<'_>),
) -> anyhow::Result<LoadOutcome> {
    run_at(handle, profile, None, stop, look).await
}

/// The same, from this moment on, until which everybody has connected.
///
/// # Errors
/// The same; and if that moment has passed, or `stop` resolves before it.
pub async fn run_at(
    handle: &ServerHandle,
    profile: &Profile,
    begin: Option<SystemTime>,
    stop: impl Future<Output = ()>,
    mut look: impl FnMut(&LoadProgress<'_>),
) -> anyhow::Result<LoadOutcome> {
    let shards = std::thread::available_parallelism().map_or(1, usize::from);
    let shared = Arc::new(Shared { meter: Meter::new(shards), stall: *profile.load.stall });
    let client_pool = ClientPool::gather(handle, profile, &shared).await?;
    let observer = Observer::begin(handle.client().clone()).await;
    let mut stop = std::pin::pin!(stop);
    if let Some(begin) = begin {
        wait_until(begin, &mut stop).await?;
    }
    let engine = Arc::new(Engine {
        profile: profile.clone(),
        shared: Arc::clone(&shared),
        client: handle.client().clone(),
        client_pool,
        watchers: Arc::new(Semaphore::new(WATCHERS)),
        start: Instant::now(),
        starts: Mutex::default(),
        tally: Mutex::default(),
        cut: CancellationToken::new(),
        has_created: AtomicBool::new(false),
        impossible: OnceLock::new(),
        is_impossible: CancellationToken::new(),
    });
    let mut recorder = Recorder::new(SystemTime::now());
    let meter = &shared.meter;
    let (seconds, cut_short) = course(&engine, stop, |in_flight| {
        recorder.second(engine.start.elapsed(), &meter.take(), *engine.starts(), in_flight as u64);
        let judged = &engine.tally().judged;
        look(&LoadProgress { recorder: &recorder, judged, phase: meter.last_phase() });
    })
    .await;
    if let Some(reason) = engine.impossible.get() {
        return Err(impossible(*reason, &meter.messages(), handle.client().principal()));
    }
    let Starts { planned, late, dropped } = *engine.starts();
    let counts = Counts { planned, late, dropped, ..Counts::default() };
    let figures = Figures::of(&recorder.histograms, counts, seconds, meter.counted());
    let (judged, evidence) = std::mem::take(&mut *engine.tally()).settle(&meter.over_quota());
    let (recorder, messages) = (recorder.finished(), meter.messages());
    let server = observer.end().await;
    Ok(LoadOutcome { recorder, figures, judged, messages, evidence, server, cut_short })
}

/// Waits until this moment by the clock on the wall, which may be set meanwhile.
async fn wait_until(begin: SystemTime, stop: &mut (impl Future<Output = ()> + Unpin)) -> anyhow::Result<()> {
    let left = || begin.duration_since(SystemTime::now()).ok().filter(|left| !left.is_zero());
    if left().is_none() {
        let when = humantime::format_rfc3339_millis(begin);
        bail!("everybody was connected only after {when}, when it was to begin: give a later time");
    }
    while let Some(left) = left() {
        tokio::select! {
            () = sleep(left.min(SECOND)) => {}
            () = &mut *stop => bail!("interrupted before it began"),
        }
    }
    Ok(())
}

/// The error of a load of which no instance can be created, with the cure.
fn impossible(reason: RefusalReason, messages: &Messages, coordinator: &str) -> anyhow::Error {
    let said = messages.get(&OperationOutcome::Refused(reason)).map_or("", String::as_str);
    let cure = match reason {
        RefusalReason::NotCoordinator => format!(
            "start the server with --coordinator {coordinator}, or give a principal that may create instances as \
             --coordinator"
        ),
        RefusalReason::NoIdentity => "give --credentials DIR of principals that the server knows".to_owned(),
        _ => "change [instance] of the profile".to_owned(),
    };
    anyhow!("no instance can be created: {}: {said}: {cure}", reason.name())
}

/// Instances begin until there are enough, and end within the time for that. Returns for how many seconds
/// they counted in rates, and what ended it early. `tick` is told once a second how many are under way.
async fn course(
    engine: &Arc<Engine>,
    stop: impl Future<Output = ()>,
    mut tick: impl FnMut(usize),
) -> (f64, Option<CutShort>) {
    let (profile, meter) = (&engine.profile, &engine.shared.meter);
    let warm = engine.start + profile.warm_up;
    let hard_stop = profile.load.hard_stop.map(|after| engine.start + *after);
    let mut early_end = std::pin::pin!(async {
        tokio::select! {
            () = stop => CutShort::Interrupted,
            () = until(hard_stop) => CutShort::HardStop,
            // An error then, and no result.
            () = engine.is_impossible.cancelled() => CutShort::HardStop,
        }
    });
    let mut ticks = interval_at(engine.start + SECOND, SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let tasks = TaskTracker::new();
    let mut starts = StartSource::new(engine);
    let mut number = 0;
    // From when starts count in rates, and since when no more begin.
    let (mut counts_from, mut begun) = (None, None);
    let cut_short = loop {
        tokio::select! {
            biased;
            () = tasks.wait(), if begun.is_some() => break None,
            end = &mut early_end => break Some(end),
            () = until(begun.map(|begun: Instant| begun + *profile.load.drain)) => break None,
            () = sleep_until(warm), if counts_from.is_none() && begun.is_none() => {
                meter.count(true);
                counts_from = Some(Instant::now());
            }
            _ = ticks.tick() => tick(tasks.len()),
            next = starts.next(number), if begun.is_none() => {
                match next {
                    Next::Start(planned, permit) => {
                        let engine = Arc::clone(engine);
                        tasks.spawn(async move {
                            instance::run(&engine, number, planned).await;
                            drop(permit);
                        });
                    }
                    Next::NoRoom(planned) => engine.starts().dropped += u64::from(engine.is_measured(planned)),
                    Next::Enough => {
                        meter.count(false);
                        tasks.close();
                        begun = Some(Instant::now());
                    }
                }
                number += 1;
            }
        }
    };
    meter.count(false);
    let begun = begun.unwrap_or_else(Instant::now);
    engine.cut.cancel();
    tasks.close();
    // Those that are cut off record so; a task that takes too long for that is not waited for.
    let _ = timeout(LAST_ACTS, tasks.wait()).await;
    tick(tasks.len());
    (counts_from.map_or(0.0, |from| (begun - from).as_secs_f64()), cut_short)
}

/// The next event in the course of a load.
enum Next {
    /// This instance begins.
    Start(Instant, OwnedSemaphorePermit),
    /// One would have begun, and there is no room for it.
    NoRoom(Instant),
    /// No more begin.
    Enough,
}

/// Which instance begins when.
struct StartSource {
    /// A permit for each instance that may be under way.
    room: Arc<Semaphore>,
    most: u64,
    until: Option<Instant>,
    /// Of an open loop.
    pacer: Option<Pacer>,
}

impl StartSource {
    fn new(engine: &Engine) -> Self {
        let profile = &engine.profile;
        let room = match &profile.pacing {
            Pacing::Closed { in_flight } => *in_flight,
            Pacing::Open(open) => open.max_in_flight,
        };
        Self {
            room: Arc::new(Semaphore::new(room as usize)),
            most: profile.load.instances.unwrap_or(u64::MAX),
            until: profile.duration.map(|duration| engine.start + duration),
            pacer: profile.arrivals().map(|arrivals| Pacer::start(arrivals, engine.start)),
        }
    }

    /// The start of the instance with this number. May be dropped while it waits.
    async fn next(&mut self, number: u64) -> Next {
        if number >= self.most {
            return Next::Enough;
        }
        if let Some(pacer) = &mut self.pacer {
            let Some(planned) = pacer.next().await else { return Next::Enough };
            return match Arc::clone(&self.room).try_acquire_owned() {
                Ok(permit) => Next::Start(planned, permit),
                Err(_) => Next::NoRoom(planned),
            };
        }
        let permit = Arc::clone(&self.room).acquire_owned();
        let permit = match self.until {
            Some(until) => timeout_at(until, permit).await,
            None => Ok(permit.await),
        };
        match permit {
            Ok(Ok(permit)) if self.until.is_none_or(|until| Instant::now() < until) => {
                Next::Start(Instant::now(), permit)
            }
            _ => Next::Enough,
        }
    }
}
