//! `get` and `list`: how instances stand. `counts`: what the server has seen of its callers.

use clap::Args;

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::render;
use crate::client::Client;
use crate::hand::instance_ref;

#[derive(Debug, Args)]
pub(super) struct Get {
    /// The instance: its id, or its name.
    #[arg(value_name = "ID|NAME")]
    instance: String,
}

impl Get {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let looked = client.get(&instance_ref(&self.instance)?).await?;
        output.result(&looked, || render::looked(&looked))?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(super) struct Counts {
    /// Only these principals; without any, all.
    #[arg(value_name = "NAME")]
    principals: Vec<String>,
}

impl Counts {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let counts = client.counts(&self.principals).await?;
        output.result(&counts, || render::counts(&counts))?;
        Ok(Exit::Done)
    }
}

pub(super) async fn list(client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
    for summary in client.list().await? {
        output.result(&summary, || render::summary(&summary))?;
    }
    Ok(Exit::Done)
}
