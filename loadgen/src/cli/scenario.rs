//! The arguments and the end of all subcommands that make one judged run of one scenario.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use stickycas_harness::atomic_files::is_taken;
use stickycas_harness::command_line;
use stickycas_harness::environment::Environment;
use stickycas_harness::exit::{Exit, NOT_PROMISED, UsageError};
use stickycas_harness::files;
use stickycas_harness::record::Record;
use stickycas_harness::report::folder::newest_run;
use stickycas_harness::report::{folder, json, table};
use stickycas_harness::scenario::{LARGEST_SEED, Scenario, SettingError, Settings};
use stickycas_model::judge::Outcome;

use super::output::{RunLog, show_result, tell};

/// Which scenario, where its run folder goes, and which verdict is expected.
#[derive(Debug, Args)]
pub(super) struct ScenarioArgs {
    /// The scenario file
    #[arg(value_name = "SCENARIO.toml")]
    pub(super) scenario: PathBuf,
    /// Takes the place of the scenario's seed; without any, one is drawn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    pub(super) settings: SettingArgs,
    /// Print the verdict as JSON on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Where the run folder goes; it must not exist [default: runs/SCENARIO-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Exit with 0 for this verdict and with 1 for any other: valid, outside (broken, not promised), unknown
    /// (proves nothing) or violation
    #[arg(long, value_name = "VERDICT", value_parser = outcome)]
    pub(super) expect: Option<Outcome>,
}

/// `--set` and `--append-rounds`.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct SettingArgs {
    /// Takes the place of a key of the file, such as pace=250ms (of [instance]), proposals.distinct=2 or
    /// late=[3]: TOML, or a bare word. An empty value leaves the key as it is. May be given many times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// q, the append rounds: 1 to p. The same as --set append_rounds=Q
    #[arg(long, value_name = "Q")]
    append_rounds: Option<u32>,
}

impl SettingArgs {
    /// What was given, as arguments of `--set`.
    pub(super) fn arguments(&self) -> Vec<String> {
        let rounds = self.append_rounds.map(|rounds| format!("append_rounds={rounds}"));
        self.set.iter().cloned().chain(rounds).collect()
    }

    pub(super) fn settings(&self) -> Result<Settings, SettingError> {
        files::settings(&self.arguments())
    }
}

/// Shows the record of a run: the report for people, or the verdict as JSON and the report beside it.
pub(super) fn show_record(record: &Record, json: bool) -> anyhow::Result<()> {
    let report = table::coloured(record, table::ROWS_ON_SCREEN);
    show_result(&report, json.then(|| json::text(&record.verdict)))
}

/// The verdict is not the expected one.
pub(super) fn unexpected(expected: Outcome, got: Outcome) -> String {
    format!("expected {}, got {}", expected.title(), got.title())
}

/// A verdict by its name.
pub(super) fn outcome(text: &str) -> Result<Outcome, String> {
    let found = Outcome::ALL.into_iter().find(|outcome| outcome.to_string() == text);
    found.ok_or_else(|| "give valid, outside, unknown or violation".to_owned())
}

impl ScenarioArgs {
    /// Reads the scenario and says which seed it has, before anything is done with it.
    pub(super) fn load(&self) -> anyhow::Result<Scenario> {
        let scenario = Scenario::load_with(&self.scenario, self.seed, &self.settings.settings()?)?;
        check_free(self.out.as_deref())?;
        tell(&format!("seed {}", scenario.seed));
        Ok(scenario)
    }

    /// Writes everything down, shows it, and makes an exit code of it.
    pub(super) fn finish(
        &self,
        record: &Record,
        server: Option<String>,
        log: &RunLog,
    ) -> anyhow::Result<Exit> {
        let environment = Environment::here(record.how, server);
        let written = folder::write(record, &environment, self.out.as_deref());
        show_record(record, self.json)?;
        // After the report, so that a full disk does not hide it.
        let folder = written.context("cannot write the run folder")?;
        log.keep(&folder).context("cannot write the log into the run folder")?;
        tell(&format!("run folder: {}", folder.display()));
        let exit = Exit::of(record.verdict.verdict, self.expect);
        if let Some(expected) = self.expect.filter(|_| !exit.is_done()) {
            tell(&unexpected(expected, record.verdict.verdict));
        }
        if self.expect.is_none() && record.verdict.verdict == Outcome::Outside {
            tell(NOT_PROMISED);
        }
        if !exit.is_done() {
            tell(&repeat(record.scenario.seed));
        }
        Ok(exit)
    }
}

/// The run folder that an argument names; told if it is another one.
pub(super) fn run_folder(named: &Path) -> PathBuf {
    let folder = newest_run(named);
    if folder != named {
        tell(&format!("run folder: {}", folder.display()));
    }
    folder
}

/// Checks that a result has a place to go to: better before than after it was made.
pub(super) fn check_free(out: Option<&Path>) -> Result<(), UsageError> {
    out.filter(|out| is_taken(out)).map_or(Ok(()), |out| Err(taken(out)))
}

/// The folder that a result was to go to is there already.
pub(super) fn taken(out: &Path) -> UsageError {
    UsageError(format!("{} exists already: give another --out", out.display()))
}

/// The one command that does the same again.
pub(super) fn repeat(seed: u64) -> String {
    format!("seed {seed}; to repeat it: {}", command_line::again(seed, &[]))
}
