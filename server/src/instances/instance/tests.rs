//! What an instance does with its steps: in memory, and with a log that delays or refuses them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use prost::Message as _;
use stickycas_model::access::Op;
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, Seed, Time};
use stickycas_proto::attach::EncodedResponse;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;
use stickycas_proto::v1::server_frame::Frame;

use super::super::config::{InstanceConfig, Lifetimes, SharedConfig};
use super::super::lifecycle::Inner;
use super::super::live::Live;
use super::super::outbox::{Outbox, Polled, Receiver};
use super::super::shard::ShardContext;
use super::super::view::WatchPoll;
use super::*;
use crate::auth::Principal;
use crate::commit_log::{
    CommitLog, CommitOutcome, LogIndex, LogState, MemoryLog, OnCommit, Step, Submission,
};
use crate::counting_waker::CountingWaker;
use crate::limits::Limits;

mod full_log;
mod uncommitted;

const READ: Op = Op::Read { start: Position::new(0) };

/// Two processes in one warp with hardly any patience. No timer fires: what is due happens with the next
/// input.
fn instance_with(log: Arc<dyn CommitLog>, patience: Patience) -> Instance {
    instance_within(log, patience, Duration::MAX)
}

/// `lifetime`: idle, and after its end.
fn instance_within(log: Arc<dyn CommitLog>, patience: Patience, lifetime: Duration) -> Instance {
    let spec = ParamsSpec { patience, ..ParamsSpec::new(2, 2, 1) };
    let params = Params::try_new(spec).unwrap();
    let roster = ["p1".to_owned(), "p2".to_owned()];
    let limits = Limits { retention: lifetime, idle_lifetime: lifetime, ..Limits::default() };
    let lifetimes = Lifetimes::of(&limits);
    let shared = Arc::new(SharedConfig::new(Principal::new("creator"), &params, &roster, lifetimes));
    let config = InstanceConfig::new(InstanceId::new(1), 1, None, Seed::default(), shared);
    Instance::new(config, ShardContext::alone(limits, log))
}

fn instance() -> Instance {
    instance_with(Arc::<MemoryLog>::default(), Patience::Finite(Duration::from_nanos(1)))
}

fn live(inner: &Inner) -> &Live {
    match &inner.lifecycle {
        Lifecycle::Live(live) => live,
        Lifecycle::Archived(_) => panic!("it has ended"),
    }
}

fn sink() -> SessionSink {
    SessionSink { outbox: Arc::new(Outbox::new(100)), channel: 0 }
}

fn sent(sink: &SessionSink) -> Vec<Frame> {
    let (mut receiver, mut cx) = (Receiver::default(), TaskContext::from_waker(Waker::noop()));
    match sink.outbox.poll(&mut receiver, 100, usize::MAX, &mut cx) {
        Polled::Frames(EncodedResponse(bytes)) => {
            let message = v1::AttachResponse::decode(&*bytes).unwrap();
            message.frames.into_iter().filter_map(|it| it.frame).collect()
        }
        Polled::Empty => Vec::new(),
        Polled::Overflow => panic!("too many frames"),
    }
}

fn access(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
    Access { process, session, number: AccessNumber::new(number).unwrap(), op, no_wait: false }
}

fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).unwrap()
}

#[test]
fn a_panic_in_a_step_ends_the_instance_and_nothing_else() {
    let instance = instance();
    let (process, watcher) = (ProcessId::FIRST, instance.next_watcher());
    let session = instance.hello(process, 0, &sink(), Instant::now()).unwrap().session;
    std::thread::scope(|scope| {
        let step = || instance.step(&mut instance.lock(), Instant::now(), |_, _| panic!("a bug"));
        scope.spawn(step).join().unwrap_err();
    });
    instance.close_session(process, session);
    instance.remove_watcher(watcher);
    instance.cancel_waiters();
    assert!(!instance.owes_answer(process, session, &sink()));
    assert!(instance.wake_now());
}

#[test]
fn an_answer_due_before_a_hello_goes_to_the_older_session() {
    let instance = instance();
    let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
    let [older, newer] = [sink(), sink()];
    let session = instance.hello(first, 0, &older, Instant::now()).unwrap().session;
    instance.hello(second, 0, &sink(), Instant::now()).unwrap();
    let read = access(first, Some(session), 1, READ);
    assert_eq!(instance.access(read, &older, Instant::now()), Ok(Submitted::New));
    assert!(instance.owes_answer(first, session, &older), "the other process is awaited");
    let due = live(&instance.lock()).machine.deadline().unwrap();
    while instance.now(&instance.lock()) <= due {}

    instance.hello(first, 0, &newer, Instant::now()).unwrap();
    let told = sent(&older);
    assert!(matches!(told[..], [Frame::Welcome(_), Frame::Answer(_), Frame::Replaced(_)]), "{told:?}");
    let welcomed = sent(&newer);
    assert!(matches!(&welcomed[..], [Frame::Welcome(it)] if it.own.as_ref().unwrap().waiting.is_empty()));
    assert!(!instance.owes_answer(first, session, &older), "it was replaced");
}

