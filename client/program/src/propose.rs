//! `propose`: plays one process to its end.

use std::time::Duration;

use clap::Args;
use stickycas_client::{Client, Error, IntoInstance as _};
use stickycas_program::asked_to_stop;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;
use tokio::time::Instant;

use super::exit::Exit;
use super::failure::Failure;
use super::global_args::GlobalArgs;
use super::output::Output;
use super::process::{ProcessArgs, report};
use super::repeat::repeat;

/// Between two looks for an instance that does not exist yet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

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
    /// Play one instance after another: when this one has ended, wait for the next of the same name, until told
    /// to stop (SIGTERM or SIGINT: exit code 0). Prints a result for each. Waits for each as long as it takes,
    /// and does not give up while the server is away, or while the instance of this name is not for this
    /// process. An instance that the server has lost is reported as such, and the next one is looked for.
    #[arg(long, conflicts_with = "wait_for_instance")]
    again: bool,
    /// Report at the end of each instance how this process has ended, to the judge at this address, and wait
    /// until the instance has been judged (stickycas-loadgen judge). Empty: to nobody.
    #[arg(long, env = "STICKYCAS_REPORT_TO", value_name = "URL")]
    report_to: Option<String>,
}

impl Propose {
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
        let instance = tokio::select! {
            found = find(client, &self.instance, self.wait_for_instance) => found?,
            () = &mut stop => {
                return Err(Error::Undecided("stopped before the instance was found".to_owned()).into());
            }
        };
        let mut stopped = false;
        let stopping = async {
            (&mut stop).await;
            stopped = true;
        };
        let ended = self.process.play_until(client, judge, instance, stopping).await?;
        output.result(&ended.record, || ended.text())?;
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

/// The id of the instance; if it is given by name, it may still have to be created.
async fn find(client: &Client, instance: &str, wait: Duration) -> Result<InstanceId, Error> {
    let end = Instant::now() + wait;
    loop {
        match client.find(instance).await {
            Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) && Instant::now() < end => {
                tokio::time::sleep(LOOK_AGAIN.min(end - Instant::now())).await;
            }
            found => return found,
        }
    }
}
