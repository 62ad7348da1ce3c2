//! The programs: what they say on a wrong command line, and how they end when they are told to.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use stickycas_harness::run::OwnServer;

use super::external_run::{ExternalRun, SCENARIO};

pub(super) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(super) fn terminate(child: &Child) {
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Waits until the child says this on standard error; gives the line.
pub(super) fn until(child: &mut Child, said: &str) -> String {
    // Byte by byte, so that nothing behind the line is taken.
    let mut stderr = child.stderr.take().unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    while stderr.read(&mut byte).unwrap() > 0 {
        if byte != *b"\n" {
            line.push(byte[0]);
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut line)).unwrap();
        if text.contains(said) {
            child.stderr = Some(stderr);
            return text;
        }
    }
    panic!("it ended without saying {said:?}");
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        std::fs::write(files.path("external.toml"), SCENARIO).unwrap();
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn judge(&self, more: &[&str]) -> Command {
        let mut command = program(&["judge", &self.path("external.toml"), "--runs", &self.path("runs")]);
        command.args(["--listen", "127.0.0.1:0"]).args(more);
        command
    }

    fn refused(&self, more: &[&str]) -> String {
        self.ended(more, 2)
    }

    fn ended(&self, more: &[&str], code: i32) -> String {
        let Output { status, stderr, .. } = self.judge(more).output().unwrap();
        assert_eq!(status.code(), Some(code), "{more:?}");
        String::from_utf8(stderr).unwrap()
    }
}