/// A log in memory that keeps the time of each step.
#[derive(Debug, Default)]
struct TimesLog {
    times: Mutex<Vec<Time>>,
    state: Arc<LogState>,
}

impl CommitLog for TimesLog {
    fn keeps_inputs(&self) -> bool {
        false
    }

    fn submit(&self, step: Step<'_>) -> Submission {
        self.times.lock().unwrap().push(step.at);
        Submission::Committed
    }

    fn on_commit(&self, _: OnCommit) {}

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }
}

#[test]
fn an_input_that_came_before_the_timer_fired_is_not_earlier() {
    let log = Arc::new(TimesLog::default());
    let instance =
        instance_with(Arc::clone(&log) as Arc<dyn CommitLog>, Patience::Finite(Duration::from_nanos(1)));
    let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
    let sink = sink();
    let session = instance.hello(first, 0, &sink, Instant::now()).unwrap().session;
    instance.hello(second, 0, &sink, Instant::now()).unwrap();
    let read = access(first, Some(session), 1, READ);
    instance.access(read, &sink, Instant::now()).unwrap();
    let due = live(&instance.lock()).machine.deadline().unwrap();
    // The next access comes now, and waits for the lock until the timer has fired.
    let came = Instant::now();
    while instance.now(&instance.lock()) <= due {}
    let steps = log.times.lock().unwrap().len();
    instance.wake_now();
    assert_eq!(log.times.lock().unwrap().len(), steps + 1, "the timer has made a step");
    instance.access(access(first, Some(session), 2, READ), &sink, came).unwrap();
    let times = log.times.lock().unwrap().clone();
    assert!(times.len() == steps + 2 && times.is_sorted(), "{times:?}");
}

#[test]
fn viewing_or_closing_an_archived_instance_restores_nothing() {
    let instance = instance();
    let unlocked = || *instance.view(|_, _, _| instance.inner.try_lock().is_ok()).peek().as_ref().unwrap();
    assert!(!unlocked(), "a live instance must not change meanwhile");
    instance.close().into_inner().unwrap();
    assert!(unlocked());
    instance.close().into_inner().unwrap();
    assert!(instance.archived_size().is_some());
}

#[test]
fn a_watcher_leaves_nothing_behind() {
    let instance = instance();
    let watcher = instance.next_watcher();
    for _ in 0..3 {
        let next = instance.poll_events(0, 1, watcher, Waker::noop());
        assert!(matches!(next, WatchPoll::Pending), "{next:?}");
    }
    assert_eq!(live(&instance.lock()).watchers.len(), 1);
    instance.remove_watcher(watcher);
    assert!(live(&instance.lock()).watchers.is_empty());
}

/// A log that commits nothing by itself: as one that waits for a disk, or asks others who owns the instance.
#[derive(Debug, Default)]
struct DelayedLog {
    unresolved: Mutex<VecDeque<UnresolvedStep>>,
    /// Whether the next step commits, with all before it.
    commits_next: AtomicBool,
    state: Arc<LogState>,
}

#[derive(Debug)]
struct UnresolvedStep {
    log_index: LogIndex,
    at: Time,
    events: usize,
}

impl CommitLog for DelayedLog {
    fn keeps_inputs(&self) -> bool {
        true
    }

    fn submit(&self, Step { instance, last, at, events, record, .. }: Step<'_>) -> Submission {
        let mut steps = self.unresolved.lock().unwrap();
        assert_eq!(instance, InstanceId::new(1));
        assert!(record.is_some_and(|record| record.at_nanos == at.as_nanos()));
        if let Some(before) = steps.back() {
            assert!(before.at <= at, "time never goes back");
            assert_eq!(last, before.log_index);
        }
        let log_index = last.next();
        if self.commits_next.swap(false, Ordering::Relaxed) {
            steps.clear();
            return Submission::Committed;
        }
        steps.push_back(UnresolvedStep { log_index, at, events: events.len() });
        Submission::Later(log_index)
    }

    fn on_commit(&self, _: OnCommit) {}

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }
}

