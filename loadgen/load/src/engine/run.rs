//! The course of a load: instances begin and end; those that are left at last are cut off.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use stickycas_harness::run::ServerHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::client_pool::ClientPool;
use super::instance;
use super::pacer::Pacer;
use super::state::Engine;
use super::until;
use crate::figures::{Counts, Figures};
use crate::measure::{Messages, Meter};
use crate::profile::{Pacing, Profile};
use crate::recorder::{Recorder, Starts};
use crate::server::{Observer, ServerSide};
use crate::verdicts::{Evidence, VerdictCounts};

/// Histories followed at a time: within what the server allows one principal.
const WATCHERS: usize = 48;
/// How long what is cut off may take to close what it has open.
const LAST_ACTS: Duration = Duration::from_secs(3);

/// An instance that is under way.
struct InFlightGuard {
    engine: Arc<Engine>,
    _room: OwnedSemaphorePermit,
}

impl InFlightGuard {
    fn new(engine: Arc<Engine>, room: OwnedSemaphorePermit) -> Self {
        engine.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { engine, _room: room }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.engine.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The outcome of a load.
#[derive(Debug)]
pub struct LoadOutcome {
    /// Everything that was measured.
    pub recorder: Recorder,
    /// Starts; how instances ended is in the histograms.
    pub counts: Counts,
    /// Seconds between warm-up and drain, and the instances and accesses that ended in them.
    pub window: (f64, (u64, u64)),
    /// The verdicts on the instances.
    pub judged: VerdictCounts,
    /// Of each way to be refused or to fail, the first message.
    pub messages: Messages,
    /// Some of those that were not valid.
    pub evidence: Vec<Evidence>,
    /// The server's side of the load; `None` if the server does not tell.
    pub server: Option<ServerSide>,
    /// When it began.
    pub began: SystemTime,
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
    /// The time that it takes in all; `None` if that depends on the number of instances.
    pub whole: Option<Duration>,
}

/// Puts the load of a profile on a server, until its end or until `stop` resolves. Once a second `look` is
/// shown how far it is.
///
/// # Errors
/// If not all principals can connect. Whatever happens afterwards is a result.
pub async fn run(
    handle: &ServerHandle,
    profile: &Profile,
    stop: impl Future<Output = ()>,
    mut look: impl FnMut(&LoadProgress<'_>),
) -> anyhow::Result<LoadOutcome> {
    let shards = std::thread::available_parallelism().map_or(1, usize::from);
    let shared = Arc::new(Shared { meter: Meter::new(shards), stall: *profile.load.stall });
    let client_pool = ClientPool::gather(handle, profile, &shared).await?;
    let most = match &profile.pacing {
        Pacing::Closed { in_flight } => *in_flight,
        Pacing::Open(open) => open.max_in_flight,
    };
    let engine = Arc::new(Engine {
        profile: profile.clone(),
        shared,
        client: handle.client().clone(),
        client_pool,
        watchers: Arc::new(Semaphore::new(WATCHERS)),
        start: Instant::now(),
        planned: AtomicU64::new(0),
        late: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        tally: Mutex::default(),
        cut: CancellationToken::new(),
        room: Arc::new(Semaphore::new(most as usize)),
        in_flight: AtomicU64::new(0),
    });
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let recorder = Recorder::new(SystemTime::now());
    let observer = Observer::begin(handle.client().clone()).await;
    let mut load_run = LoadRun { engine, most, recorder, ticks, look: &mut look };
    let loaded = load_run.run(stop).await?;
    Ok(LoadOutcome { server: observer.end().await, ..loaded })
}

/// The course of a load.
struct LoadRun<'a, L: FnMut(&LoadProgress<'_>)> {
    engine: Arc<Engine>,
    /// Permits there are in all.
    most: u32,
    recorder: Recorder,
    ticks: Interval,
    look: &'a mut L,
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

/// The causes of an early end of a load; the first one counts.
struct EarlyEnd<S> {
    stop: Pin<Box<S>>,
    hard_stop: Option<Instant>,
}

impl<S: Future<Output = ()>> EarlyEnd<S> {
    /// Resolves when one of them comes. May be dropped while it waits.
    async fn come(&mut self) -> CutShort {
        tokio::select! {
            () = &mut self.stop => CutShort::Interrupted,
            () = until(self.hard_stop) => CutShort::HardStop,
        }
    }
}

impl<L: FnMut(&LoadProgress<'_>)> LoadRun<'_, L> {
    async fn run(&mut self, stop: impl Future<Output = ()>) -> anyhow::Result<LoadOutcome> {
        let hard_stop = self.engine.profile.load.hard_stop.map(|after| self.engine.start + *after);
        let mut ends = EarlyEnd { stop: Box::pin(stop), hard_stop };
        // The first tick of an interval comes at once.
        self.ticks.tick().await;
        let (counted, mut cut_short) = self.begin(&mut ends).await;
        if cut_short.is_none() {
            cut_short = self.drain(&mut ends).await;
        }
        self.engine.cut.cancel();
        // Those that are cut off record so; a task that takes too long for that is not waited for.
        let everybody = self.engine.room.acquire_many(self.most);
        let _ = timeout_at(Instant::now() + LAST_ACTS, everybody).await;
        self.tick();
        Ok(self.loaded(counted, cut_short))
    }

    /// Instances begin, until there are enough. For how long they counted in rates, and what ended it early.
    async fn begin(&mut self, ends: &mut EarlyEnd<impl Future<Output = ()>>) -> (Duration, Option<CutShort>) {
        let warm = self.engine.start + self.engine.profile.warm_up;
        let mut counts_from = None;
        let mut starting = self.starting();
        let mut number = 0;
        let cut_short = loop {
            tokio::select! {
                biased;
                end = ends.come() => break Some(end),
                () = until(counts_from.is_none().then_some(warm)) => {
                    self.engine.shared.meter.count(true);
                    counts_from = Some(Instant::now());
                }
                _ = self.ticks.tick() => self.tick(),
                next = starting.next(number) => {
                    match next {
                        Next::Start(planned, permit) => {
                            let under_way = InFlightGuard::new(Arc::clone(&self.engine), permit);
                            tokio::spawn(async move {
                                instance::run(&under_way.engine, number, planned).await;
                            });
                        }
                        Next::NoRoom(planned) => {
                            let measured = self.engine.is_measured(planned);
                            self.engine.dropped.fetch_add(u64::from(measured), Ordering::Relaxed);
                        }
                        Next::Enough => break None,
                    }
                    number += 1;
                }
            }
        };
        self.engine.shared.meter.count(false);
        (counts_from.map_or(Duration::ZERO, |from: Instant| from.elapsed()), cut_short)
    }

    /// Waits for the instances under way to end, within the time for them. Returns the cause of an early end.
    async fn drain(&mut self, ends: &mut EarlyEnd<impl Future<Output = ()>>) -> Option<CutShort> {
        let engine = Arc::clone(&self.engine);
        let mut everybody = std::pin::pin!(engine.room.acquire_many(self.most));
        let drained = Instant::now() + *engine.profile.load.drain;
        loop {
            tokio::select! {
                biased;
                _ = &mut everybody => return None,
                end = ends.come() => return Some(end),
                () = sleep_until(drained) => return None,
                _ = self.ticks.tick() => self.tick(),
            }
        }
    }

    fn starting(&self) -> StartSource {
        let load = &self.engine.profile.load;
        StartSource {
            room: Arc::clone(&self.engine.room),
            most: load.instances.unwrap_or(u64::MAX),
            until: self.engine.profile.duration.map(|duration| self.engine.start + duration),
            pacer: self.engine.profile.arrivals().map(|arrivals| Pacer::start(arrivals, self.engine.start)),
        }
    }

    fn tick(&mut self) {
        let engine = &self.engine;
        let in_flight = engine.in_flight.load(Ordering::Relaxed);
        let taken = engine.shared.meter.take();
        self.recorder.second(engine.start.elapsed(), &taken, engine.starts(), in_flight);
        let tally = engine.tally.lock().expect("nobody panics while holding it");
        (self.look)(&LoadProgress {
            recorder: &self.recorder,
            judged: &tally.judged,
            phase: engine.shared.meter.last_phase(),
            whole: engine.profile.duration,
        });
    }

    fn loaded(&mut self, counted: Duration, cut_short: Option<CutShort>) -> LoadOutcome {
        let Starts { planned, late, dropped } = self.engine.starts();
        let began = self.recorder.began();
        let tally = std::mem::take(&mut *self.engine.tally.lock().expect("nobody panics while holding it"));
        let (judged, evidence) = tally.settle(&self.engine.shared.meter.over_quota());
        LoadOutcome {
            recorder: std::mem::replace(&mut self.recorder, Recorder::new(began)).finished(),
            counts: Counts { planned, late, dropped, ..Counts::default() },
            window: (counted.as_secs_f64(), self.engine.shared.meter.counted()),
            judged,
            messages: self.engine.shared.meter.messages(),
            evidence,
            server: None,
            began,
            cut_short,
        }
    }
}

/// Which instance begins when.
struct StartSource {
    room: Arc<Semaphore>,
    most: u64,
    until: Option<Instant>,
    /// Of an open loop.
    pacer: Option<Pacer>,
}

impl StartSource {
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

impl LoadOutcome {
    /// The measurements, as numbers.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (seconds, counted) = self.window;
        Figures::of(&self.recorder.histograms, self.counts.clone(), seconds, counted)
    }
}
