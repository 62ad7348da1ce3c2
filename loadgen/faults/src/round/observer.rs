//! The observer of an instance, and functions for every reader of a history.

use std::time::Duration;

use stickycas_client::watch::{Watch, WatchFrom, Watched};
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
    let cut = async {
        // Without a sender the round is over.
        let _ = is_over.wait_for(|over| *over).await;
        sleep(LONGEST_END).await;
    };
    let trouble = tokio::select! {
        read = read(&mut watch, &mut history) => read.err().map(|error| {
            facts.note_error(&error);
            format!("the watch: {error}")
        }),
        () = cut => Some("the watch of an instance that is over does not end".to_owned()),
    };
    facts.note(Fact::Watched(history));
    trouble
}

/// Adds the events of a watch, to its end.
pub(crate) async fn read(watch: &mut Watch, history: &mut Vec<Recorded>) -> Result<(), Error> {
    while let Some(watched) = watch.try_next().await? {
        take(history, watched)?;
    }
    Ok(())
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