impl DelayedLog {
    fn unresolved(&self) -> usize {
        self.unresolved.lock().unwrap().len()
    }

    /// Commits the oldest step.
    fn commit_one(&self, instance: &Instance) {
        let step = self.unresolved.lock().unwrap().pop_front().expect("a step that is not resolved");
        let before = events(instance);
        assert!(!instance.resolve(CommitOutcome::Committed(step.log_index)));
        assert_eq!(events(instance), before + step.events, "the events of the step are shown, and no others");
    }

    fn commit_all(&self, instance: &Instance) {
        while self.unresolved() > 0 {
            self.commit_one(instance);
        }
    }
}

fn delayed() -> (Arc<DelayedLog>, Instance) {
    let log = Arc::new(DelayedLog::default());
    (log.clone(), instance_with(log, Patience::Endless))
}

fn events(instance: &Instance) -> usize {
    match instance.poll_events(0, 1_000, instance.next_watcher(), Waker::noop()) {
        WatchPoll::Events(events) => events.len(),
        WatchPoll::Pending | WatchPoll::End => 0,
        WatchPoll::Gone(gone) => panic!("{gone}"),
        WatchPoll::TooSlow(phase) => panic!("nothing before {phase} is kept"),
    }
}

fn waiter(call: UnaryAccess) -> Waiter {
    match call.answer {
        UnaryAnswer::Waiting(waiter) => waiter,
        UnaryAnswer::Known(known) => panic!("{known:?}"),
    }
}

fn known(call: UnaryAccess) -> Uncommitted<Result<CompletedAccess, RpcRefusal>> {
    match call.answer {
        UnaryAnswer::Waiting(waiter) => panic!("{waiter:?}"),
        UnaryAnswer::Known(known) => known,
    }
}

/// Whether this may be told.
fn is_committed<T>(uncommitted: Uncommitted<T>) -> bool {
    let future = std::pin::pin!(uncommitted.committed());
    future.poll(&mut TaskContext::from_waker(Waker::noop())).is_ready()
}

/// What is told of a resolved step.
fn committed<T>(uncommitted: Uncommitted<T>) -> Result<T, RpcRefusal> {
    let future = std::pin::pin!(uncommitted.committed());
    match future.poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(told) => told,
        Poll::Pending => panic!("it is not resolved"),
    }
}

#[test]
fn nothing_is_told_on_a_session_before_it_is_committed() {
    let (log, instance) = delayed();
    let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
    let [one, other, newer] = [sink(), sink(), sink()];
    let now = Instant::now();
    let session = instance.hello(first, 0, &one, now).unwrap().session;
    let others = instance.hello(second, 0, &other, now).unwrap().session;
    let append = access(first, Some(session), 1, Op::Append(value("a")));
    instance.access(append.clone(), &one, now).unwrap();
    instance.access(access(second, Some(others), 1, READ), &other, now).unwrap();
    // The answer once more; a refusal, which tells the expected number; a decision; a newer session.
    assert_eq!(instance.access(append, &one, now), Ok(Submitted::Repeated));
    instance.access(access(first, Some(session), 9, READ), &one, now).unwrap_err();
    instance.access(access(first, Some(session), 2, READ), &one, now).unwrap();
    assert!(matches!(sent(&one)[..], []) && matches!(sent(&other)[..], []), "nothing is committed");
    assert_eq!(events(&instance), 0);
    assert!(instance.owes_answer(first, session, &one), "a reply is still to come");

    log.commit_one(&instance);
    assert!(matches!(sent(&one)[..], [Frame::Welcome(_)]));
    assert_eq!(events(&instance), 2, "it has joined and has a session");
    for _ in 0..2 {
        log.commit_one(&instance);
    }
    assert!(matches!(sent(&other)[..], [Frame::Welcome(_)]) && matches!(sent(&one)[..], []));
    log.commit_one(&instance);
    // The repeated access has changed nothing: it stands where the step before it does.
    let told = sent(&one);
    assert!(matches!(told[..], [Frame::Answer(_), Frame::Answer(_)]), "{told:?}");
    assert!(matches!(sent(&other)[..], [Frame::Answer(_)]));
    log.commit_one(&instance);
    assert!(matches!(sent(&one)[..], [Frame::Refusal(_)]));
    log.commit_all(&instance);

    instance.decide(first, session, value("a"), &one, now).unwrap();
    instance.hello(first, 0, &newer, now).unwrap();
    instance.decide(second, others, value("a"), &other, now).unwrap();
    for sink in [&one, &other, &newer] {
        assert!(matches!(sent(sink)[..], []));
    }
    log.commit_all(&instance);
    let told = sent(&one);
    let withdrawn = |told: &[Frame]| matches!(told, [Frame::Refusal(it), Frame::Decided(_), Frame::Replaced(_)] if it.access_number == 2);
    assert!(withdrawn(&told), "the read that waited is withdrawn: {told:?}");
    assert!(matches!(sent(&other)[..], [Frame::Decided(_)]));
    assert!(matches!(sent(&newer)[..], [Frame::Welcome(_)]));
    assert!(instance.archived_size().is_some(), "it has finished and all of it is committed");
}

