//! `judge`: scenarios whose processes are started by others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use stickycas_client_program::DEFAULT_SERVER;
use stickycas_faults::Plan;
use stickycas_harness::environment::Environment;
use stickycas_harness::exit::{Exit, NOT_PROMISED, UsageError};
use stickycas_harness::files;
use stickycas_harness::judge::{
    self, JudgeOptions, REPORT_GRACE, ReportService, SeriesCheckpoint, SeriesRequest, Subject,
};
use stickycas_harness::record::Record;
use stickycas_harness::report::grid::counted;
use stickycas_harness::report::table::counted_as;
use stickycas_harness::report::{folder, json, table};
use stickycas_harness::run::{Identities, ServerHandle};
use stickycas_harness::scenario::{LARGEST_SEED, Scenario};
use stickycas_model::judge::Outcome;
use stickycas_model::types::ProcessId;
use stickycas_program::asked_to_stop;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_server::CredentialFolder;

use super::output::{show, tell, warnings_and};
use super::runtime;
use super::scenario::{outcome, show_record, unexpected};

/// The beginning of `judge --help`.
pub(super) fn long_about() -> String {
    format!(
        "\
Judge a scenario whose processes are started by others, one instance after another.

Creates an instance of the scenario under a name, with process-1, process-2, ... as its roster, and waits until \
every correct process has ended. The processes may be started by anyone and in any order, before or after the judge:

  stickycas-client propose --principal process-1 --value tea --instance demo --again --report-to http://127.0.0.1:7427

Each plays the part that the scenario gives it: a correct one proposes the scenario's value, a Byzantine one follows \
its strategy or attack. With --listen-credentials reporters are known by their certificates, as they are to the server. \
Without, who reports is believed to be whom it names: keep --listen to a network that you trust. When all correct ones have reported (or have left, and say nothing for {} s), the judge closes the instance, \
prints the table and the verdict, writes a run folder, and goes on with the next.

A judge that is restarted with the same arguments goes on with the same instance: DIR/NAME.series.json says where it \
stood. A server that does not know the instance any more ends it at once: the run proves nothing. \
SIGTERM and SIGINT end the judge at once, with exit code 3.",
        REPORT_GRACE.as_secs()
    )
}

/// The arguments of `judge`.
#[derive(Debug, Args)]
pub(super) struct JudgeArgs {
    /// The scenario file
    #[arg(value_name = "SCENARIO.toml", env = "STICKYCAS_SCENARIO")]
    scenario: PathBuf,
    /// The server; it is waited for. Of a cluster, several of its servers, separated by commas
    #[arg(long, env = "STICKYCAS_SERVER", value_name = "URL", default_value = DEFAULT_SERVER)]
    server: String,
    /// Create the instances as this principal, which needs the coordinator role
    #[arg(
        long,
        alias = "coordinator",
        env = "STICKYCAS_PRINCIPAL",
        value_name = "NAME",
        default_value = "judge"
    )]
    principal: String,
    /// Folder of the certificate that proves this principal (tls.crt, tls.key), and of the CAs of servers
    /// (ca.crt). The server's address begins with https:// then
    #[arg(long, env = "STICKYCAS_CLIENT_CREDENTIALS", value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// The name of the instances, by which processes find the current one. Each closed one gives it to the
    /// next
    #[arg(long, value_name = "NAME", default_value = "demo")]
    name: InstanceName,
    /// Listen here for the reports of processes
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7427")]
    listen: SocketAddr,
    /// Folder of a server's certificate (tls.crt, tls.key), and of the CAs of processes (client-ca.crt) with
    /// their revocation lists (client-ca.crl), for --listen: reporters show their certificates then
    #[arg(long, env = "STICKYCAS_LISTEN_CREDENTIALS", value_name = "DIR")]
    listen_credentials: Option<PathBuf>,
    /// With --listen-credentials: the trust domain of the processes
    #[arg(long, env = "STICKYCAS_TRUST_DOMAIN", value_name = "NAME", default_value = "stickycas")]
    trust_domain: String,
    /// Takes the place of a key of the scenario's [instance], as in pace=250ms or arbiter=uniform: TOML, or a
    /// bare word. An empty value leaves the key as it is. May be given many times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The seed of the first instance; the next one has the next seed. Without any, one is drawn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
    seed: Option<u64>,
    /// Judge so many instances in a row
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    instances: u64,
    /// Judge one instance after another until told to stop: a line for each, and the table and a run folder
    /// only of those that end otherwise than expected
    #[arg(long, conflicts_with = "instances")]
    endless: bool,
    /// The plan of perturbations: the processes that are thereby faulty or late, or that nobody waits for,
    /// and the parameters and the verdict that go with it. Empty: no plan
    #[arg(long, env = "STICKYCAS_PLAN", value_name = "PLAN.toml")]
    plan: Option<String>,
    /// Where run folders go, DIR/SCENARIO-SEED-ID each, and the state of the series
    #[arg(long, value_name = "DIR", default_value = folder::DEFAULT_PARENT)]
    runs: PathBuf,
    /// A label of this series: a judge goes on with what an earlier one left only if it was asked for the
    /// same, this word included
    #[arg(
        long,
        env = "STICKYCAS_SERIES",
        value_name = "WORD",
        default_value = "",
        hide_default_value = true
    )]
    series: String,
    /// Print the verdict of each instance as JSON on standard output; with --endless, in one line
    #[arg(long)]
    json: bool,
    /// Exit with 0 if every verdict is this one and with 1 otherwise: valid, outside (broken, not promised),
    /// unknown (proves nothing) or violation [default: that of the plan]
    #[arg(long, value_name = "VERDICT", value_parser = outcome)]
    expect: Option<Outcome>,
    /// Wait so long for the server, at first and whenever it is away
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = stickycas_program::parse_duration)]
    ready_within: Duration,
    /// Give up waiting after so long without any event, beyond patience, join timeout and pace
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = stickycas_program::parse_duration)]
    timeout: Duration,
}

