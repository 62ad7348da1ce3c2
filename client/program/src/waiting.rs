//! What a process waits for, told on standard error: `propose` may be silent for long otherwise.

use std::convert::Infallible;
use std::time::Duration;

use stickycas_client::info::{Awaited, InstanceView};
use stickycas_client::{Client, InstanceId, RetryPolicy};
use stickycas_model::machine::State;
use tokio::time::{Instant, sleep};

use super::render;

/// The time without progress after which it is told.
pub(super) const NOTICE_AFTER: Duration = Duration::from_secs(2);
/// The longest pause between two questions while nothing changes.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// The largest instance: each process of it asks, and an answer is as long as there are processes.
const MOST_PROCESSES: usize = 1_024;

/// Asks from time to time what the instance waits for, and tells it once for each change.
pub(super) async fn tell(client: &Client, instance: InstanceId) -> Infallible {
    // The client of the process tells that there is no server.
    let once = RetryPolicy { give_up_after: Duration::ZERO, ..client.retry_policy() };
    let client = client.clone().with_retry(once);
    let (mut pause, mut last, mut told, mut gathering_since) = (NOTICE_AFTER, None, None, None);
    loop {
        sleep(pause).await;
        let Ok(view) = client.get(instance).await else { continue };
        if view.instance.roster.len() > MOST_PROCESSES {
            return std::future::pending().await;
        }
        let now = Instant::now();
        let waits = waits_for(&view);
        let gathers = view.status.state == State::Gathering;
        if waits.is_some() && (gathers || waits == last) && waits != told {
            let at_latest = if gathers {
                let since = *gathering_since.get_or_insert(now);
                let left = view.instance.parameters.spec().join_timeout.saturating_sub(now - since);
                format!("; phase 1 opens at the latest in {} s", left.as_secs_f64().ceil())
            } else {
                String::new()
            };
            tracing::warn!("waiting: {}{at_latest}", waits.as_deref().unwrap_or_default());
            told.clone_from(&waits);
        }
        pause = if waits == last { LONGEST_PAUSE.min(pause * 2) } else { NOTICE_AFTER };
        last = waits;
    }
}

/// The processes that an instance waits for. `None`: it waits for none.
fn waits_for(view: &InstanceView) -> Option<String> {
    let status = &view.status;
    let missing = render::rows(&status.awaited, |row: &Awaited| {
        let index = usize::try_from(row.process.get()).ok().and_then(|number| number.checked_sub(1));
        let principal = index.and_then(|index| view.instance.roster.get(index)).map_or("?", String::as_str);
        format!("{} ({principal})", row.process)
    });
    match (status.state, status.phase) {
        (State::Gathering, _) if status.joined > 0 => {
            let all = view.instance.roster.len();
            Some(format!("{} of {all} joined, missing {missing}", status.joined))
        }
        (State::Running, Some(phase)) if status.open && status.awaited.total() > 0 => {
            Some(format!("phase {phase} waits for {missing}"))
        }
        _ => None,
    }
}
