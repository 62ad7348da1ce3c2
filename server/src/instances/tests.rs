use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Barrier, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;
use std::time::Duration;

use stickycas_model::params::ParamsSpec;

use super::capacity::UNTIL_AN_END;
use super::*;
use crate::commit_log::{CommitOutcome, LogIndex, LogState, MemoryLog, OnCommit, Step, Submission};

/// A log that commits nothing by itself, and resolves as a log does: through the function that it was given.
#[derive(Default)]
struct DelayedLog {
    unresolved: Mutex<VecDeque<(InstanceId, LogIndex)>>,
    resolve: Mutex<Option<OnCommit>>,
    state: Arc<LogState>,
}

impl std::fmt::Debug for DelayedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DelayedLog").field("unresolved", &self.unresolved).finish_non_exhaustive()
    }
}

impl CommitLog for DelayedLog {
    fn keeps_inputs(&self) -> bool {
        true
    }

    fn submit(&self, Step { instance, last, .. }: Step<'_>) -> Submission {
        let log_index = last.next();
        self.unresolved.lock().unwrap().push_back((instance, log_index));
        Submission::Later(log_index)
    }

    fn on_commit(&self, resolve: OnCommit) {
        *self.resolve.lock().unwrap() = Some(resolve);
    }

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }
}

impl DelayedLog {
    fn resolve_all(&self, with: impl Fn(LogIndex) -> CommitOutcome) {
        loop {
            let Some((instance, log_index)) = self.unresolved.lock().unwrap().pop_front() else { return };
            self.resolve.lock().unwrap().as_ref().expect("the log is in use")(instance, with(log_index));
        }
    }
}

fn memory() -> Arc<Instances> {
    let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
    Instances::new(Limits::default(), &log)
}

fn delayed() -> (Arc<DelayedLog>, Arc<Instances>) {
    let log = Arc::new(DelayedLog::default());
    let shared: Arc<dyn CommitLog> = log.clone();
    (log, Instances::new(Limits::default(), &shared))
}

fn create_spec(name: &str, processes: u32, first: &str) -> CreateSpec {
    let roster = (2..=processes).map(|number| format!("p{number}"));
    CreateSpec {
        name: InstanceName::optional(name).unwrap(),
        params: Params::try_new(ParamsSpec::new(processes, 1, 1)).unwrap(),
        seed_given: false,
        roster: [first.to_owned()].into_iter().chain(roster).collect(),
    }
}

/// What a future comes to that has nothing to wait for; `None` if it has.
fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// What a Create comes to before its commit.
fn create(instances: &Instances, spec: CreateSpec) -> Result<(Arc<Instance>, bool), RpcRefusal> {
    poll(instances.create(&Principal::new("creator"), spec))
        .expect("it waits for nothing")
        .map(Uncommitted::into_inner)
}

#[test]
fn a_refused_create_is_told_when_ended_instances_are_let_go() {
    let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
    let limits = Limits {
        retention: Duration::from_secs(60 * 60),
        instances_per_creator: 2,
        live_instances_per_creator: 1,
        ..Limits::default()
    };
    let instances = Instances::new(limits.clone(), &log);
    let refused = |name| create(&instances, create_spec(name, 2, "p1")).unwrap_err();
    let (first, _) = create(&instances, create_spec("first", 2, "p1")).unwrap();
    // When a live instance ends nobody knows.
    assert_eq!(refused("second").retry_after, Some(limits.retry_after));
    poll(first.close().committed()).unwrap().unwrap().unwrap();
    let (second, _) = create(&instances, create_spec("second", 2, "p1")).unwrap();
    poll(second.close().committed()).unwrap().unwrap().unwrap();
    let third = refused("third");
    let wait = third.retry_after.unwrap();
    let soonest = limits.retention - Duration::from_secs(30 * 60);
    assert!(
        third.reason == RefusalReason::TooManyInstances && wait > soonest && wait <= limits.retention,
        "{wait:?}"
    );
}

#[test]
fn who_finds_no_bytes_is_told_more_than_who_finds_no_place() {
    let spec = |name| create_spec(name, 2, "p1");
    let retention = Duration::from_secs(60 * 60);
    let usual = Limits { retention, ..Limits::default() };
    let bytes = usual.worst_case(&spec("").params);
    let log_bytes = usual.log_case(&spec("").params, 64);
    // Of the server's memory, of its log, and of one creator's part of the log.
    let limits = [
        Limits { instance_bytes: bytes + 1, ..usual.clone() },
        Limits { log_bytes, ..usual.clone() },
        Limits { log_bytes_per_creator: log_bytes, ..usual },
    ];
    for limits in limits {
        let log = Arc::new(DelayedLog::default());
        let shared: Arc<dyn CommitLog> = log.clone();
        let instances = Instances::new(limits, &shared);
        let wait = || {
            let refused = create(&instances, spec("second")).unwrap_err();
            assert!(refused.message.contains("bytes"), "{refused:?}");
            refused.retry_after.unwrap()
        };
        let (first, _) = create(&instances, spec("first")).unwrap();
        log.resolve_all(CommitOutcome::Committed);
        // When a live instance ends nobody knows.
        assert_eq!(wait(), UNTIL_AN_END);
        let closed = first.close();
        log.resolve_all(CommitOutcome::Committed);
        assert!(poll(closed.committed()).is_some());
        let wait = wait();
        assert!(wait > retention - Duration::from_secs(30 * 60) && wait <= retention, "{wait:?}");
    }
}

fn find(instances: &Instances, name: &str) -> Result<Arc<Instance>, RpcRefusal> {
    let name = InstanceRef::Name(InstanceName::optional(name).unwrap().unwrap());
    poll(instances.find(&name)).expect("it waits for nothing")
}

