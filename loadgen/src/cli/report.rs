//! `report`: the results of a campaign, made again from its journal.

use std::path::PathBuf;

use clap::Args;

use super::campaign::finish;
use crate::campaign::{journal, results};

/// The arguments of `report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The folder of the campaign
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print the results as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<u8> {
    let (origin, past) = journal::read(&args.folder)?;
    let results = results::results(&origin, &origin.campaign()?, &past);
    results::write(&results, &args.folder)?;
    finish(&results, args.json, &args.folder)?;
    Ok(0)
}
