//! What is told without a transaction waits until the ownership of the shard is confirmed.

use super::*;

/// A log that other servers share: it commits at once, and confirms when the test says so.
#[derive(Debug, Default)]
struct SharedLog {
    state: Arc<LogState>,
    asked: Mutex<Vec<Confirms>>,
}

impl CommitLog for SharedLog {
    fn keeps_inputs(&self) -> bool {
        true
    }

    fn append(&self, _: Step<'_>) -> Append {
        Append::Committed
    }

    fn on_settled(&self, _: Settle) {}

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }

    fn confirm(&self) -> Option<Confirmation> {
        let (confirms, confirmation) = Confirmation::new();
        self.asked.lock().unwrap().push(confirms);
        Some(confirmation)
    }
}

impl SharedLog {
    /// Answers all that have asked; returns how many have.
    fn tell(&self, outcome: &Result<(), RpcRefusal>) -> usize {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let count = asked.len();
        asked.into_iter().for_each(|confirms| confirms.tell(outcome.clone()));
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
    created.committed().await.unwrap().unwrap()
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
        instances.create(&Principal::new("creator"), spec("name")).await.committed().await?
    })
    .await;
    assert!(!new && Arc::ptr_eq(&found, &instance));
    waits(&log, async || instances.confirmed().await).await;
    let absent = instances.get(InstanceId::new(1)).unwrap_err();
    let absent = waits(&log, async || match instances.confirm_absent(absent.clone()).await {
        lost if lost.reason == RefusalReason::OwnerLost => Err(lost),
        refused => Ok(refused),
    })
    .await;
    assert_eq!(absent.reason, RefusalReason::InstanceUnknown);
    instance.close().committed().await.unwrap().unwrap();
    assert_eq!(log.tell(&Ok(())), 0);
    instance.archive_now();
    waits(&log, async || instance.status(None).committed().await?).await;
    waits(&log, async || instance.close().committed().await?).await;
    assert!(
        instances.confirm_refusal(RefusalReason::RateExceeded).is_none(),
        "it says nothing of an instance"
    );
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
        assert!(stream.is_silent() && stream.outbox.has_unconfirmed());
        assert_eq!(log.tell(&outcome), 1);
        assert_eq!(stream.refusal().await, (0, 0, told));
        assert!(!stream.outbox.has_unconfirmed());
    }
}