#[test]
fn of_concurrent_creates_of_a_name_one_creates_the_others_find() {
    const THREADS: usize = 4;
    let instances = memory();
    for round in 0..20 {
        let (name, start) = (format!("round-{round}"), Barrier::new(THREADS));
        let create = || {
            // It takes a while to build, so that the others are at it too.
            let spec = create_spec(&name, 4_096, "p1");
            start.wait();
            create(&instances, spec).unwrap()
        };
        let created: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(create)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(created.iter().filter(|(_, new)| *new).count(), 1);
        assert!(created.iter().all(|(it, _)| Arc::ptr_eq(it, &created[0].0)));
        assert_eq!(instances.load().live(), round + 1, "the others have left nothing behind");
    }
}

#[test]
fn only_a_closed_instance_gives_up_its_name() {
    let instances = memory();
    let (first, _) = create(&instances, create_spec("name", 3, "p1")).unwrap();
    let refused = create(&instances, create_spec("name", 3, "another")).unwrap_err();
    assert_eq!(refused.reason, RefusalReason::NameTaken);
    first.close().into_inner().unwrap();
    let (second, new) = create(&instances, create_spec("name", 3, "another")).unwrap();
    assert!(new && Arc::ptr_eq(&find(&instances, "name").unwrap(), &second));
    // The name stays with the newer instance when the older one is removed.
    instances.registry_mut().remove(first.config().id, 0);
    assert!(Arc::ptr_eq(&find(&instances, "name").unwrap(), &second));
}

#[test]
fn a_creation_is_told_when_the_log_has_resolved_it() {
    let (log, instances) = delayed();
    let creator = Principal::new("creator");
    let create = || poll(instances.create(&creator, create_spec("name", 3, "p1"))).unwrap().unwrap();
    let mut creating = pin!(create().committed());
    let mut finding = pin!(create().committed());
    assert!(poll(&mut creating).is_none() && poll(&mut finding).is_none());
    log.resolve_all(CommitOutcome::Committed);
    let (created, new) = poll(creating).unwrap().unwrap();
    let (found, newer) = poll(finding).unwrap().unwrap();
    assert!(Arc::ptr_eq(&created, &found) && new && !newer);
}

#[test]
fn a_name_is_taken_when_the_creation_that_took_it_is_committed() {
    let (log, instances) = delayed();
    let creator = Principal::new("creator");
    let _first = poll(instances.create(&creator, create_spec("name", 3, "p1"))).unwrap().unwrap();
    let mut differs = pin!(instances.create(&creator, create_spec("name", 3, "another")));
    assert!(poll(&mut differs).is_none(), "the first creation may still be refused");
    let why = || RpcRefusal::new(RefusalReason::Draining, "another server has the name");
    log.resolve_all(|_| CommitOutcome::Refused(Box::new(why())));
    assert_eq!(poll(differs).unwrap().unwrap_err(), why());
}

/// A log that has failed.
#[derive(Debug)]
struct FailedLog {
    failure: RpcRefusal,
    state: Arc<LogState>,
}

impl CommitLog for FailedLog {
    fn keeps_inputs(&self) -> bool {
        true
    }

    fn submit(&self, _: Step<'_>) -> Submission {
        panic!("a log that has failed takes nothing")
    }

    fn on_commit(&self, _: OnCommit) {}

    fn failure(&self) -> Option<&RpcRefusal> {
        Some(&self.failure)
    }

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }
}

#[test]
fn nothing_is_created_when_the_log_has_failed() {
    let failure = RpcRefusal::new(RefusalReason::LogFailed, "the disk is full");
    let log: Arc<dyn CommitLog> = Arc::new(FailedLog { failure: failure.clone(), state: Arc::default() });
    log.state().fail(&failure);
    let instances = Instances::new(Limits::default(), &log);
    let refused = create(&instances, create_spec("name", 3, "p1")).unwrap_err();
    assert_eq!(refused, failure);
    assert!(find(&instances, "name").is_err());
}

#[test]
fn a_name_is_free_when_the_close_is_committed() {
    let (log, instances) = delayed();
    let (first, _) = create(&instances, create_spec("name", 3, "p1")).unwrap();
    log.resolve_all(CommitOutcome::Committed);
    drop(first.close());
    let creator = Principal::new("creator");
    let mut second = pin!(instances.create(&creator, create_spec("name", 3, "another")));
    assert!(poll(&mut second).is_none(), "the close may still be refused");
    assert!(Arc::ptr_eq(&find(&instances, "name").unwrap(), &first));
    log.resolve_all(CommitOutcome::Committed);
    let (second, new) = poll(second).expect("the close is committed").unwrap().into_inner();
    assert!(new && Arc::ptr_eq(&find(&instances, "name").unwrap(), &second));
}

#[test]
fn a_refused_instance_is_removed_and_its_name_is_free() {
    let (log, instances) = delayed();
    let (first, _) = create(&instances, create_spec("name", 3, "p1")).unwrap();
    log.resolve_all(CommitOutcome::Committed);
    drop(first.close());
    let creator = Principal::new("creator");
    let mut second = pin!(instances.create(&creator, create_spec("name", 3, "another")));
    assert!(poll(&mut second).is_none());
    let why = || RpcRefusal::new(RefusalReason::Draining, "another server owns the instance");
    log.resolve_all(|_| CommitOutcome::Refused(Box::new(why())));
    assert_eq!(instances.get(first.config().id).unwrap_err().reason, RefusalReason::InstanceUnknown);
    assert_eq!(instances.load().live(), 0);
    let (_, new) = poll(second).expect("the name is free").unwrap().into_inner();
    assert!(new);
}
