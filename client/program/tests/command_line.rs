//! The client's command line against a real server, called as another program calls it.

// Helpers of tests are tests, but clippy cannot tell.
#![allow(clippy::unwrap_used)]

use serde_json::Value as Json;
use stickycas_client_program::{Exit, PlayRecord, run_from};
use stickycas_model::history::Recorded;
use stickycas_model::process::ProcessEnd;
use stickycas_server::Config;
use tokio::net::TcpListener;

/// Starts a server that lives as long as the test's runtime; gives its address.
async fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = Config::insecure(["coordinator".to_owned()]);
    tokio::spawn(async move { stickycas_server::run(listener, config, std::future::pending()).await });
    address
}

async fn run(server: &str, principal: &str, args: &str) -> (Exit, String) {
    let server = format!("http://{server}");
    let line = ["stickycas-client", "--server", &server, "--principal", principal];
    let line: Vec<&str> = line.into_iter().chain(args.split(' ')).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    // Several of them are in one future.
    let exit = Box::pin(run_from(line, &mut out, &mut err)).await;
    (exit, String::from_utf8(out).unwrap() + &String::from_utf8(err).unwrap())
}

async fn json(server: &str, principal: &str, args: &str) -> Json {
    let (exit, out) = run(server, principal, &format!("{args} --json")).await;
    assert_eq!(exit, Exit::Done, "{args}: {out}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args}: {error} in {out}"))
}

#[tokio::test]
async fn a_program_reads_the_record_of_a_play() {
    let server = server().await;
    let (first, second) = (
        run(&server, "p1", "propose --instance demo --value apple --wait-for-instance 1h --json"),
        run(&server, "p2", "propose --instance demo --value apple --wait-for-instance 1h --json"),
    );
    let create = json(&server, "coordinator", "create --name demo -n 2 --patience none --seed 7");
    let (first, second, created) = tokio::join!(first, second, create);
    assert_eq!(created["instance"]["parameters"]["seed"], "7");
    for (exit, out) in [first, second] {
        assert_eq!(exit, Exit::Done, "{out}");
        assert_eq!(out.lines().count(), 1, "{out}");
        let record: PlayRecord = serde_json::from_str(&out).unwrap();
        assert_eq!(record.instance, created["instance"]["id"].as_str().unwrap());
        assert_eq!(record.decision.unwrap().to_string(), "apple");
        assert_eq!((record.ended, record.from.len(), record.accesses), (ProcessEnd::Decided, 2, 2));
    }

    let (exit, watched) = run(&server, "coordinator", "watch demo --json").await;
    assert_eq!(exit, Exit::Done);
    let history: Vec<Recorded> = watched.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(history.last().unwrap().event, stickycas_model::history::Event::Finished);
    let (_, text) = run(&server, "coordinator", "watch demo --snapshot").await;
    assert!(text.starts_with("snapshot: finished, list of 2 entries, sealed\n"), "{text}");
}

#[tokio::test]
async fn an_instance_is_worked_on_by_hand() {
    let server = server().await;
    let (exit, created) = run(&server, "coordinator", "create --name demo -n 2 --patience none").await;
    assert_eq!(exit, Exit::Done, "{created}");
    let id = created.lines().next().unwrap();

    let (_, stuck) = run(&server, "coordinator", "get demo").await;
    assert!(stuck.contains("Gathering: none of 2 processes has joined"), "{stuck}");
    let (exit, refused) = run(&server, "p1", "append demo a --no-wait").await;
    assert_eq!(exit, Exit::Refused, "{refused}");
    assert!(refused.starts_with("error: refused (NOT_YOUR_PHASE)"), "{refused}");

    let (first, second) =
        tokio::join!(json(&server, "p1", "append demo a"), json(&server, "p2", "append demo a"));
    assert_eq!((&first["phase"], &second["phase"]), (&1.into(), &2.into()));
    assert_eq!(first["answer"]["append"], Json::Null);
    assert_eq!(first["answer"]["success"], 0);

    let (_, stuck) = run(&server, "p2", "get demo").await;
    assert!(stuck.contains("Running, but nothing waits"), "{stuck}");
    assert!(stuck.contains("you are process 2; your next access is #2"), "{stuck}");

    let read = json(&server, "p1", "read demo").await;
    assert_eq!((&read["number"], &read["length"], &read["sealed"]), (&2.into(), &2.into(), &true.into()));
    let (exit, _) = run(&server, "p1", "decide demo a").await;
    assert_eq!(exit, Exit::Done);
    let (exit, refused) = run(&server, "p1", "decide demo b").await;
    assert_eq!(exit, Exit::Refused, "{refused}");

    let (_, listed) = run(&server, "coordinator", "list").await;
    let rows: Vec<&str> = listed.lines().collect();
    assert!(rows[0].starts_with("instance  state") && rows[1].starts_with("demo      running"), "{listed}");
    assert!(rows[1].ends_with(id), "{listed}");
    let (exit, refused) = run(&server, "p1", "close demo").await;
    assert_eq!(exit, Exit::Refused, "{refused}");
    assert_eq!(json(&server, "coordinator", "close demo").await["closed"], id);
    let (exit, closed) = run(&server, "p2", "append demo b --number 2").await;
    assert_eq!(exit, Exit::Ended, "{closed}");
}

