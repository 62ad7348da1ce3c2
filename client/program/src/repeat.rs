//! `propose --again`: one instance after another of the same name, until told to stop.
//!
//! A closed instance gives its name away, so the name always leads to the current one. What is remembered is the
//! id of the one that was played last; a client that is restarted finds the current instance by its name, and the
//! hello tells it where its process stands (SPEC F8e).

use std::convert::Infallible;
use std::time::Duration;

use stickycas_client::info::InstanceView;
use stickycas_client::{Client, Error, IntoInstance as _};
use stickycas_model::machine::State;
use stickycas_program::asked_to_stop;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::v1::RefusalReason;

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::process::{ProcessArgs, report};

/// Between two looks for the next instance, at first, ...
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// ... and when there has been none for a while.
const LOOK_AGAIN_LATER: Duration = Duration::from_millis(500);

/// Plays on until told to stop. Being told so is no failure.
pub(super) async fn repeat(
    instance: &str,
    process: &ProcessArgs,
    client: &Client,
    judge: Option<&Client>,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let name = match instance.into_instance()? {
        InstanceRef::Name(name) => name,
        InstanceRef::Id(_) => {
            return Err(Error::InvalidArgument(format!(
                "--again with instance {instance}: give a name, since an id names one instance only"
            ))
            .into());
        }
    };
    tokio::select! {
        biased;
        () = asked_to_stop() => Ok(Exit::Done),
        failed = series(process, client, judge, &name, output) => failed.map(|never| match never {}),
    }
}

async fn series(
    process: &ProcessArgs,
    client: &Client,
    judge: Option<&Client>,
    name: &InstanceName,
    output: &mut Output<'_>,
) -> Result<Infallible, Failure> {
    let mut last = None;
    loop {
        let view = successor(client, name, last).await?;
        let instance = view.instance.id;
        let ended = process.play_until_over(client, judge, &view).await?;
        output.result(&ended.record, || ended.text())?;
        if let Some(judge) = judge.filter(|_| !ended.was_replaced()) {
            tokio::select! {
                () = report(judge, instance, &ended) => {}
                // Whoever judged the last one has gone on without asking.
                next = successor(client, name, Some(instance)) => drop(next?),
            }
        }
        last = Some(instance);
    }
}

/// Waits until the name leads to an instance other than the last one.
///
/// # Errors
/// Whoever answers is no server of this protocol. While it is away, or refuses to tell, it is asked again: an instance
/// that is not for this process is none, and the next one may be.
async fn successor(
    client: &Client,
    name: &InstanceName,
    last: Option<InstanceId>,
) -> Result<InstanceView, Error> {
    let (mut pause, mut refused) = (LOOK_AGAIN, None);
    loop {
        match client.get(&InstanceRef::Name(name.clone())).await {
            Ok(view) if Some(view.instance.id) != last && view.status.state != State::Closed => {
                return Ok(view);
            }
            Ok(_) => refused = None,
            Err(error) => match error.reason() {
                Some(RefusalReason::InstanceUnknown) => refused = None,
                Some(reason) if refused == Some(reason) => {}
                Some(reason) => {
                    tracing::warn!(%name, %error, "no instance for this process: waiting for another");
                    refused = Some(reason);
                }
                None => return Err(error),
            },
        }
        tokio::time::sleep(pause).await;
        pause = LOOK_AGAIN_LATER.min(pause * 2);
    }
}