pub(super) fn run(args: &JudgeArgs) -> anyhow::Result<Exit> {
    let (subject, plan, mut series) = args.prepare()?;
    let expected = args.expect.or(plan.as_ref().map(|plan| plan.expect));
    let gone = plan.as_ref().map(Plan::gone).unwrap_or_default();
    // Strangers reach its listener: the log that they cause is bounded, and never waited for.
    let _log = stickycas_server::log_to_stderr(&warnings_and("RUST_LOG"))?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        tokio::select! {
            // First, so that it is heard from the beginning.
            biased;
            () = asked_to_stop() => None,
            done = args.judge_series(&subject, gone, &mut series, expected) => Some(done),
        }
    });
    runtime.shutdown_background();
    let Some(done) = done else {
        tell(&format!("interrupted: {} judged", counted(series.done(), "instance")));
        series.interrupted()?;
        return Ok(Exit::NotDone);
    };
    done?;
    if series.asked() != Some(1) {
        let counts: Vec<String> =
            series.verdicts().map(|(outcome, count)| format!("{count} {}", counted_as(outcome))).collect();
        tell(&format!("{}: {}", counted(series.done(), "instance"), counts.join("; ")));
    }
    Ok(worst(series.verdicts().map(|(outcome, _)| outcome), expected))
}

impl JudgeArgs {
    /// Whether it judges one instance, whose verdict is then its exit code.
    fn is_single(&self) -> bool {
        !self.endless && self.instances == 1
    }

    /// Everything that can be wrong is found here, before anything is done.
    fn prepare(&self) -> anyhow::Result<(Subject, Option<Plan>, SeriesCheckpoint)> {
        let (file, text) = read(&self.scenario)?;
        let plan = match self.plan.as_deref().filter(|path| !path.is_empty()) {
            Some(path) => {
                let (file, text) = read(Path::new(path))?;
                Some((Plan::parse(&file, &text)?, text))
            }
            None => None,
        };
        let mut settings = files::settings(&self.set)?;
        let (plan, plan_text) = plan.unzip();
        // The settings that a plan needs in order to hit come last.
        settings.extend(plan.as_ref().map(|plan| plan.settings.clone()).unwrap_or_default());
        let asked = SeriesRequest {
            scenario: text.clone(),
            set: self.set.clone(),
            plan: plan_text,
            seed: self.seed,
            instances: (!self.endless).then_some(self.instances),
            series: self.series.clone(),
        };
        let subject = Subject { file, text, settings, name: self.name.clone() };
        let scenario = subject.scenario(self.seed)?;
        if let Some(plan) = &plan {
            plan.check_against(&scenario).map_err(|error| UsageError(error.to_string()))?;
        }
        let series = SeriesCheckpoint::open(&self.runs, &self.name, asked, scenario.seed)?;
        tell(&format!("seed {}", series.first_seed()));
        Ok((subject, plan, series))
    }