#[tokio::test]
async fn a_log_and_an_election_take_a_command_each() {
    let server = server().await;
    let coordinators = async {
        let create = "create --roster ann,bob --join-timeout 50ms";
        let (log, election) =
            (format!("log {create} orders"), format!("elect {create} captain --warp-size 2"));
        tokio::join!(run(&server, "coordinator", &log), run(&server, "coordinator", &election))
    };
    let members = async {
        // Bob is dead.
        let places = run(&server, "ann", "log append orders tea 0x00").await;
        assert_eq!(places, (Exit::Done, "slot 1 position 0\nslot 2 position 0\n".to_owned()));
        let (_, log) = run(&server, "bob", "log read orders").await;
        assert_eq!(log, "slot 1 position 0  member 1  tea\nslot 2 position 0  member 1  0x00\n");
        let (_, log) = run(&server, "bob", "log read orders --from 2 --json").await;
        assert_eq!(log, "{\"member\":1,\"position\":0,\"slot\":2,\"value\":\"0x00\"}\n");
        let none = json(&server, "bob", "elect leader captain").await;
        assert_eq!(none, serde_json::json!({ "epoch": 0, "leader": null }));
        let (ann, bob) = tokio::join!(
            run(&server, "ann", "elect support captain bob"),
            run(&server, "bob", "elect support captain bob --epoch 1 --when-begun")
        );
        assert_eq!(ann, (Exit::Done, "epoch 1  leader bob\n".to_owned()));
        assert_eq!(ann, bob);
        for leader in ["elect leader captain", "elect leader captain --epoch 1"] {
            let leader = json(&server, "ann", leader).await;
            assert_eq!(leader, serde_json::json!({ "epoch": 1, "leader": "bob" }));
        }
        let (exit, error) = run(&server, "ann", "elect leader nobody").await;
        assert!(exit == Exit::Refused && error.contains("nothing of nobody is kept"), "{error}");
        let (exit, error) = run(&server, "ann", "elect support captain eve").await;
        assert_eq!((exit, error.as_str()), (Exit::Usage, "error: eve is no member of captain\n"));
        let (exit, error) = run(&server, "coordinator", "log append orders tea").await;
        assert_eq!(exit, Exit::Usage, "{error}");
    };
    tokio::select! {
        ended = coordinators => panic!("{ended:?}"),
        () = members => {}
    }
}

#[tokio::test]
async fn exit_codes_say_what_kind_of_failure_it_was() {
    let server = server().await;
    let unknown = "0123456789abcdef0123456789abcdef";
    let (exit, out) = run(&server, "p1", &format!("propose --instance {unknown} --value a --json")).await;
    assert_eq!(exit, Exit::Refused, "{out}");
    let record: PlayRecord = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(record.error.unwrap().reason.as_deref(), Some("INSTANCE_UNKNOWN"));

    let (exit, out) = run(&server, "p1", "get nobody").await;
    assert_eq!(exit, Exit::Refused, "{out}");
    let (exit, out) = run(&server, "p1", "create -n 2").await;
    assert_eq!(exit, Exit::Refused, "{out}");
    let (exit, out) = run(&server, "coordinator", "create -n 2 -p 3").await;
    assert_eq!(exit, Exit::Usage, "{out}");
    let (exit, out) = run(&server, "p1", "propose --instance demo --strategy absurd").await;
    assert_eq!(exit, Exit::Usage, "{out}");
}

