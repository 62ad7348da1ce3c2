//! `append`, `read` and `decide`: the acts of a process, by hand.

use clap::Args;
use stickycas_client::info::InstanceView;
use stickycas_client::{Client, Error, WaitMode};
use stickycas_model::types::{AccessNumber, Position, Value};

use super::instances::InstanceArg;
use super::output::{Exit, Failure, Output};
use super::process::parse_value;
use super::render;

/// The arguments that append and read share.
#[derive(Debug, Args)]
struct Access {
    #[command(flatten)]
    of: InstanceArg,
    /// The access number. Without it, the next one; after a failure give the same again.
    #[arg(long, value_name = "N", value_parser = parse_number)]
    number: Option<AccessNumber>,
    /// Be refused at once unless my phase is open, or would open with this access.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
pub(super) struct Append {
    #[command(flatten)]
    access: Access,
    /// The value: text, or 0x and hex digits.
    #[arg(value_name = "V", value_parser = parse_value)]
    value: Value,
}

#[derive(Debug, Args)]
pub(super) struct Read {
    #[command(flatten)]
    access: Access,
    /// The first position wanted, from 0.
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    start: u32,
}

#[derive(Debug, Args)]
pub(super) struct Decide {
    #[command(flatten)]
    of: InstanceArg,
    /// The decision: text, or 0x and hex digits.
    #[arg(value_name = "V", value_parser = parse_value)]
    value: Value,
}

fn parse_number(text: &str) -> Result<AccessNumber, String> {
    text.parse().ok().and_then(AccessNumber::new).ok_or_else(|| "access numbers count from 1".to_owned())
}

impl Access {
    fn wait(&self) -> WaitMode {
        if self.no_wait { WaitMode::NoWait } else { WaitMode::UntilPhase }
    }

    /// The instance, and the number to use.
    async fn prepare(&self, client: &Client) -> Result<(InstanceView, AccessNumber), Error> {
        let view = client.get(&self.of.instance).await?;
        let number = match (self.number, &view.own) {
            (Some(number), _) => number,
            (None, Some(own)) => own.next,
            (None, None) => {
                let principal = client.principal();
                let why = format!("{principal} is no process of this instance, so it has no next access");
                return Err(Error::InvalidArgument(why));
            }
        };
        Ok((view, number))
    }
}

/// Passes the outcome of an access on. If the outcome is unknown, logs how to find it out.
fn known<T>(number: AccessNumber, result: Result<T, Error>) -> Result<T, Error> {
    result.inspect_err(|error| {
        if error.may_have_happened() {
            tracing::warn!("it may have happened: the same again with --number {number} is safe and tells");
        }
    })
}

impl Append {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let (view, number) = self.access.prepare(client).await?;
        let appended = client.append(view.instance.id, number, &self.value, self.access.wait()).await;
        let appended = known(number, appended)?;
        let record = serde_json::json!({
            "number": number, "phase": appended.phase, "answer": appended.answer,
        });
        output.result(&record, || render::appended(number, &self.value, &appended))?;
        Ok(Exit::Done)
    }
}

impl Read {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let (view, number) = self.access.prepare(client).await?;
        let (instance, start) = (&view.instance, Position::new(self.start));
        let read = client.read(instance.id, &instance.parameters, number, start, self.access.wait()).await;
        let read = known(number, read)?;
        let record = serde_json::json!({
            "number": number, "phase": read.phase, "start": read.start, "values": read.values,
            "length": read.length, "sealed": read.sealed,
        });
        output.result(&record, || render::read(number, &read))?;
        Ok(Exit::Done)
    }
}

impl Decide {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        client.decide(&self.of.instance, &self.value).await?;
        let record = serde_json::json!({ "decided": self.value });
        output.result(&record, || format!("decided {}, and left", self.value))?;
        Ok(Exit::Done)
    }
}
