//! What an instance does while so much waits for the disk that no inputs of clients are read.

use stickycas_model::history::Event;

use super::*;
use crate::commit_log::DurableLog;
use crate::commit_log::engine::ManualEngine;

const HOUR: Duration = Duration::from_secs(3_600);

fn spends_patience(instance: &Instance) -> bool {
    let inner = instance.lock();
    let mut events = live(&inner).uncommitted.iter().flat_map(|effects| &effects.events);
    events.any(|event| matches!(event, Event::PatienceSpent { .. }))
}

/// One process waits for another, whose access comes when the patience would be over. Returns whether it is
/// spent.
fn comes_late(full: bool) -> bool {
    let engine = Arc::new(ManualEngine::new(1));
    let log = Arc::new(DurableLog::new(Arc::new(LogState::new(16 * 1024)), Arc::default()));
    log.write_to(engine.clone()).unwrap();
    let instance = instance_with(log.clone(), Patience::Finite(HOUR));
    let (processes, sink, now) = ([ProcessId::FIRST, ProcessId::FIRST.next()], sink(), Instant::now());
    let sessions = processes.map(|process| instance.hello(process, 0, &sink, now).unwrap().session);
    let read = |index: usize| access(processes[index], Some(sessions[index]), 1, READ);
    instance.access(read(0), &sink, now).unwrap();
    assert!(live(&instance.lock()).machine.deadline().is_some(), "the other process is awaited");
    assert!(log.state().room().is_none());
    if full {
        log.hold(live(&instance.lock()).last_log_index, 1 << 20);
        assert!(log.state().room().is_some());
    }
    instance.access(read(1), &sink, now + 2 * HOUR).unwrap();
    let spent = spends_patience(&instance);
    engine.set_commits(true);
    log.close();
    spent
}

#[tokio::test]
async fn no_patience_is_spent_while_the_log_is_full() {
    assert!(comes_late(false));
    assert!(!comes_late(true));
}