#[tokio::test]
async fn counts_are_shown_to_those_whom_they_concern() {
    let server = server().await;
    let created = json(&server, "coordinator", "create --roster p1 --roster p2").await;
    let id = created["instance"]["id"].as_str().unwrap();
    for stranger in ["p1", "p3"] {
        let (exit, out) = run(&server, stranger, &format!("close {id}")).await;
        assert_eq!(exit, Exit::Refused, "{out}");
    }
    let own = json(&server, "p1", "counts").await;
    let refused = &own["principals"]["p1"]["refusals"];
    assert_eq!(*refused, serde_json::json!({ "NOT_CREATOR": 1 }));
    assert_eq!(own["principals"].as_object().unwrap().len(), 1, "its own alone");
    let counts = json(&server, "coordinator", "counts p1 p3 nobody").await;
    assert_eq!(counts["principals"], own["principals"], "those of its roster");
    let (exit, text) = run(&server, "coordinator", "counts").await;
    assert_eq!(exit, Exit::Done);
    assert!(text.ends_with("\nprincipal p1: refused NOT_CREATOR 1\n"), "{text}");
}

/// Without a handler a signal ends the program at the limit, without a word.
#[test]
fn output_above_the_limit_of_file_sizes_is_an_error() {
    let path = std::env::temp_dir().join(format!("stickycas-client-output-{}", std::process::id()));
    let mut limited = std::process::Command::new("prlimit");
    limited.args(["--fsize=100", env!("CARGO_BIN_EXE_stickycas-client"), "completions", "bash"]);
    let output = limited.stdout(std::fs::File::create(&path).unwrap()).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && said.contains("File too large"), "{said}");
}

#[tokio::test]
async fn completions_and_man_pages_need_no_server() {
    let folder = std::env::temp_dir().join(format!("stickycas-client-man-{}", std::process::id()));
    let nobody = "127.0.0.1:1";
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (exit, script) = run(nobody, "p1", &format!("completions {shell}")).await;
        assert_eq!(exit, Exit::Done);
        assert!(script.contains("propose") && script.contains("wait-for-instance"), "{shell}");
    }
    let (exit, told) = run(nobody, "p1", &format!("man {}", folder.display())).await;
    assert_eq!((exit, told.as_str()), (Exit::Done, ""));
    for page in ["stickycas-client.1", "stickycas-client-propose.1"] {
        assert!(std::fs::read_to_string(folder.join(page)).unwrap().contains(".SH NAME"), "{page}");
    }
    std::fs::remove_dir_all(folder).unwrap();
    let (exit, version) = run(nobody, "p1", "--version").await;
    assert_eq!(exit, Exit::Done);
    assert!(version.starts_with("stickycas-client 0.1.0 (commit "), "{version}");
}

#[tokio::test]
async fn who_asks_for_a_link_to_the_page_is_told_who_makes_them() {
    for command in ["page-link", "page-link --instance demo --phase 3"] {
        let (exit, told) = run("127.0.0.1:1", "p1", command).await;
        assert_eq!(exit, Exit::Usage, "{told}");
        assert!(told.contains("stickycas-loadgen view --server URL"), "{told}");
    }
}

#[tokio::test]
async fn a_server_of_no_cluster_owns_everything_and_a_dead_one_is_passed_over() {
    let server = server().await;
    let told = json(&server, "p1", "cluster").await;
    assert_eq!((&told["shards"], &told["servers"][0]["address"]), (&1.into(), &server.clone().into()));
    assert_eq!(told["servers"][0]["shards"], serde_json::json!([{ "shard": 0, "epoch": 0 }]));
    // Bound and dropped: nobody listens on this port.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (exit, text) = run(&format!("{dead},http://{server}"), "p1", "cluster").await;
    assert_eq!(exit, Exit::Done, "{text}");
    assert!(text.starts_with("1 shard, 1 server\nin no cluster  "), "{text}");
    let (exit, text) = run(&format!("{dead},http://{server}"), "coordinator", "list").await;
    assert_eq!((exit, text.as_str()), (Exit::Done, ""));
}

/// By a clock that stands still whenever anything is done.
#[tokio::test(start_paused = true)]
async fn no_command_waits_longer_for_a_silent_server_than_it_is_told() {
    // Connections are accepted, and nobody answers on them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let id = "0".repeat(31) + "1";
    let commands = [
        "list",
        "counts demo",
        "cluster",
        "create --processes 3 --roster a,b,c",
        "create --name name --processes 3 --roster a,b,c",
        "get demo",
        "watch demo",
        "close demo",
        "propose --instance demo --value -5",
        "append demo x --number 1",
        "read demo --number 2 --start 0",
        "decide demo x",
    ];
    for command in commands {
        for command in [command.to_owned(), command.replace("demo", &id)] {
            let begun = tokio::time::Instant::now();
            let (exit, said) = run(&address, "p", &format!("{command} --give-up-after 3s")).await;
            assert!(
                begun.elapsed() <= std::time::Duration::from_millis(3_600),
                "{command}: {:?}",
                begun.elapsed()
            );
            assert_eq!(exit, Exit::Unreachable, "{command}: {said}");
        }
    }
}

