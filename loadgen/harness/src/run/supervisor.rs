//! A process as a child process: the client, which is this same program called otherwise.
//!
//! At its end the child writes its play record in one line on its standard output; its standard error is
//! kept, and shown if it ends without a record.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::Context;
use stickycas_client_program::PlayRecord;
use stickycas_model::ground_truth::{Assignment, Role};
use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::server_handle::{ServerHandle, principal};

/// The most bytes that are taken from a child. A report holds at most W values.
const MOST_OUTPUT: u64 = 64 * 1024 * 1024;
/// The most characters of a child's standard error that are shown.
const SHOWN_OF_COMPLAINTS: usize = 400;

/// A child to be started.
#[derive(Clone, Debug)]
pub(super) struct Child<'a> {
    /// The program that plays a process when called with `client propose`.
    pub(super) program: &'a Path,
    pub(super) handle: &'a ServerHandle,
    pub(super) instance: InstanceId,
    pub(super) process: ProcessId,
    pub(super) assignment: &'a Assignment,
    pub(super) seed: u64,
}

impl Child<'_> {
    fn command(&self) -> Command {
        let principal = principal(self.process);
        let mut command = Command::new(self.program);
        command
            .args(["client", "propose", "--json"])
            .arg(format!("--server={}", self.handle.url()))
            .arg(format!("--principal={principal}"))
            .arg(format!("--instance={}", self.instance));
        // Of no other principal, whatever the environment of this program says.
        command.env_remove("STICKYCAS_CLIENT_CREDENTIALS");
        if let Some(folder) = self.handle.identities().folder(&principal) {
            command.arg("--credentials").arg(folder);
        }
        let proposal = format!("--value={}", self.assignment.proposal);
        let seed = format!("--seed={}", self.seed);
        match &self.assignment.role {
            // An external one is never started: see Scenario::check_runnable.
            Role::Correct | Role::External => command.arg(proposal),
            Role::Byzantine(strategy) => {
                command.arg(proposal).arg(format!("--strategy={strategy}")).arg(seed)
            }
            // It appends only its own part.
            Role::Attacker(attack) => {
                let token_server = self.handle.token_url().map(|url| format!("--token-server={url}"));
                command.arg(format!("--attack={attack}")).arg(seed).args(token_server)
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Starts it. The future gives what it says and what went wrong.
    pub(super) fn start(
        self,
        stop: CancellationToken,
    ) -> anyhow::Result<impl Future<Output = (Option<Report>, Option<String>)> + Send + 'static> {
        let child = self.command().spawn();
        let child = child.with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(watch(child, stop))
    }
}

async fn watch(
    mut child: tokio::process::Child,
    stop: CancellationToken,
) -> (Option<Report>, Option<String>) {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        // Both at once, so that a full pipe of one does not keep the child from ending.
        let (said, complaints) = tokio::join!(everything(stdout), everything(stderr));
        (child.wait().await, said, complaints)
    };
    tokio::select! {
        biased;
        (status, said, complaints) = ended => match status {
            Ok(status) => understand(status, &said, &complaints),
            Err(error) => (None, Some(format!("cannot be waited for: {error}"))),
        },
        // Dropping the child kills it.
        () = stop.cancelled() => (None, None),
    }
}

async fn everything(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // A pipe that breaks ends what is said; the exit status tells the rest.
        let _ = pipe.take(MOST_OUTPUT).read_to_end(&mut bytes).await;
    }
    bytes
}

/// The report of a child that has ended, or its trouble.
fn understand(status: ExitStatus, said: &[u8], complaints: &[u8]) -> (Option<Report>, Option<String>) {
    if let Ok(record) = serde_json::from_slice::<PlayRecord>(said) {
        return match record.process {
            Some(process) => {
                let PlayRecord { decision, phase, from, ended, unanswered, .. } = record;
                (Some(Report { process, decision, phase, from: from.into(), ended, unanswered }), None)
            }
            None => (None, record.error.map(|error| error.message)),
        };
    }
    let complaints = String::from_utf8_lossy(complaints);
    let complaints = complaints.trim();
    let shown = complaints.char_indices().rev().nth(SHOWN_OF_COMPLAINTS).map_or(0, |(start, _)| start);
    let complaints = if complaints.is_empty() { "nothing" } else { &complaints[shown..] };
    (None, Some(format!("its client ended without a report, {status}, and said: {complaints}")))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    async fn shell(script: &str) -> (Option<Report>, Option<String>) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        watch(command.spawn().expect("there is a shell"), CancellationToken::new()).await
    }

    #[tokio::test]
    async fn a_child_that_dies_is_reported_with_its_last_error() {
        let (report, trouble) = shell("echo ouch >&2; exit 7").await;
        assert_eq!(report, None);
        assert_eq!(trouble.unwrap(), "its client ended without a report, exit status: 7, and said: ouch");
        let (_, trouble) = shell("kill -9 $$").await;
        assert!(trouble.unwrap().contains("signal: 9"));
    }

    #[tokio::test]
    async fn a_child_that_reports_is_believed_whatever_its_exit_code() {
        let line = concat!(
            r#"{"instance":"0","principal":"p","strategy":"correct","process":3,"from":["a"],"#,
            r#""ended":"decided","decision":"a","phase":2,"accesses":2,"reconnections":0}"#
        );
        let (report, trouble) = shell(&format!("echo '{line}'; exit 1")).await;
        assert_eq!(report.unwrap().process.get(), 3);
        assert_eq!(trouble, None);
    }
}
