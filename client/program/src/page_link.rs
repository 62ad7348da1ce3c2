//! `page-link`: a link to the server's live page, for a browser.

use std::time::UNIX_EPOCH;

use clap::Args;
use serde::Serialize;
use stickycas_client::{Client, Phase};

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;

/// Print a link to the server's live page. It has a token of an hour in its fragment, so keep it to yourself.
#[derive(Debug, Args)]
pub(super) struct PageLink {
    /// To this instance (id or name); without it, to the table of all.
    #[arg(long, value_name = "ID|NAME")]
    instance: Option<String>,
    /// At this phase.
    #[arg(long, value_name = "PHASE", requires = "instance", value_parser = parse_phase)]
    phase: Option<Phase>,
}

#[derive(Serialize)]
struct LinkRecord {
    link: String,
    /// In seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

impl PageLink {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let instance = match &self.instance {
            Some(instance) => Some(client.find(instance).await?),
            None => None,
        };
        let access = client.page_access().await?;
        let expires = access.expires.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let link = access.link(instance, self.phase);
        let record = LinkRecord { link, expires: expires.map(|time| time.as_secs()) };
        output.result(&record, || format!("{}\n", record.link))?;
        Ok(Exit::Done)
    }
}

fn parse_phase(text: &str) -> Result<Phase, String> {
    let phase = text.parse().ok().and_then(Phase::new);
    phase.ok_or_else(|| "give a whole number from 1 on".to_owned())
}