#[tokio::test]
async fn a_duration_without_end_is_refused_with_its_bound() {
    for command in [
        "list --give-up-after 8000y",
        "list --keep-alive 11y",
        "propose --instance i --value x --wait-for-instance 8000y",
    ] {
        let (exit, said) = run("127.0.0.1:9", "p", command).await;
        assert_eq!(exit, Exit::Usage, "{command}: {said}");
        assert!(said.contains("3650d"), "{command}: {said}");
    }
}

/// A program that is stopped when a test fails.
struct Playing(std::process::Child);

impl Drop for Playing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_waits_says_for_whom() {
    use std::io::BufRead as _;
    let server = server().await;
    json(&server, "coordinator", "create --name demo --roster ann,bob,eve --join-timeout 1h --patience 1h")
        .await;
    let play = |principal: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stickycas-client"));
        command.args(["--server", &format!("http://{server}"), "--principal", principal]);
        command.args(["propose", "--instance", "demo", "--value", "x"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        Playing(command.spawn().unwrap())
    };
    let mut ann = play("ann");
    let lines = std::io::BufReader::new(ann.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    // On a slow machine it also says that the server has not answered yet.
    let mut lines = lines.filter(|line| !line.ends_with(": no answer yet"));
    let mut told = async || tokio::task::block_in_place(|| lines.next().unwrap());
    let missing = told().await;
    let expected = "waiting: 1 of 3 joined, missing 2 (bob), 3 (eve); phase 1 opens at the latest in ";
    assert!(missing.starts_with(expected) && missing.ends_with(" s"), "{missing}");
    let _bob = play("bob");
    assert!(told().await.starts_with("waiting: 2 of 3 joined, missing 3 (eve); phase 1"));
    // It joins, and is silent.
    let _eve =
        tokio::spawn(async move { run(&server, "eve", "propose --instance demo --strategy silent").await });
    assert_eq!(told().await, "waiting: phase 3 waits for 3 (eve)");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_instances_fits_the_terminal() {
    let server = server().await;
    for name in ["first", "second"] {
        json(&server, "coordinator", &format!("create --name {name} --roster ann")).await;
        json(&server, "ann", &format!("propose --instance {name} --value {}", "long-".repeat(20))).await;
    }
    let client = env!("CARGO_BIN_EXE_stickycas-client");
    for (columns, header) in [
        (80, "instance state decided created decision"),
        (60, "instance state decided created decision"),
        (30, "instance state decided"),
    ] {
        let command = format!(
            "stty cols {columns} rows 24; {client} --server http://{server} --principal coordinator list"
        );
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).stdin(std::process::Stdio::null());
        let output = tokio::task::block_in_place(|| script.output().unwrap());
        let listed = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<&str> = listed.lines().map(str::trim_end).collect();
        let words: Vec<_> = rows[0].split_whitespace().collect();
        assert_eq!(words.join(" "), header, "{listed}");
        let starts: Vec<_> = rows.iter().map(|row| row.split(' ').next().unwrap()).collect();
        assert_eq!(starts, ["instance", "first", "second"], "the newest is last: {listed}");
        assert!(rows.iter().all(|row| row.chars().count() <= columns), "{columns}: {listed}");
    }
}

/// What the program writes to a terminal when it logs all that it does, with these variables.
fn on_a_terminal(variables: &[(&str, &str)]) -> String {
    // Nothing listens there: port 9 is for UDP.
    let logged = "--server http://127.0.0.1:9 --principal p -vv list --give-up-after 50ms";
    let command = format!("{} {logged}", env!("CARGO_BIN_EXE_stickycas-client"));
    let mut script = std::process::Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm");
    let output = script.envs(variables.iter().copied()).stdin(std::process::Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_log_has_no_colours_where_nobody_wants_them() {
    let coloured = on_a_terminal(&[]);
    assert!(coloured.contains("TRACE") && coloured.contains('\u{1b}'), "{coloured}");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb"), ("CLICOLOR", "0")] {
        let plain = on_a_terminal(&[variable]);
        assert!(plain.contains("TRACE") && !plain.contains('\u{1b}'), "{variable:?}: {plain}");
    }
}
