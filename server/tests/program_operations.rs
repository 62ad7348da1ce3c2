//! The program as operators run it: its settings, its log, its pages and its manuals.

use std::process::Stdio;

use stickycas_proto::v1::ListRequest;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::harness::raw::{RawClient, prefixed};
use crate::harness::{Client, with_timeout};
use crate::program::{command, output, signal};

const SERVE: [&str; 5] = ["serve", "--in-memory", "--insecure-principals", "--listen", "127.0.0.1:0"];

/// A server as a program: its process, the address for clients, and the rest of its standard output.
async fn serve(arguments: &[&str], stderr: Stdio) -> (Child, String, Lines<BufReader<ChildStdout>>) {
    start(command(&[&SERVE, arguments].concat()), stderr).await
}

async fn start(mut command: Command, stderr: Stdio) -> (Child, String, Lines<BufReader<ChildStdout>>) {
    let mut server = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = with_timeout(lines.next_line()).await.unwrap().expect("it says where it listens");
    let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (server, address, lines)
}

async fn connect(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn a_server_whose_log_nobody_reads_serves_and_stops() {
    // The pipe of standard error is full after some hundred lines.
    let (mut server, address, _lines) =
        serve(&["--no-http", "--log", "trace", "--log-lines-per-second", "1000000"], Stdio::piped()).await;
    let mut client = Client::on(connect(&address).await, "stranger");
    for _ in 0..1_000 {
        with_timeout(client.instances.list(Request::new(ListRequest::default()))).await.unwrap();
        let refused =
            with_timeout(client.list.append(crate::harness::fixtures::append("none", 1, "yes"))).await;
        refused.unwrap_err();
    }
    drop(client);
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
    let mut log = Vec::new();
    server.stderr.take().unwrap().read_to_end(&mut log).await.unwrap();
    assert!(log.len() >= 60 * 1024, "the pipe of 64 KiB was full: {}", log.len());
}

#[tokio::test]
async fn the_log_has_no_control_characters_of_clients() {
    for format in [&[][..], &["--log-json"]] {
        let flags = [&["--no-http", "--coordinator", "boss", "--log", "trace"], format].concat();
        let (mut server, address, _lines) = serve(&flags, Stdio::piped()).await;
        let mut boss = Client::on(connect(&address).await, "boss");
        let mut request = crate::harness::fixtures::create_request(crate::harness::fixtures::parameters());
        request.name = "\u{1b}[31mname\u{1b}[0m\r\nforged \u{9b}0m\u{7}".to_owned();
        // Whether such a name is allowed does not matter here.
        let _ = with_timeout(boss.instances.create(Request::new(request.clone()))).await;
        request.name = "plain".to_owned();
        request.roster[0] = "\u{1b}]0;title\u{7}\n2026 INFO forged".to_owned();
        let _ = with_timeout(boss.instances.create(Request::new(request))).await;
        let mut raw = RawClient::connect(address.parse().unwrap()).await;
        for path in ["StickyCasService/%1b%5b31m", "StickyCasService/Append"] {
            raw.call_as("name\tx", path, prefixed(b"\x1b[31m\r\n\x07")).await;
        }
        drop((boss, raw));
        signal(&server, "-TERM").await;
        let mut log = String::new();
        with_timeout(server.stderr.take().unwrap().read_to_string(&mut log)).await.unwrap();
        with_timeout(server.wait()).await.unwrap();
        assert!(log.lines().count() > 9, "{log}");
        assert!(log.chars().all(|character| character == '\n' || !character.is_control()), "{log:?}");
        assert!(
            log.lines().all(|line| !line.starts_with("forged") && !line.starts_with("2026 INFO")),
            "{log}"
        );
    }
}

#[tokio::test]
async fn a_memory_that_is_given_is_that_of_the_whole_server() {
    for (given, told) in [("128MiB", "memory is 128 MiB, as it is set"), ("1TiB", "it may be killed")] {
        let (mut server, ..) = serve(&["--memory", given], Stdio::piped()).await;
        // In order, so that all lines of the log are written: a thread of its own writes them.
        signal(&server, "-TERM").await;
        let mut log = String::new();
        with_timeout(server.stderr.take().unwrap().read_to_string(&mut log)).await.unwrap();
        assert!(log.contains(told), "{given}: {log}");
        with_timeout(server.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn lines_of_one_kind_are_left_out_and_counted() {
    let flags = ["--no-http", "--coordinator", "boss", "--log-lines-per-second", "3"];
    let (mut server, address, _lines) = serve(&flags, Stdio::piped()).await;
    let mut boss = Client::on(connect(&address).await, "boss");
    for _ in 0..50 {
        let request = crate::harness::fixtures::create_request(crate::harness::fixtures::parameters());
        with_timeout(boss.instances.create(Request::new(request))).await.unwrap();
    }
    drop(boss);
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let (mut created, mut left_out) = (0, 0);
    while created + left_out < 50 {
        let line = with_timeout(lines.next_line()).await.unwrap().expect("every line is written or counted");
        created += u64::from(line.contains("created"));
        if let Some((_, rest)) = line.split_once("left out ") {
            assert!(rest.ends_with("like this: created"), "{line}");
            left_out += rest.split(' ').next().unwrap().parse::<u64>().unwrap();
            created -= 1;
        }
    }
    assert_eq!(created + left_out, 50);
    assert!(left_out > 0, "three a second");
    signal(&server, "-TERM").await;
    with_timeout(server.wait()).await.unwrap();
}

#[tokio::test]
async fn the_address_for_operators_is_told_if_it_was_asked_for() {
    let (server, _, mut lines) = serve(&["--http", "127.0.0.1:0"], Stdio::null()).await;
    let line = with_timeout(lines.next_line()).await.unwrap().expect("it says where operators look");
    let http = line.strip_prefix("http on ").unwrap_or_else(|| panic!("{line:?}"));
    assert!(http.parse::<std::net::SocketAddr>().is_ok_and(|http| http.ip().is_loopback()), "{http}");
    drop(server);
    let (mut server, _, mut lines) = serve(&["--no-http"], Stdio::null()).await;
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(lines.next_line()).await.unwrap(), None);
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn an_address_for_operators_that_is_in_use_is_reported() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = output(&[&SERVE[..], &["--http", &address]].concat()).await;
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&address));
}

#[tokio::test]
async fn a_server_starts_with_the_settings_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.toml");
    std::fs::write(
        &file,
        "data = 'off'\ninsecure_principals = true\nlisten = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n",
    )
    .unwrap();
    let mut command = command(&["serve"]);
    command.env("STICKYCAS_CONFIG", &file);
    let (mut server, _, mut lines) = start(command, Stdio::null()).await;
    let line = with_timeout(lines.next_line()).await.unwrap().unwrap();
    assert!(line.starts_with("http on 127.0.0.1:"), "{line}");
    signal(&server, "-TERM").await;
    assert_eq!(with_timeout(server.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn settings_are_checked_and_shown_without_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.toml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "insecure_principals = true\n[limits]\nretention = '1h'\n").unwrap();
    let good = output(&["config", "check", "--config", file]).await;
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    assert!(
        String::from_utf8_lossy(&good.stdout)
            .contains(": good: 2 settings are not left at their defaults; memory is ")
    );
    let small = output(&["config", "check", "--config", file, "--memory", "64MiB"]).await;
    assert_eq!(small.status.code(), Some(2), "{small:?}");
    assert!(String::from_utf8_lossy(&small.stderr).contains("\"96MiB\" is the least that does"), "{small:?}");
    let shown = output(&["config", "show", "--config", file, "--drain", "7s"]).await;
    assert_eq!(
        String::from_utf8_lossy(&shown.stdout),
        format!(
            "insecure_principals = true # {file}:1\ndrain = \"7s\" # flag --drain\n\n[limits]\n\
             retention = \"1h\" # {file}:3\n"
        )
    );
    let all = output(&["config", "show", "--effective", "--config", file]).await;
    assert!(String::from_utf8_lossy(&all.stdout).contains("\nworkers = \"auto\" # default\n"), "{all:?}");

    std::fs::write(&path, "insecure_principals = true\n[limits]\nretenion = '1h'\n").unwrap();
    let expected =
        format!("error: {file}:3: there is no key `limits.retenion`: did you mean `limits.retention`?\n");
    for arguments in [&["config", "check"][..], &["config", "show"], &SERVE] {
        let refused = output(&[arguments, &["--config", file]].concat()).await;
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&refused.stderr), expected, "{arguments:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
}

#[tokio::test]
async fn an_unknown_variable_is_refused_by_every_command() {
    for arguments in
        [&SERVE[..], &["config", "check", "--insecure-principals"], &["health"], &["data", "check"]]
    {
        let mut command = command(arguments);
        // Of another program, of Kubernetes, and a mistake.
        command
            .env("STICKYCAS_PRINCIPAL", "p1")
            .env("STICKYCAS_SERVICE_HOST", "10.0.0.1")
            .env("STICKYCAS_DRIAN", "5s");
        let refused = with_timeout(command.output()).await.unwrap();
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {refused:?}");
        let expected =
            "error: environment STICKYCAS_DRIAN: there is no such variable: did you mean STICKYCAS_DRAIN?\n";
        assert_eq!(String::from_utf8_lossy(&refused.stderr), expected, "{arguments:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
}

#[tokio::test]
async fn version_completions_and_man_pages_are_there() {
    let version = output(&["--version"]).await;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    assert!(version.starts_with("stickycas-server 0.1.0 (commit "), "{version}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = output(&["completions", shell]).await;
        assert_eq!(script.status.code(), Some(0));
        let script = String::from_utf8_lossy(&script.stdout).into_owned();
        assert!(script.contains("idle-lifetime") && script.contains("health"), "{shell}");
    }
    assert_eq!(output(&["completions", "tcsh"]).await.status.code(), Some(2));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(output(&["man", pages.to_str().unwrap()]).await.status.code(), Some(0));
    for page in ["stickycas-server.1", "stickycas-server-serve.1", "stickycas-server-config-show.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
    let no_folder = folder.path().join("man1/stickycas-server.1/x");
    let refused = output(&["man", no_folder.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot write to "), "{refused:?}");
}