#[test]
fn nothing_is_told_to_a_call_or_view_before_it_is_committed() {
    let (log, instance) = delayed();
    let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
    assert!(!is_committed(instance.start(&mut instance.lock()).unwrap()));
    let mut waiting = waiter(instance.call(access(first, None, 1, Op::Append(value("a")))));
    drop(waiter(instance.call(access(second, None, 1, READ))));
    assert!(waiting.try_recv().is_err(), "the phase was executed, and is not committed");
    assert!(
        !is_committed(known(instance.call(access(first, None, 7, READ)))),
        "a refusal tells what was accepted"
    );
    assert!(!is_committed(instance.call_decide(first, value("a"))));
    assert!(!is_committed(instance.status(Some(first))));
    assert!(!is_committed(instance.state()));
    let snapshot = instance.snapshot();
    let next_index = snapshot.peek().as_ref().unwrap().next_index;
    assert!(!is_committed(snapshot) && events(&instance) == 0);
    assert!(!is_committed(instance.close()));

    let status = instance.status(None);
    log.commit_all(&instance);
    assert!(is_committed(status));
    assert!(matches!(waiting.try_recv(), Ok(Ok(_))));
    assert!(is_committed(instance.state()) && is_committed(instance.snapshot()));
    assert_eq!(events(&instance) as u64, next_index + 1, "of all before the close the snapshot knew");
}

#[test]
fn a_watcher_is_woken_by_the_commit_and_not_by_the_step() {
    let (log, instance) = delayed();
    let woken = Arc::new(CountingWaker::default());
    let waker = Waker::from(woken.clone());
    let poll = || instance.poll_events(0, 9, instance.next_watcher(), &waker);
    assert!(matches!(poll(), WatchPoll::Pending));
    instance.hello(ProcessId::FIRST, 0, &sink(), Instant::now()).unwrap();
    assert_eq!(woken.wake_count(), 0);
    log.commit_all(&instance);
    assert_eq!(woken.wake_count(), 1);
    assert!(matches!(poll(), WatchPoll::Events(_)));
}

#[test]
fn time_stands_still_from_a_phase_until_it_is_committed() {
    let log = Arc::new(DelayedLog::default());
    let instance = instance_with(log.clone(), Patience::Finite(Duration::from_nanos(1)));
    let ([first, second], sink) = ([ProcessId::FIRST, ProcessId::FIRST.next()], sink());
    let session = instance.hello(first, 0, &sink, Instant::now()).unwrap().session;
    instance.hello(second, 0, &sink, Instant::now()).unwrap();
    instance.access(access(first, Some(session), 1, READ), &sink, Instant::now()).unwrap();
    let due = live(&instance.lock()).machine.deadline().expect("the second process is awaited");
    let now = || instance.now(&instance.lock());
    while now() <= due {}
    assert!(!instance.wake_now(), "the patience of the second process ends, though nothing is committed");
    assert_eq!(log.unresolved(), 4, "the timer makes a step of its own, in which the phase is executed");
    let stopped = now();
    while stopped_for(&instance, stopped) < Duration::from_millis(1) {}
    let next_wake = || instance.lock().next_wake(instance.params(), &instance.config.shared.lifetimes);
    assert_eq!((now(), next_wake()), (stopped, None), "it is not woken meanwhile");
    instance.access(access(first, Some(session), 9, READ), &sink, Instant::now()).unwrap_err();
    log.commit_one(&instance);
    assert_eq!(now(), stopped, "what is committed is not the phase");
    log.commit_all(&instance);
    assert!(next_wake().is_some());
    let resumed = now();
    while now() == resumed {}
}

/// For how long the time of the instance would have gone on since it stood still.
fn stopped_for(instance: &Instance, stopped: Time) -> Duration {
    let moment = instance.context().timers.nanos(Instant::now());
    Duration::from_nanos(moment.saturating_sub(instance.lock().moment(stopped)))
}
