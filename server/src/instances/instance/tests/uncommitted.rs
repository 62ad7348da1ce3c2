//! What becomes of steps that the log has not committed: refused, committed out of turn, too many.

use super::*;

/// How a log refuses.
fn lost() -> RpcRefusal {
    RpcRefusal::new(RefusalReason::Draining, "another server owns the instance")
}

#[test]
fn a_refused_step_tells_every_client_and_ends_the_instance() {
    let (log, instance) = delayed();
    let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
    let [one, other, newer] = [sink(), sink(), sink()];
    let now = Instant::now();
    let session = instance.hello(first, 0, &one, now).unwrap().session;
    let others = instance.hello(second, 0, &other, now).unwrap().session;
    instance.access(access(first, Some(session), 1, READ), &one, now).unwrap();
    let mut waiting = waiter(instance.call(access(first, None, 1, READ)));
    log.commit_all(&instance);
    assert!(matches!(sent(&one)[..], [Frame::Welcome(_)]) && matches!(sent(&other)[..], [Frame::Welcome(_)]));

    // The phase is executed, an access is repeated, a session opens: none of it is committed.
    instance.access(access(second, Some(others), 1, READ), &other, now).unwrap();
    instance.access(access(first, Some(session), 1, READ), &one, now).unwrap();
    instance.hello(second, 1, &newer, now).unwrap();
    let view = instance.status(None);
    assert!(instance.resolve(CommitOutcome::Refused(Box::new(lost()))), "it is gone");
    let told = |sink: &SessionSink| -> Vec<u64> {
        let number = |frame| match frame {
            Frame::Refusal(refusal) if refusal.message == lost().message => refusal.access_number,
            other => panic!("{other:?}"),
        };
        sent(sink).into_iter().map(number).collect()
    };
    assert_eq!((told(&one), told(&other), told(&newer)), (vec![1, 1], vec![1], vec![0]));
    assert_eq!(newer.outbox.take_released(), [newer.channel], "the channel of a refused hello is free");
    assert!(matches!(waiting.try_recv(), Ok(Err(refused)) if *refused == lost()));
    assert!(!instance.owes_answer(first, session, &one));
    assert_eq!(committed(view).map(|_| ()), Err(lost()));
}

#[test]
fn a_refused_instance_shows_nothing_that_was_not_committed() {
    let (log, instance) = delayed();
    instance.hello(ProcessId::FIRST, 0, &sink(), Instant::now()).unwrap();
    log.commit_all(&instance);
    drop(instance.close());
    assert!(instance.resolve(CommitOutcome::Refused(Box::new(lost()))));
    assert_eq!(committed(instance.state()).flatten(), Err(lost()));
    assert_eq!(committed(instance.status(None)).flatten().map(|_| ()), Err(lost()));
    assert_eq!(committed(instance.close()).flatten(), Err(lost()));
    let refused = instance.hello(ProcessId::FIRST, 0, &sink(), Instant::now());
    assert_eq!(refused.unwrap_err(), RefusalReason::Draining);
    assert_eq!(events(&instance), 2, "only what was committed is shown");
    let after = instance.poll_events(2, 9, instance.next_watcher(), Waker::noop());
    assert!(matches!(&after, WatchPoll::Gone(gone) if *gone == lost()), "{after:?}");
    assert_eq!(instance.context().timers.count(), 0);
}

#[test]
fn a_withdrawal_tells_the_reason_of_its_own_step() {
    let (log, instance) = delayed();
    let (process, sink, now) = (ProcessId::FIRST, sink(), Instant::now());
    let session = instance.hello(process, 0, &sink, now).unwrap().session;
    instance.access(access(process, Some(session), 1, READ), &sink, now).unwrap();
    instance.decide(process, session, value("a"), &sink, now).unwrap();
    drop(instance.close());
    for _ in 0..3 {
        log.commit_one(&instance);
    }
    let told = sent(&sink);
    let reason = i32::from(RefusalReason::ProcessLeft);
    assert!(
        matches!(&told[..], [Frame::Welcome(_), Frame::Refusal(it), Frame::Decided(_)] if it.reason == reason),
        "{told:?}"
    );
}

#[test]
fn a_decision_may_follow_its_hello_before_the_commit() {
    let (log, instance) = delayed();
    let (process, [older, newer], now) = (ProcessId::FIRST, [sink(), sink()], Instant::now());
    let first = instance.hello(process, 0, &older, now).unwrap();
    let second = instance.hello(process, 0, &newer, now).unwrap();
    assert_eq!((first.replaces, second.replaces), (false, true));
    let refused = instance.decide(process, first.session, value("a"), &older, now);
    assert_eq!(refused, Err(RefusalReason::SessionReplaced));
    assert_eq!(instance.decide(process, second.session, value("a"), &newer, now), Ok(()));
    assert!(newer.outbox.take_released().is_empty(), "the client has not been told");
    log.commit_all(&instance);
    assert!(matches!(sent(&newer)[..], [Frame::Welcome(_), Frame::Decided(_)]));
    assert_eq!(newer.outbox.take_released(), [newer.channel]);
}

