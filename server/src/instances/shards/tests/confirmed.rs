//! What is told without a transaction waits until the ownership of the shard is confirmed.

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::*;
use crate::gate::{Lost, Ownership};

/// A log that other servers share: it commits at once, and confirms when the test says so.
#[derive(Debug, Default)]
struct SharedLog {
    state: Arc<LogState>,
    asked: Mutex<Vec<Arc<Asked>>>,
}

/// What one who has asked is told.
#[derive(Debug, Default)]
struct Asked {
    outcome: OnceLock<Result<(), RpcRefusal>>,
    told: Arc<Notify>,
}

impl Ownership for Asked {
    fn ask(&self) -> u64 {
        1
    }

    fn outcome(&self, _: u64) -> Option<Result<(), RpcRefusal>> {
        self.outcome.get().cloned()
    }

    fn read_ended(&self) -> OwnedNotified {
        self.told.clone().notified_owned()
    }

    fn on_lost(&self, _: Lost) {}
}

impl CommitLog for SharedLog {
    fn keeps_inputs(&self) -> bool {
        true
    }

    fn submit(&self, _: Step<'_>) -> Submission {
        Submission::Committed
    }

    fn on_commit(&self, _: OnCommit) {}

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }

    fn confirm(&self) -> Option<Confirmation> {
        let asked = Arc::<Asked>::default();
        self.asked.lock().unwrap().push(asked.clone());
        let ownership: Arc<dyn Ownership> = asked;
        Some(confirm(&ownership))
    }
}

impl SharedLog {
    /// Answers all that have asked; returns how many have.
    fn tell(&self, outcome: &Result<(), RpcRefusal>) -> usize {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let count = asked.len();
        for one in asked {
            one.outcome.set(outcome.clone()).unwrap();
            one.told.notify_waiters();
        }
        count
    }
}

fn fixture() -> (Arc<SharedLog>, Arc<Instances>) {
    let log = Arc::new(SharedLog::default());
    let shared: Arc<dyn CommitLog> = log.clone();
    let instances = Instances::new(Limits::default(), &shared);
    (log, instances)
}

async fn create(instances: &Instances, name: &str) -> (Arc<Instance>, bool) {
    let created = instances.create(&Principal::new("creator"), spec(name)).await;
    created.unwrap().committed().await.unwrap()
}

fn is_pending(future: impl Future) -> bool {
    pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())).is_pending()
}

/// The future waits until the log has confirmed, and comes to the reason if it does not.
async fn waits<T: fmt::Debug>(log: &SharedLog, tell: impl AsyncFn() -> Result<T, RpcRefusal>) -> T {
    let lost = Err(owner_lost(ShardKey(0)));
    {
        let mut refused = pin!(tell());
        assert!(is_pending(refused.as_mut()), "it is not confirmed");
        while log.tell(&lost) == 0 {}
        assert_eq!(reason(refused.await), RefusalReason::OwnerLost);
    }
    let mut told = pin!(tell());
    assert!(is_pending(told.as_mut()), "an older confirmation does not count");
    assert_ne!(log.tell(&Ok(())), 0);
    told.await.unwrap()
}

#[tokio::test]
async fn views_and_absence_wait_for_the_confirmation() {
    let (log, instances) = fixture();
    let (instance, new) = create(&instances, "name").await;
    assert!(new && log.tell(&Ok(())) == 0, "a commit needs no confirmation");
    waits(&log, async || instance.status(None).committed().await?).await;
    waits(&log, async || instance.snapshot().committed().await?).await;
    waits(&log, async || instance.state().committed().await?).await;
    let (found, new) = waits(&log, async || {
        instances.create(&Principal::new("creator"), spec("name")).await?.committed().await
    })
    .await;
    assert!(!new && Arc::ptr_eq(&found, &instance));
    waits(&log, async || instances.gates().ownership().await).await;
    let absent = waits(&log, async || {
        match instances
            .not_found_reason(InstanceId::new(1))
            .committed()
            .await
            .unwrap_or_else(|unconfirmed| unconfirmed)
        {
            lost if lost.reason == RefusalReason::OwnerLost => Err(lost),
            refused => Ok(refused),
        }
    })
    .await;
    assert_eq!(absent.reason, RefusalReason::InstanceUnknown);
    instance.close().committed().await.unwrap().unwrap();
    assert_eq!(log.tell(&Ok(())), 0);
    instance.archive_now();
    waits(&log, async || instance.status(None).committed().await?).await;
    waits(&log, async || instance.close().committed().await?).await;
    let gates = instances.gates().of_call();
    waits(&log, async || gates.refusal(Some(RefusalReason::NameTaken), false).await).await;
    assert!(
        gates.refusal(Some(RefusalReason::RateExceeded), false).is_open(),
        "it says nothing of an instance"
    );
}

