//! `explore`: exhaustive search of small instances.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use stickycas_harness::atomic_files::replace_file;
use stickycas_harness::command_line::word_of;
use stickycas_harness::exit::{Exit, UsageError};
use stickycas_harness::progress::WorkProgress;
use stickycas_harness::report::json;
use stickycas_lab::explore::{self, ExploreOptions};
use stickycas_model::explore::Claim;

use super::output::{show_result, tell};
use super::scenario::taken;
use super::{processors, stop_when_asked};

/// The arguments of `explore`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ExploreArgs {
    /// Only this claim; may be given more than once
    #[arg(long = "claim", value_name = "a|b|c|d", value_parser = claim)]
    claims: Vec<Claim>,
    /// The largest n [default: that of the claim, see below]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_n: Option<u32>,
    /// Only searches with so many append rounds: 1 to 3; of claim a there are none with several
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u32).range(1..=3))]
    append_rounds: Option<u32>,
    /// How many searches at a time [default: one for each processor]
    #[arg(long, value_name = "J")]
    jobs: Option<NonZeroUsize>,
    /// Print the report as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Write the shortest witness of claim a into this scenario file; it must not exist
    #[arg(long, value_name = "SCENARIO.toml")]
    out: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Claims, each for all n up to the number given, all p, r, placements and proposals (of two or three values; \
docs/theory/explore.md tells all limits):
  a  n <= 6  under open, correct processes decide differently inside the bound
  b  n <= 6  under first_access they decide the same, and in time, for any order
  c  n <= 8  strong validity can be broken exactly where its bound is missed
  d  n <= 4  every rule holds in every state, whatever Byzantine processes do

An interrupt ends it early and shows what the searches that were made say.";

fn claim(text: &str) -> Result<Claim, String> {
    let found = Claim::ALL.into_iter().find(|claim| claim.to_string() == text);
    found.ok_or_else(|| "give a, b, c or d".to_owned())
}

pub(super) fn run(args: &ExploreArgs) -> anyhow::Result<Exit> {
    if let Some(out) = args.out.as_ref().filter(|out| out.exists()) {
        return Err(taken(out).into());
    }
    if args.out.is_some() && !args.claims.is_empty() && !args.claims.contains(&Claim::A) {
        let reason = "only claim a has a witness to write: leave --out away, or add --claim a";
        return Err(UsageError(reason.to_owned()).into());
    }
    let options = ExploreOptions {
        claims: if args.claims.is_empty() { Claim::ALL.to_vec() } else { args.claims.clone() },
        largest: args.max_n,
        append_rounds: args.append_rounds,
        jobs: args.jobs.unwrap_or_else(processors),
    };
    let stop = stop_when_asked()?;
    let mut progress = None;
    let report = explore::explore(&options, &stop, |done, all| {
        let shown = progress.get_or_insert_with(|| WorkProgress::uneven(all as u64, false));
        shown.show(done as u64, || format!("{done}/{all} searches, the largest first"));
    });
    drop(progress);
    let report = report?;
    show_result(&report.to_string(), args.json.then(|| json::text(&report)))?;
    match (&args.out, &report.witness) {
        (Some(out), Some(witness)) => {
            replace_file(out, witness.as_bytes())
                .with_context(|| format!("cannot write {}", out.display()))?;
            let place = out.display().to_string();
            tell(&format!("witness: {place}; to see it: stickycas-loadgen run {}", word_of(&place)));
        }
        (Some(out), None) => tell(&format!("{} is not written: no disagreement was found", out.display())),
        (None, _) => {}
    }
    Ok(match report.holds() {
        false => Exit::Failed,
        true if report.interrupted => Exit::NotDone,
        true => Exit::Done,
    })
}