#[test]
fn only_a_judge_takes_a_process_of_others() {
    let files = Files::new();
    std::fs::write(files.path("external.toml"), SCENARIO.replace("silent", "external")).unwrap();
    let campaign = "name = \"c\"\n[[sweep]]\nname = \"s\"\nruns = 1\n[sweep.axes]\nn = 4\np = 1\nr = 1\nf = 1\n\
                    strategy = \"external\"\n";
    std::fs::write(files.path("campaign.toml"), campaign).unwrap();
    for [command, file] in
        [["run", "external.toml"], ["simulate", "external.toml"], ["campaign", "campaign.toml"]]
    {
        let Output { status, stderr, .. } = program(&[command, &files.path(file)]).output().unwrap();
        let told = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{told}");
        let said = "external is played by a program of yours: use stickycas-loadgen judge";
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn what_is_wrong_with_a_setting_is_told_with_its_flag() {
    let files = Files::new();
    let told = files.refused(&["--set", "pace"]);
    assert!(told.contains("--set pace: give KEY=VALUE, such as pace=250ms"), "{told}");
    let told = files.refused(&["--set", "read_size=2", "--set", "warp_size=7"]);
    assert!(told.contains("--set warp_size=7: warp size p = 7: give 1 to n = 6"), "{told}");
    let told = files.refused(&["--set", "peace=1s"]);
    assert!(told.contains("--set peace=1s: there is no key peace: did you mean pace?"), "{told}");
}

#[test]
fn a_judge_finds_what_is_wrong_before_it_waits_for_anybody() {
    let files = Files::new();
    let told = files.refused(&["--plan", &files.path("none.toml")]);
    assert!(told.contains("none.toml: No such file"), "{told}");
    let told = files.refused(&["--name", "no/name"]);
    assert!(told.contains("give 1 to 64 letters"), "{told}");
    let told = files.refused(&["--instances", "2", "--endless"]);
    assert!(told.contains("cannot be used with"), "{told}");
}

#[test]
fn a_server_that_never_comes_is_waited_for_as_long_as_was_said() {
    let told = Files::new().ended(&["--server", "http://127.0.0.1:1", "--ready-within", "10ms"], 3);
    assert!(told.contains("gave up after"), "{told}");
}

#[test]
fn a_judge_that_is_told_to_end_ends_with_a_line() {
    let files = Files::new();
    let mut judge = files.judge(&["--server", "http://127.0.0.1:1", "--plan", "", "--set", "pace="]);
    let mut judge = judge.spawn().unwrap();
    until(&mut judge, "listening for reports at http://127.0.0.1:");
    terminate(&judge);
    let Output { status, stderr, .. } = judge.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(String::from_utf8(stderr).unwrap().contains("interrupted: 0 instances judged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_everything_was_told_to_end_the_next_start_begins_anew() {
    let (files, mut meeting) = (Files::new(), ExternalRun::new(SCENARIO).await);
    let url = format!("http://{}", meeting.server.address);
    let args = ["--server", &url, "--principal", "loadgen"];
    let server = meeting.start_server().await;
    let mut judge = files.judge(&args).spawn().unwrap();
    until(&mut judge, "named demo");
    let interrupted = meeting.instance().await;
    terminate(&judge);
    assert_eq!(judge.wait().unwrap().code(), Some(3));
    meeting.server.redirect(None);
    meeting.server.cut();
    server.stop().await.unwrap();

    let _without_memory = meeting.start_server().await;
    let mut judge = files.judge(&args).spawn().unwrap();
    let reports = until(&mut judge, "listening for reports at http://");
    meeting.judge.redirect(Some(reports.rsplit('/').next().unwrap()));
    meeting.start_all();
    let Output { status, stderr, .. } = judge.wait_with_output().unwrap();
    let told = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(0), "{told}");
    assert!(told.contains(&format!("instance {interrupted} was interrupted and is gone")), "{told}");
    assert_eq!(told.lines().last(), Some("verdict: VALID"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_plays_on_ends_well_when_it_is_told_to() {
    let server = OwnServer::start().await.unwrap();
    for part in [["--value", "tea"], ["--strategy", "silent"]] {
        let mut client = program(&["client", "-v", "--server", server.url(), "--principal", "process-1"]);
        client.args(["propose", "--instance", "demo", "--again"]).args(part);
        let mut client = client.spawn().unwrap();
        until(&mut client, "");
        terminate(&client);
        assert_eq!(client.wait().unwrap().code(), Some(0));
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeating_client_waits_while_it_is_not_in_the_roster() {
    let meeting = ExternalRun::new(SCENARIO).await;
    let server = meeting.start_server().await;
    let judge = meeting.start_judge(1).await;
    meeting.instance().await;
    let mut client = program(&["client", "--server", server.url(), "--principal", "process-7"]);
    client.args(["propose", "--instance", "demo", "--again", "--value", "tea"]);
    let mut client = client.spawn().unwrap();
    let told = until(&mut client, "waiting for another instance demo");
    assert!(told.contains("NOT_A_MEMBER"), "{told}");
    terminate(&client);
    assert_eq!(client.wait().unwrap().code(), Some(0));
    judge.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_end_only_what_is_not_as_expected_leaves_a_run_folder() {
    for (expected, folders) in [("valid", false), ("outside", true)] {
        let (files, mut meeting) = (Files::new(), ExternalRun::new(SCENARIO).await);
        let _server = meeting.start_server().await;
        let url = format!("http://{}", meeting.server.address);
        let args = ["--server", &url, "--principal", "loadgen", "--endless", "--expect", expected];
        let mut judge = files.judge(&args).spawn().unwrap();
        let heard = until(&mut judge, "listening for reports at http://");
        meeting.judge.redirect(Some(heard.rsplit('/').next().unwrap()));
        until(&mut judge, "believes the names that callers give");
        meeting.start_all();
        let mut lines = BufReader::new(judge.stdout.take().unwrap()).lines();
        for _ in 0..2 {
            lines.find(|line| line.as_ref().unwrap().starts_with('#')).unwrap().unwrap();
        }
        terminate(&judge);
        assert_eq!(judge.wait().unwrap().code(), Some(3));
        let left = std::fs::read_dir(files.path("runs")).unwrap();
        let folder = left.map(Result::unwrap).any(|left| left.path().join("verdict.json").is_file());
        assert_eq!(folder, folders, "{expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_and_judge_programs_leave_a_replayable_folder() {
    let files = Files::new();
    let server = OwnServer::start().await.unwrap();
    let mut judge = files.judge(&["--server", server.url(), "--principal", "loadgen", "--seed", "3"]);
    let mut judge = judge.spawn().unwrap();
    let mut lines = BufReader::new(judge.stderr.take().unwrap()).lines();
    let heard = lines
        .by_ref()
        .find_map(|line| Some(line.unwrap().strip_prefix("listening for reports at ")?.to_owned()));
    let heard = heard.unwrap();
    let mut clients = Vec::new();
    for process in 1..=6 {
        let part = if process == 6 { ["--strategy", "silent"] } else { ["--value", "tea"] };
        let principal = format!("process-{process}");
        let mut client = program(&["client", "--server", server.url(), "--principal", &principal]);
        client.args(["propose", "--again"]).args(part);
        client.env("STICKYCAS_INSTANCE", "demo").env("STICKYCAS_REPORT_TO", &heard);
        clients.push(client.spawn().unwrap());
    }
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    let Output { status, stdout, .. } = judge.wait_with_output().unwrap();
    let report = String::from_utf8(stdout).unwrap();
    assert_eq!(status.code(), Some(0), "{said:#?}\n{report}");
    assert!(report.contains("over the network, started by others"), "{report}");
    assert!(said.iter().any(|line| line.contains("6 of 6 joined")), "{said:#?}");
    for client in &mut clients {
        terminate(client);
        assert_eq!(client.wait().unwrap().code(), Some(0));
    }
    server.stop().await.unwrap();

    let folder = said.iter().find_map(|line| line.strip_prefix("run folder: ")).unwrap();
    assert!(folder.contains("external-3-"), "{folder}");
    for command in ["replay", "explain"] {
        let Output { status, stderr, .. } = program(&[command, folder]).output().unwrap();
        assert_eq!(status.code(), Some(0), "{command}: {}", String::from_utf8_lossy(&stderr));
    }
}
