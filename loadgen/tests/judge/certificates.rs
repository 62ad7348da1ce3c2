//! A judge, a server and clients that know each other by certificates, as in the demo: every one a program of
//! its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Output};

use stickycas_client_program::PlayRecord;
use stickycas_harness::judge::REPORTS_FOR_OTHERS;
use stickycas_model::counts::RunCounts;
use stickycas_model::types::ProcessId;

use super::external_run::SCENARIO;
use super::program::{program, terminate, until};

/// The one that steals names; all others propose tea.
const THIEF: u32 = 6;
const ROUNDS: u64 = 2;

/// Programs in one folder. Those that are left are killed.
struct Site {
    folder: tempfile::TempDir,
    left: Vec<Child>,
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in &mut self.left {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Site {
    /// With certificates for the processes, the judge and its listener.
    fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), left: Vec::new() };
        // A handshake of each correct process takes its time on a busy machine.
        let scenario = SCENARIO.replace("100ms", "3s");
        let scenario = scenario.replace("strategy = \"silent\"", "attack = \"impersonate\"");
        std::fs::write(site.path("external.toml"), scenario).unwrap();
        let mut credentials = program(&["server", "credentials", "--out", &site.path("credentials")]);
        credentials.args(["--principals", "6", "--principal", "judge", "--host", "127.0.0.1"]);
        let made = credentials.args(["--listener", "judge=127.0.0.1"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        site
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The folder of a principal.
    fn client(&self, principal: &str) -> String {
        self.path(&format!("credentials/clients/{principal}"))
    }

    /// Starts a server; its URL.
    fn server(&mut self) -> String {
        let folder = self.path("credentials/server");
        let serve =
            ["server", "serve", "--in-memory", "--no-http", "--listen", "127.0.0.1:0", "--log", "error"];
        let mut server = program(&serve);
        let mut server = server.args(["--coordinator", "judge", "--credentials", &folder]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.left.push(server);
        format!("https://{}", line.trim().strip_prefix("listening on ").unwrap())
    }

    /// Starts a judge of one instance; where it hears reports.
    fn judge(&self, server: &str) -> (Child, String) {
        let mut judge = program(&["judge", &self.path("external.toml"), "--runs", &self.path("runs")]);
        judge.args(["--server", server, "--listen", "127.0.0.1:0", "--credentials", &self.client("judge")]);
        judge.args(["--listen-credentials", &self.client("judge/listener")]);
        let mut judge = judge.spawn().unwrap();
        let heard = until(&mut judge, "listening for reports at https://");
        until(&mut judge, "knows reporters by their certificates");
        (judge, heard.strip_prefix("listening for reports at ").unwrap().to_owned())
    }

    /// A process that plays on and on.
    fn play(&self, process: u32, server: &str, report_to: &str) -> Child {
        let credentials = self.client(&format!("process-{process}"));
        let mut client = program(&["client", "--server", server, "--credentials", &credentials, "--json"]);
        client.args(["propose", "--instance", "demo", "--again", "--report-to", report_to]);
        let attack = format!("impersonate(rounds={ROUNDS})");
        client.args(if process == THIEF { ["--attack", &attack] } else { ["--value", "tea"] });
        client.spawn().unwrap()
    }
}

#[test]
fn a_judge_knows_reporters_by_certificates_and_nobody_speaks_for_another() {
    let mut site = Site::new();
    let server = site.server();
    let (judge, report_to) = site.judge(&server);
    let mut clients: Vec<Child> = (1..=6).map(|process| site.play(process, &server, &report_to)).collect();
    let Output { status, stdout, stderr } = judge.wait_with_output().unwrap();
    let (report, told) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(0), "{told}\n{report}");
    assert!(report.contains("verdict: VALID\n"), "{report}");

    // The attack has fired at the server and at the judge, and nothing of it was answered.
    let folder = told.lines().find_map(|line| line.strip_prefix("run folder: ")).unwrap();
    let counts = std::fs::read(format!("{folder}/counts.json")).unwrap();
    let counts: RunCounts = serde_json::from_slice(&counts).unwrap();
    let thief = ProcessId::new(THIEF).unwrap();
    // In the names of two others, in each round.
    assert_eq!(counts.of(thief).get(REPORTS_FOR_OTHERS), 2 * ROUNDS);
    assert_eq!(counts.all.get(REPORTS_FOR_OTHERS), 2 * ROUNDS, "and of nobody else");
    assert_eq!(counts.of(thief).get("NOT_CREATOR"), ROUNDS);
    assert_eq!(
        counts.all.get("handshakes_failed"),
        2 * ROUNDS,
        "without a certificate, and with a forged one"
    );
    let mut line = String::new();
    BufReader::new(clients[THIEF as usize - 1].stdout.take().unwrap()).read_line(&mut line).unwrap();
    let played: PlayRecord = serde_json::from_str(&line).unwrap();
    let attack = played.attack.unwrap();
    assert!(attack.surprises.is_empty() && attack.broke_off.is_none(), "{attack}");
    for client in &mut clients {
        terminate(client);
        assert_eq!(client.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_run_asks_for_the_credentials_that_are_missing() {
    let mut site = Site::new();
    let server = site.server();
    let run = |folder: &str| {
        let mut run = program(&["run", &site.path("external.toml"), "--principal", "judge", "--out"]);
        run.args([
            &site.path(&format!("run-{}", folder.len())),
            "--server",
            &server,
            "--credentials",
            folder,
        ]);
        let Output { status, stderr, .. } = run.output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (code, told) = run(&site.path("credentials/clients"));
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = run(&site.path("credentials"));
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("credentials/judge is no folder with ca.crt"), "{told}");
}