#[test]
fn a_half_closed_stream_waits_for_steps_of_its_own_session() {
    let (log, instance) = delayed();
    let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
    let ([one, other], now) = ([sink(), sink()], Instant::now());
    let session = instance.hello(first, 0, &one, now).unwrap().session;
    assert!(instance.owes_answer(first, session, &one), "the welcome");
    log.commit_all(&instance);
    let others = instance.hello(second, 0, &other, now).unwrap().session;
    assert!(!instance.owes_answer(first, session, &one));
    instance.access(access(first, Some(session), 1, READ), &one, now).unwrap();
    log.commit_all(&instance);
    instance.access(access(second, Some(others), 1, READ), &other, now).unwrap();
    assert!(instance.owes_answer(first, session, &one), "the phase is executed, the answer not told");
    log.commit_all(&instance);
    assert!(!instance.owes_answer(first, session, &one));
}

#[test]
fn a_half_closed_stream_waits_for_an_expiry_too() {
    let log = Arc::new(DelayedLog::default());
    let shared: Arc<dyn CommitLog> = log.clone();
    let instance = instance_within(shared, Patience::Endless, Duration::ZERO);
    let (process, [sink, other], now) = (ProcessId::FIRST, [sink(), sink()], Instant::now());
    let session = instance.hello(process, 0, &sink, now).unwrap().session;
    log.commit_all(&instance);
    assert!(matches!(sent(&sink)[..], [Frame::Welcome(_)]) && !instance.wake_now(), "its expiry is logged");
    let refused = instance.access(access(process, Some(session), 1, READ), &sink, now);
    assert_eq!(refused, Err(RefusalReason::InstanceUnknown));
    assert!(sent(&sink).is_empty() && instance.owes_answer(process, session, &sink));
    assert!(!instance.owes_answer(process, session, &other));
    let log_index = log.unresolved.lock().unwrap().pop_front().unwrap().log_index;
    assert!(instance.resolve(CommitOutcome::Committed(log_index)));
    assert!(matches!(sent(&sink)[..], [Frame::Refusal(_)]));
    assert!(!instance.owes_answer(process, session, &sink));
}

#[test]
fn a_session_whose_stream_ends_before_the_commit_is_not_open() {
    let (log, instance) = delayed();
    let [sink, later] = [sink(), sink()];
    let session = instance.hello(ProcessId::FIRST, 0, &sink, Instant::now()).unwrap().session;
    instance.close_session(ProcessId::FIRST, session);
    log.commit_all(&instance);
    assert!(live(&instance.lock()).sessions.is_empty());
    assert!(!instance.hello(ProcessId::FIRST, 1, &later, Instant::now()).unwrap().replaces);
}

#[test]
fn a_step_that_commits_at_once_commits_those_before_it() {
    let (log, instance) = delayed();
    let ([one, other], now) = ([sink(), sink()], Instant::now());
    instance.hello(ProcessId::FIRST, 0, &one, now).unwrap();
    log.commits_next.store(true, Ordering::Relaxed);
    instance.hello(ProcessId::FIRST.next(), 0, &other, now).unwrap();
    assert!(matches!(sent(&one)[..], [Frame::Welcome(_)]) && matches!(sent(&other)[..], [Frame::Welcome(_)]));
    instance.hello(ProcessId::FIRST, 0, &one, now).unwrap();
    assert!(
        !instance.resolve(CommitOutcome::Committed(LogIndex::new(1))),
        "the log resolves late what is committed"
    );
    assert!(matches!(sent(&one)[..], []));
    log.commit_all(&instance);
    assert!(matches!(
        sent(&one)[..],
        [Frame::Welcome(_), Frame::Replaced(_)] | [Frame::Replaced(_), Frame::Welcome(_)]
    ));
}

#[test]
fn bad_content_is_refused_when_its_offence_is_committed() {
    let (log, instance) = delayed();
    let (process, sink, now) = (ProcessId::FIRST, sink(), Instant::now());
    instance.hello(process, 0, &sink, now).unwrap();
    log.commit_all(&instance);
    assert!(matches!(sent(&sink)[..], [Frame::Welcome(_)]));
    let offence = || {
        let (kind, number) = (OffenceKind::Malformed, AccessNumber::new(1));
        Offence { process, kind, number, phase: None, detail: "no value".to_owned() }
    };
    let refused = RpcRefusal::new(RefusalReason::ValueEmpty, "no value");
    assert_eq!(instance.refuse(offence(), refused.clone(), &sink, now), RefusalReason::ValueEmpty);
    let mut call = Box::pin(instance.refuse_call::<()>(offence(), refused.clone()).committed());
    let mut poll = || call.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
    assert!(sent(&sink).is_empty() && poll().is_pending(), "the offence is not committed");
    log.commit_all(&instance);
    assert!(matches!(&sent(&sink)[..], [Frame::Refusal(it)] if it.access_number == 1));
    assert_eq!(poll(), Poll::Ready(Ok(Err(refused))));
}
