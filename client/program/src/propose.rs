//! `propose`: plays one process to its end; with `--again` in one instance after another of the same name,
//! until told to stop.
//!
//! A closed instance frees its name, so the name always leads to the current one. The client remembers the id
//! of the one that was played last; a client that is restarted finds the current instance by its name, and
//! the answer to its hello has the state of its process (SPEC F8e).

use std::convert::Infallible;
use std::time::Duration;

use clap::Args;
use stickycas_client::info::InstanceView;
use stickycas_client::{Client, Error, IntoInstance as _};
use stickycas_model::machine::State;
use stickycas_program::asked_to_stop;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::v1::RefusalReason;
use tokio::time::Instant;

use super::global_args::GlobalArgs;
use super::output::{Exit, Failure, Output};
use super::process::{Found, ProcessArgs, report};
use super::waiting::{self, NOTICE_AFTER};

/// Between two looks for an instance that does not exist yet.
const LOOK_FOR: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Propose {
    /// The instance: its id, or its name.
    #[arg(long, env = "STICKYCAS_INSTANCE", value_name = "ID|NAME")]
    instance: String,
    #[command(flatten)]
    process: ProcessArgs,
    /// Wait up to this long for an instance of this name to be created.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = stickycas_program::parse_duration)]
    wait_for_instance: Duration,
    /// Play one instance after another: when this one has ended, wait for the next of the same name, until
    /// told to stop (SIGTERM or SIGINT: exit code 0). Prints a result for each. Waits for each as long as it
    /// takes, and does not give up while the server is away, or while the instance of this name is not for
    /// this process. An instance that the server has lost is reported as such, and the next one is looked
    /// for.
    #[arg(long, conflicts_with = "wait_for_instance")]
    again: bool,
    /// Report at the end of each instance how this process has ended, to the judge at this address, and wait
    /// until the instance has been judged (stickycas-loadgen judge). Empty: to nobody.
    #[arg(long, env = "STICKYCAS_REPORT_TO", value_name = "URL")]
    report_to: Option<String>,
}

impl Propose {
    /// Whether it plays one instance after another.
    pub(super) fn is_repeated(&self) -> bool {
        self.again
    }

    pub(super) async fn run(
        self,
        common: &GlobalArgs,
        client: Client,
        output: &mut Output<'_>,
    ) -> Result<Exit, Failure> {
        self.instance.as_str().into_instance()?;
        self.process.check()?;
        let url = self.report_to.as_deref().filter(|url| !url.is_empty());
        let judge = url.map(|url| common.client(url)).transpose()?;
        if self.again {
            let judge = judge.map(without_end);
            return repeat(&self.instance, &self.process, &without_end(client), judge.as_ref(), output).await;
        }
        self.once(&client, judge.as_ref(), output).await
    }

    async fn once(
        self,
        client: &Client,
        judge: Option<&Client>,
        output: &mut Output<'_>,
    ) -> Result<Exit, Failure> {
        let mut stop = std::pin::pin!(asked_to_stop());
        let found = tokio::select! {
            found = find(client, &self.instance, self.wait_for_instance) => found?,
            () = &mut stop => {
                return Err(Error::Undecided("stopped before the instance was found".to_owned()).into());
            }
        };
        let (instance, mut stopped) = (found.id(), false);
        let stopping = async {
            (&mut stop).await;
            stopped = true;
        };
        let ended = tokio::select! {
            ended = self.process.play(client, judge, &found, 0, stopping) => ended?,
            never = waiting::tell(client, instance), if !output.is_json() => match never {},
        };
        // The error says it all for people.
        if output.is_json() || ended.has_joined_or_ended() {
            output.result(&ended.record, || ended.text())?;
        }
        if let Some(judge) = judge.filter(|_| !stopped) {
            tokio::select! {
                () = report(judge, instance, &ended) => {}
                () = &mut stop => {}
            }
        }
        ended.exit()
    }
}

/// The same client, never giving up.
fn without_end(client: Client) -> Client {
    let policy = client.retry_policy().without_end();
    client.with_retry(policy)
}

/// The instance; if it is given by name, it may still have to be created.
async fn find(client: &Client, instance: &str, wait: Duration) -> Result<Found, Error> {
    let name = match instance.into_instance()? {
        InstanceRef::Id(id) => return Ok(Found::Id(id)),
        name @ InstanceRef::Name(_) => name,
    };
    let begun = Instant::now();
    let (end, mut is_told) = (begun + wait, false);
    loop {
        match client.get(&name).await {
            Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) && Instant::now() < end => {
                let left = end - Instant::now();
                if !is_told && begun.elapsed() >= NOTICE_AFTER {
                    let seconds = left.as_secs_f64().ceil();
                    tracing::warn!("waiting for an instance {instance}; giving up in {seconds} s");
                    is_told = true;
                }
                tokio::time::sleep(LOOK_FOR.min(left)).await;
            }
            found => return found.map(|view| Found::Seen(Box::new(view))),
        }
    }
}

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
        let ended = tokio::select! {
            ended = process.play_until_over(client, judge, view) => ended?,
            never = waiting::tell(client, instance), if !output.is_json() => match never {},
        };
        output.result(&ended.record, || ended.text())?;
        if let Some(judge) = judge.filter(|_| !ended.was_replaced()) {
            tokio::select! {
                () = report(judge, instance, &ended) => {}
                // The judge of the last one has gone on without this report.
                next = successor(client, name, Some(instance)) => drop(next?),
            }
        }
        last = Some(instance);
    }
}

/// Waits until the name leads to an instance other than the last one.
///
/// # Errors
/// The peer that answers is no server of this protocol. While the server is away, or refuses to tell, it is
/// asked again: an instance that is not for this process counts as none, and the next one may be for it.
async fn successor(
    client: &Client,
    name: &InstanceName,
    last: Option<InstanceId>,
) -> Result<InstanceView, Error> {
    let (mut pause, mut refused) = (LOOK_AGAIN, None);
    let (begun, mut is_told) = (Instant::now(), false);
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
                    tracing::warn!("waiting for another instance {name}: {error}");
                    refused = Some(reason);
                }
                None => return Err(error),
            },
        }
        if !is_told && refused.is_none() && begun.elapsed() >= NOTICE_AFTER {
            let which = if last.is_some() { "the next" } else { "an" };
            tracing::warn!("waiting for {which} instance {name}");
            is_told = true;
        }
        tokio::time::sleep(pause).await;
        pause = LOOK_AGAIN_LATER.min(pause * 2);
    }
}
