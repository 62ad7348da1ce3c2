//! `get` and `list`: how instances stand. `counts`: what the server has seen of its callers.

use clap::Args;

use stickycas_client::Client;

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::render;

#[derive(Debug, Args)]
pub(super) struct Get {
    /// The instance: its id, or its name.
    #[arg(value_name = "ID|NAME")]
    instance: String,
}

impl Get {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let view = client.get(&self.instance).await?;
        output.result(&view, || render::instance(&view))?;
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
    let listed = client.list().await?;
    for summary in listed.instances {
        output.result(&summary, || render::summary(&summary))?;
    }
    if listed.shards_left_out > 0 {
        tracing::warn!(
            shards = listed.shards_left_out,
            "instances may be missing: so many shards are served by no server at the moment; list again, or see them with `cluster`"
        );
    }
    Ok(Exit::Done)
}
