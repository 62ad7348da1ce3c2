//! The state that the processes of one instance share, however they speak to the server: the facts known of
//! it, and the end of each process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use stickycas_model::ground_truth::Role;
use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::instance_generator::GeneratedInstance;
use super::super::measure::{OperationOutcome, Party};
use super::super::observations::ProcessObservation;

/// How one process ended.
#[derive(Debug)]
pub(super) struct ProcessEnding {
    /// Until it is judged.
    pub(super) seen: Option<ProcessObservation>,
    pub(super) report: Report,
    pub(super) ended: OperationOutcome,
    /// When it had its decision.
    pub(super) decided: Option<Instant>,
    /// Whether the server has taken its decision: it has left.
    pub(super) left: bool,
    /// When each of its accesses was answered, if the instance is watched.
    pub(super) told: Vec<Instant>,
}

/// Which processes have ended.
#[derive(Debug)]
struct Endings {
    /// Correct processes that have not ended.
    correct: usize,
    /// Processes that have not ended and will by themselves.
    awaited: usize,
    ended: Vec<ProcessEnding>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct InstanceState {
    /// The instance's number in this load.
    pub(super) number: u64,
    pub(super) instance: InstanceId,
    /// The same as text.
    pub(super) id: String,
    pub(super) drawn: GeneratedInstance,
    /// Whether it counts in figures: it did not begin in the warm-up.
    pub(super) measured: bool,
    opened: Instant,
    /// Milliseconds from its opening to the last thing that happened.
    progress: AtomicU64,
    endings: Mutex<Endings>,
    changed: Notify,
    /// Whether the processes that have not ended are to stop.
    over: CancellationToken,
}

impl InstanceState {
    pub(super) fn new(number: u64, instance: InstanceId, drawn: GeneratedInstance, measured: bool) -> Self {
        let (correct, awaited) = (drawn.truth.correct().count(), drawn.truth.ending().count());
        let ended = Vec::with_capacity(awaited);
        Self {
            number,
            instance,
            id: instance.to_string(),
            measured,
            opened: Instant::now(),
            progress: AtomicU64::new(0),
            endings: Mutex::new(Endings { correct, awaited, ended }),
            changed: Notify::new(),
            over: CancellationToken::new(),
            drawn,
        }
    }

    pub(super) fn party(&self, process: ProcessId) -> Party {
        match self.drawn.truth.assignment(process).map(|assignment| &assignment.role) {
            Some(Role::Correct) => Party::Correct,
            _ => Party::Byzantine,
        }
    }

    /// Something happened.
    pub(super) fn progress(&self, now: Instant) {
        let millis = u64::try_from(now.duration_since(self.opened).as_millis()).unwrap_or(u64::MAX);
        self.progress.store(millis, Ordering::Relaxed);
    }

    /// For how long nothing has happened.
    pub(super) fn idle(&self) -> Duration {
        self.opened.elapsed().saturating_sub(Duration::from_millis(self.progress.load(Ordering::Relaxed)))
    }

    /// A process has ended.
    pub(super) fn end(&self, ending: ProcessEnding) {
        let process = ending.report.process;
        let ends =
            self.drawn.truth.assignment(process).is_some_and(stickycas_model::ground_truth::Assignment::ends);
        let correct = self.party(process) == Party::Correct;
        let mut endings = self.endings();
        endings.ended.push(ending);
        endings.correct -= usize::from(correct);
        endings.awaited -= usize::from(ends);
        if (correct && endings.correct == 0) || (ends && endings.awaited == 0) {
            self.changed.notify_one();
        }
    }

    fn endings(&self) -> MutexGuard<'_, Endings> {
        self.endings.lock().expect("nobody panics while holding it")
    }

    /// Returns when all correct processes, or all that end by themselves, may have ended.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether all correct processes have ended.
    pub(super) fn correct_ended(&self) -> bool {
        self.endings().correct == 0
    }

    /// Whether all processes have ended that end by themselves.
    pub(super) fn all_ended(&self) -> bool {
        self.endings().awaited == 0
    }

    /// Stops all processes. Returns how those ended that have ended until now.
    pub(super) fn clear(&self) -> Vec<ProcessEnding> {
        self.over.cancel();
        std::mem::take(&mut self.endings().ended)
    }

    /// Returns when all processes are to stop.
    pub(super) async fn over(&self) {
        // It fails only when the state is gone: the instance is then over as well.
        self.over.cancelled().await;
    }

    /// Whether all processes are to stop.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }
}
