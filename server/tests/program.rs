//! The program: its flags, its signals and its exit codes.

use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::harness::frames::FrameClient;
use crate::harness::with_timeout;

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-server"));
    command.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub(crate) async fn output(arguments: &[&str]) -> Output {
    with_timeout(command(arguments).output()).await.unwrap()
}

/// Starts a server on a free port; its process and its address.
async fn serve(arguments: &[&str]) -> (Child, String) {
    serve_on("127.0.0.1:0", arguments).await
}

async fn serve_on(address: &str, arguments: &[&str]) -> (Child, String) {
    let arguments =
        [&["serve", "--in-memory", "--listen", address, "--insecure-principals"], arguments].concat();
    let mut server = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = with_timeout(lines.next_line()).await.unwrap().expect("it says where it listens");
    let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (server, address)
}

pub(crate) async fn signal(server: &Child, signal: &str) {
    let id = server.id().expect("it runs").to_string();
    assert!(with_timeout(Command::new("kill").args([signal, &id]).status()).await.unwrap().success());
}

#[tokio::test]
async fn the_program_serves_answers_probes_and_ends_on_sigterm() {
    let (mut server, address) = serve(&["--coordinator", "boss"]).await;
    let probe = output(&["health", "--server", &format!("http://{address}"), "--timeout", "1min"]).await;
    assert_eq!(String::from_utf8_lossy(&probe.stdout), "SERVING\n");
    assert_eq!(probe.status.code(), Some(0));
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

/// Clients that answer nothing, not even a GOAWAY: each would delay the end until the drain deadline.
#[tokio::test]
async fn strangers_that_are_silent_do_not_delay_the_end() {
    let (mut server, address) = serve(&["--drain", "10min"]).await;
    let address = address.parse().unwrap();
    let silent = TcpStream::connect(address).await.unwrap();
    let opened = FrameClient::connect(address).await;
    let mut called = FrameClient::connect(address).await;
    called.calls(1, "p1").await;
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
    drop((silent, opened, called));
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    let arguments = ["serve", "--in-memory", "--listen", "127.0.0.1:0", "--insecure-principals"];
    let mut command = command(&[&arguments[..], &["--log", "trace"]].concat());
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = with_timeout(lines.next_line()).await.unwrap().unwrap();
    let address = line.strip_prefix("listening on ").unwrap().parse().unwrap();
    let mut caller = FrameClient::connect(address).await;
    // A pipe has room for 64 KiB. Each call is logged with some hundred bytes, and refused.
    for stream in (1..2_000).step_by(2) {
        caller.calls(stream, "not/a/name").await;
    }
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn an_output_that_takes_nothing_stops_nothing() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let arguments = ["serve", "--in-memory", "--no-http", "--listen", "127.0.0.1:0", "--insecure-principals"];
    let mut server = command(&arguments).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut line = async || with_timeout(log.next_line()).await.unwrap().expect("it serves");
    while !line().await.contains("in memory") {}
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn an_aborted_connection_shows_in_the_exit_code() {
    let (mut server, address) = serve(&["--drain", "1ns"]).await;
    let mut raw = crate::harness::raw::RawClient::connect(address.parse().unwrap()).await;
    let (_response, _send) = raw.begin("StickyCasService/Append", &[("stickycas-principal", "p1")]).await;
    raw.call_as("p1", "InstanceService/List", crate::harness::raw::prefixed(&[])).await;
    // Nothing is awaited from here on, so the client does not answer the GOAWAY.
    let id = server.id().expect("it runs").to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = (0..120_000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        server.try_wait().unwrap()
    });
    assert_eq!(ended.expect("the server hangs").code(), Some(1));
}

#[tokio::test]
async fn the_program_requires_insecure_principals() {
    let refused = output(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--insecure-principals"));
    assert!(refused.stdout.is_empty());
}

#[tokio::test]
async fn the_number_of_workers_is_configurable() {
    let (mut server, address) = serve(&["--workers", "1"]).await;
    let probe = output(&["health", "--server", &format!("http://{address}"), "--timeout", "1min"]).await;
    assert_eq!(String::from_utf8_lossy(&probe.stdout), "SERVING\n");
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
    for nonsense in ["0", "1025", "many"] {
        let refused = output(&["serve", "--insecure-principals", "--workers", nonsense]).await;
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("--workers"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_remote_address_requires_insecure_allow_remote() {
    let arguments = ["serve", "--listen", "0.0.0.0:0", "--insecure-principals"];
    let refused = output(&arguments).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--insecure-allow-remote"));
    assert!(refused.stdout.is_empty());
    let (mut server, _) = serve_on("0.0.0.0:0", &["--insecure-allow-remote"]).await;
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_probe_without_a_server_fails() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let probe = output(&["health", "--server", &format!("http://{nobody}")]).await;
    assert_eq!(probe.status.code(), Some(3));
    assert!(probe.stdout.is_empty());
}

#[tokio::test]
async fn wrong_flags_are_told_from_what_was_not_possible() {
    for arguments in [
        &["health", "--server", "nonsense"][..],
        &["health", "--server", "ftp://127.0.0.1"],
        &["serve", "--insecure-principals", "--listen", "127.0.0.1:0", "--log", "a=b=c"],
    ] {
        assert_eq!(output(arguments).await.status.code(), Some(2), "{arguments:?}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = output(&["serve", "--in-memory", "--listen", &address, "--insecure-principals"]).await;
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&address));
}
