//! The observer of an instance, and functions for every reader of a history.

use std::pin::pin;
use std::time::Duration;

use stickycas_client::watch::{WatchFrom, Watched};
use stickycas_client::{Client, Error};
use stickycas_model::history::Recorded;
use stickycas_proto::names::InstanceId;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::facts::{Fact, Facts};

/// How long the end of an instance may take to reach an observer that has to connect again.
const LONGEST_END: Duration = Duration::from_secs(30);

/// Follows an instance to its end and returns its failure, if any. All events are noted in any case.
pub(crate) async fn follow(
    client: &Client,
    id: InstanceId,
    facts: &Facts,
    mut is_over: watch::Receiver<bool>,
) -> Option<String> {
    let (mut history, mut watch) = (Vec::new(), client.watch(id, WatchFrom::Start));
    let mut cut = pin!(async {
        // Without a sender the round is over.
        let _ = is_over.wait_for(|over| *over).await;
        sleep(LONGEST_END).await;
    });
    let trouble = loop {
        let next = tokio::select! {
            next = watch.try_next() => next,
            () = &mut cut => break Some("the watch of an instance that is over does not end".to_owned()),
        };
        let taken = match next {
            Ok(Some(watched)) => take(&mut history, watched),
            Ok(None) => break None,
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            facts.note_error(&error);
            break Some(format!("the watch: {error}"));
        }
    };
    facts.note(Fact::Watched(history));
    trouble
}

/// Adds an event, if it is the next one.
pub(crate) fn take(history: &mut Vec<Recorded>, watched: Watched) -> Result<(), Error> {
    let Watched::Event(index, recorded) = watched else { return Ok(()) };
    if index != history.len() as u64 {
        return Err(Error::Protocol(format!("event {index} came where {} was due", history.len())));
    }
    history.push(recorded);
    Ok(())
}