    async fn judge_series(
        &self,
        subject: &Subject,
        gone: BTreeSet<ProcessId>,
        series: &mut SeriesCheckpoint,
        expected: Option<Outcome>,
    ) -> anyhow::Result<()> {
        let scenario = subject.scenario(Some(series.first_seed()))?;
        let reports_at = self.listen(&scenario).await?;
        let identities = self.credentials.clone().map_or(Identities::Names, Identities::Own);
        let handle =
            ServerHandle::open_within(&self.server, &self.principal, identities, self.ready_within).await?;
        let options = JudgeOptions {
            stall: self.timeout,
            gone,
            quiet: self.endless,
            tell: if self.endless { |_| {} } else { tell },
        };
        let mut number = series.done();
        judge::run(&handle, &reports_at, subject, series, &options, |record, instance| {
            number += 1;
            self.publish(record, instance, number, expected)
        })
        .await?;
        reports_at.close().await;
        Ok(())
    }

    /// Listens for reports, and tells where.
    async fn listen(&self, scenario: &Scenario) -> anyhow::Result<ReportService> {
        let credentials = self.listen_credentials.clone().map(|path| CredentialFolder {
            path,
            trust_domain: self.trust_domain.clone(),
            allow_missing_revocation_list: false,
        });
        let scheme = if credentials.is_some() { "https" } else { "http" };
        let reports_at = ReportService::open(self.listen, &scenario.params, credentials).await?;
        tell(&format!("listening for reports at {scheme}://{}", reports_at.address()));
        tell(if scheme == "https" {
            "knows reporters by their certificates"
        } else {
            "believes the names that callers give"
        });
        Ok(reports_at)
    }

    /// Writes down the record of an instance, and shows it.
    fn publish(
        &self,
        record: &Record,
        instance: InstanceId,
        number: u64,
        expected: Option<Outcome>,
    ) -> anyhow::Result<()> {
        let id = instance.to_string();
        let name = format!("{}-{}-{}", record.scenario.name, record.scenario.seed, &id[..8]);
        let verdict = record.verdict.verdict;
        let as_expected = Exit::of(verdict, expected).is_done();
        // In an endless series, runs that end as expected would fill the disk.
        let written = (!self.endless || !as_expected).then(|| {
            let environment = Environment::here(record.how, Some(self.server.clone()));
            folder::write_at_first_free(record, &environment, &self.runs.join(name))
        });
        if !self.endless {
            show_record(record, self.json)?;
        } else if self.json {
            show(&json::line(&record.verdict))?;
        } else {
            show(&line(record, instance, number))?;
        }
        if self.endless && !as_expected {
            tell(&table::coloured(record, table::ROWS_ON_SCREEN));
        }
        // After the report, so that a full disk does not hide it.
        if let Some(folder) = written.transpose().context("cannot write the run folder")? {
            tell(&format!("run folder: {}", folder.display()));
        }
        if let Some(expected) = expected.filter(|_| !as_expected) {
            tell(&unexpected(expected, verdict));
        }
        if expected.is_none() && verdict == Outcome::Outside && self.is_single() {
            tell(NOT_PROMISED);
        }
        // Last, where it is found among the lines of many containers.
        if !self.endless {
            tell(&format!("verdict: {}", record.verdict.headline()));
        }
        Ok(())
    }
}

/// A file as errors name it, and its text.
fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| UsageError(file.clone()))?;
    Ok((file, text))
}

/// One instance of many, in one line.
fn line(record: &Record, instance: InstanceId, number: u64) -> String {
    let verdict = &record.verdict;
    let decision = verdict.decision.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let phase = verdict.last_decision_phase.map_or_else(|| "-".to_owned(), |phase| phase.to_string());
    let seed = record.scenario.seed;
    format!(
        "#{number} {instance} seed {seed}: {}, decision {decision}, last phase {phase}\n",
        verdict.headline()
    )
}

/// The exit code of several runs: that of the worst one.
fn worst(outcomes: impl Iterator<Item = Outcome>, expected: Option<Outcome>) -> Exit {
    let badness = |exit: &Exit| match exit {
        Exit::Done => 0,
        Exit::Unknown => 1,
        _ => 2,
    };
    outcomes.map(|outcome| Exit::of(outcome, expected)).max_by_key(badness).unwrap_or(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_is_the_exit_code() {
        let code = |outcomes: &[Outcome]| worst(outcomes.iter().copied(), None).code();
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[Outcome::Valid, Outcome::Outside]), 0);
        assert_eq!(code(&[Outcome::Valid, Outcome::Unknown]), 4);
        assert_eq!(code(&[Outcome::Unknown, Outcome::Violation, Outcome::Valid]), 1);
        let expected = Some(Outcome::Unknown);
        assert_eq!(worst([Outcome::Unknown].into_iter(), expected), Exit::Done);
        assert_eq!(worst([Outcome::Unknown, Outcome::Valid].into_iter(), expected), Exit::Failed);
    }
}