/// A server with so many shards, and their logs.
async fn sharing(shards: u32) -> (Server, Vec<(Arc<SharedLog>, Arc<ShardContext>)>) {
    let server = Server::new(None);
    let mut taken = Vec::new();
    for key in 0..shards {
        let log = Arc::new(SharedLog { state: server.state.clone(), asked: Mutex::default() });
        let shared: Arc<dyn CommitLog> = log.clone();
        let context = server.instances.add_shard(ShardKey(key), &shared).unwrap();
        context.set_served();
        taken.push((log, context));
    }
    (server, taken)
}

#[tokio::test]
async fn that_there_is_no_instance_is_confirmed_by_its_shard_alone() {
    let (server, shards) = sharing(3).await;
    for at in 0..100 {
        let (refused, gate) =
            server.instances.not_found_reason(InstanceId::new(1 + at * SHARDS)).into_parts();
        assert_eq!(refused.reason, RefusalReason::InstanceUnknown);
        assert!(!gate.is_open());
    }
    let (refused, gate) = server.instances.not_found_reason(InstanceId::new(3)).into_parts();
    assert_eq!((refused.reason, gate.is_open()), (RefusalReason::NotOwner, true));
    assert_eq!([0, 1, 2].map(|shard: usize| shards[shard].0.tell(&Ok(()))), [0, 100, 0]);
}

/// The refusal was found out before the shard was dropped, and is told after that.
#[tokio::test]
async fn a_refusal_of_a_shard_that_was_dropped_meanwhile_is_not_told() {
    let (server, shards) = sharing(2).await;
    let (gates, before) = (server.instances.gates(), server.instances.gates().of_call());
    let absent = server.instances.get(InstanceId::new(1)).unwrap_err();
    assert_eq!(absent.reason, RefusalReason::InstanceUnknown);
    server.instances.drop_shard(&shards[1].1, owner_lost(ShardKey(1))).await;
    let confirmed = before.refusal(Some(absent.reason), false);
    shards[0].0.tell(&Ok(()));
    assert_eq!(confirmed.await.unwrap_err().reason, RefusalReason::OwnerLost);
    assert_eq!(server.instances.not_found_reason(InstanceId::new(1)).peek().reason, RefusalReason::NotOwner);
    // Of a call that comes now.
    let confirmed = gates.of_call().refusal(Some(absent.reason), false);
    shards[0].0.tell(&Ok(()));
    confirmed.await.unwrap();
    // Also if none is left.
    server.instances.drop_shard(&shards[0].1, owner_lost(ShardKey(0))).await;
    assert_eq!(
        before.refusal(Some(absent.reason), false).await.unwrap_err().reason,
        RefusalReason::OwnerLost
    );
    assert!(gates.of_call().refusal(Some(absent.reason), false).is_open());
}

#[tokio::test]
async fn a_refusal_on_a_stream_waits_and_a_kept_answer_does_not() {
    let (log, instances) = fixture();
    let (instance, _) = create(&instances, "").await;
    let mut stream = Stream::new();
    let session = SessionId::new(stream.hello(&instance, FIRST, 0).await.session);
    instance.call(access(FIRST.next(), None, 1, append("y")));
    let sink = stream.sink(0);
    let appended = access(FIRST, session, 1, append("x"));
    instance.access(appended.clone(), &sink, Instant::now()).unwrap();
    assert!(matches!(stream.next().await, Frame::Answer(_)));
    instance.access(appended, &sink, Instant::now()).unwrap();
    assert!(matches!(stream.next().await, Frame::Answer(_)), "it never changes");
    assert_eq!(log.tell(&Ok(())), 0);

    stream.hello(&instance, FIRST, 1).await;
    assert!(matches!(stream.next().await, Frame::Replaced(_)));
    let refused = || {
        let (session, value) = (session.unwrap(), Value::new(b"x").unwrap());
        instance.decide(FIRST, session, value, &sink, Instant::now()).unwrap_err()
    };
    for (outcome, told) in
        [(Ok(()), RefusalReason::SessionReplaced), (Err(owner_lost(ShardKey(0))), RefusalReason::OwnerLost)]
    {
        assert_eq!(refused(), RefusalReason::SessionReplaced);
        assert!(stream.is_silent() && stream.outbox.unconfirmed() > 0);
        assert_eq!(log.tell(&outcome), 1);
        assert_eq!(stream.refusal().await, (0, 0, told));
        assert!(stream.outbox.unconfirmed() == 0);
    }
}
