//! `load` as people and scripts meet it: exit codes, files, what is printed where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value as Json;
use stickycas_harness::run::OwnServer;
use stickycas_load::LoadResult;
use stickycas_load::limit::Limit;
use stickycas_load::measure::{Label, Measure, OperationOutcome};
use stickycas_model::judge::Outcome;
use stickycas_server::limits::Limits;

use crate::json_schema;

/// The namespace of SVG.
const SVG: &str = "http://www.w3.org/2000/svg";

const QUICK: [&str; 9] =
    ["load", "--instances", "60", "--duration", "1h", "--warm-up", "0s", "--patience", "1m"];

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(arguments).current_dir(folder).env_remove("RUST_LOG").env_remove("STICKYCAS_SERVER");
    command
}

fn loadgen(folder: &Path, arguments: &[&str], more: &[&str]) -> Output {
    command(folder, &[arguments, more].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn schema() -> Json {
    serde_json::from_str(include_str!("../../docs/schema/load-result.schema.json")).unwrap()
}

#[test]
fn a_load_leaves_a_folder_and_says_first_what_held() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let output = loadgen(folder, &QUICK, &["--seed", "7", "--history-sample", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("ok: error_rate 0 % (limit 1 %)\ncorrectness: VALID (60 of 60)\n  60 judged by"),
        "{shown}"
    );
    assert!(text(&output.stderr).starts_with("seed 7\n"));

    let run = folder.join("runs/load-7");
    let file = |name: &str| fs::read_to_string(run.join(name)).unwrap();
    assert_eq!(file("report.txt"), shown);
    assert_eq!(file("seconds.csv").lines().next().unwrap().split(',').count(), 12);
    let page = file("report.html");
    assert!(
        page.contains("</html>") && !page.contains("<script") && !page.contains("http"),
        "it needs nothing else"
    );
    let drawings: Vec<&str> = page.split("<svg id").skip(1).collect();
    assert_eq!(drawings.len(), 4);
    assert!(page.contains("<p class=\"big\"><span>PASSED</span>"), "{page}");
    assert!(page.contains("<p class=\"correctness good\">correct: 60 of 60 instances valid</p>"), "{page}");
    for drawing in drawings {
        let end = drawing.find("</svg>").unwrap() + "</svg>".len();
        let drawing = format!("<svg id{}", &drawing[..end]);
        let dom = roxmltree::Document::parse(&drawing).unwrap();
        let said = |name| dom.descendants().any(|node| node.has_tag_name(name) && node.text().is_some());
        assert!(said("title") && said("desc") && said("text"), "{drawing}");
        assert!(dom.descendants().any(|node| node.attribute("class").is_some_and(|c| c.starts_with("line"))));
    }
    for number in 1..=4 {
        let drawing = file(&format!("figures/{number}.svg"));
        assert!(roxmltree::Document::parse(&drawing).unwrap().root_element().has_tag_name((SVG, "svg")));
    }

    // The effective profile is one, and repeats the run.
    let again = ["load", "--profile", "runs/load-7/profile.toml", "--out", "again", "--json"];
    let again = loadgen(folder, &again, &[]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_eq!(fs::read_to_string(folder.join("again/profile.toml")).unwrap(), file("profile.toml"));
}

#[test]
fn the_result_has_its_schema_and_agrees_with_histograms() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let output = loadgen(folder, &QUICK, &["--json", "--out", "here", "--fail-if", "read_p50 > 0ns"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    assert!(
        told.contains("FAILED: read_p50 ") && told.contains(" (limit 0 us)\nok: error_rate 0 %"),
        "{told}"
    );
    assert!(told.contains("to repeat it: stickycas-loadgen load --"), "{told}");
    let page = fs::read_to_string(folder.join("here/report.html")).unwrap();
    assert!(page.contains("<p class=\"big\"><span>FAILED</span> 1 of 2 conditions</p>"), "{page}");
    assert_eq!(text(&output.stdout), fs::read_to_string(folder.join("here/result.json")).unwrap());
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    let schema = schema();
    assert_eq!(json_schema::faults(&schema, &schema, &json, ""), [""; 0]);
    let mut wrong = json.clone();
    wrong["figures"]["rate"] = "fast".into();
    assert_eq!(json_schema::faults(&schema, &schema, &wrong, ""), ["/figures/rate: type"]);

    let result: LoadResult = serde_json::from_value(json).unwrap();
    assert_eq!((result.verdict, result.judged.valid, result.exit().code()), (Outcome::Valid, 60, 1));
    let log = fs::read(folder.join("here/latencies.hlog")).unwrap();
    let mut counted = 0;
    for entry in IntervalLogIterator::new(&log) {
        let LogEntry::Interval(interval) = entry.unwrap() else { continue };
        let label: Label = interval.tag().unwrap().as_str().parse().unwrap();
        if label == Label::own(Measure::Instance, OperationOutcome::Done) {
            let bytes = BASE64_STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            counted += histogram.len();
        }
    }
    assert_eq!(counted, 60);
}

#[test]
fn a_wrong_profile_or_flag_is_reported_with_its_place() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let wrong = |arguments: &[&str]| {
        let output = loadgen(folder, &["load"], arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        text(&output.stderr)
    };
    assert!(wrong(&["--rate", "0"]).contains("--rate 0: rate = 0: give instances per second"));
    assert!(wrong(&["--profile", "none.toml"]).contains("none.toml: No such file"));
    assert!(wrong(&["--rate", "4", "--in-flight", "4"]).contains("cannot be used with"));
    assert!(wrong(&["--json", "--json-lines", "-"]).contains("both go to standard output"));
    assert!(wrong(&["--ramp", "4"]).contains("give two rates as FROM..TO"));
    fs::write(
        folder.join("a.toml"),
        "name = \"a\"\n[instance]\nprocesses = 0\nwarp_size = 1\nread_size = 1\n[load]\n",
    )
    .unwrap();
    assert!(wrong(&["--profile", "a.toml"]).contains("a.toml:3: n = 0 processes"));
    fs::create_dir(folder.join("taken")).unwrap();
    fs::write(folder.join("taken/file"), "").unwrap();
    assert!(wrong(&["--out", "taken"]).contains("taken exists already: give another --out"));
}

#[test]
fn a_server_that_does_not_answer_is_told_also_as_json() {
    let temporary = tempfile::tempdir().unwrap();
    let output = loadgen(temporary.path(), &["load", "--json", "--server", "http://127.0.0.1:1"], &[]);
    assert_eq!(output.status.code(), Some(3));
    let error: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["error"]["kind"], "not_possible");
    assert!(error["error"]["message"].as_str().unwrap().contains("Connection refused"), "{error}");
    let nobody = text(&output.stderr);
    assert!(nobody.contains("error: http://127.0.0.1:1: Connection refused"), "{nobody}");
    assert!(
        nobody.contains("stickycas-server serve --in-memory --insecure-principals --coordinator loadgen"),
        "{nobody}"
    );
}

#[test]
fn an_interrupt_ends_it_early_and_shows_what_there_is() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let endless = ["load", "--duration", "1h", "--warm-up", "0s", "--seed", "3"];
    let mut child = command(folder, &endless).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
    let busy = lines.find(|line| line.contains("instances/s"));
    assert!(busy.is_some_and(|line| line.contains("in flight")), "it tells how far it is");
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("correctness: VALID (") && shown.contains("interrupted before its time"),
        "{shown}"
    );
    assert!(folder.join("runs/load-3/report.html").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_elsewhere_is_loaded_by_its_address() {
    let server = OwnServer::start().await.unwrap();
    let url = server.url().to_owned();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let arguments = [&QUICK[..], &["--server", &url, "--transport", "unary", "--json"]].concat().join(" ");
    let output =
        tokio::task::spawn_blocking(move || loadgen(&folder, &arguments.split(' ').collect::<Vec<_>>(), &[]));
    let output = output.await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result: LoadResult = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result.hosts[0].server.as_deref(), Some(url.as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_no_instance_can_begin_ends_at_once() {
    let server = OwnServer::start().await.unwrap();
    let url = server.url().to_owned();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    tokio::task::spawn_blocking(move || {
        let endless = ["load", "--server", &url, "--coordinator", "somebody", "--duration", "1h"];
        for more in [&[][..], &["--rate", "50"], &["--find-limit", "instance_p99 < 1s"]] {
            let output = loadgen(&folder, &endless, more);
            assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
            let told = text(&output.stderr);
            assert!(told.contains("no instance can be created: NOT_COORDINATOR: "), "{told}");
            assert!(told.contains("start the server with --coordinator somebody"), "{told}");
        }
        assert!(!folder.join("runs").exists(), "there is no result");
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generators_that_begin_together_are_merged() {
    let server = OwnServer::start().await.unwrap();
    let url = server.url().to_owned();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    tokio::task::spawn_blocking(move || {
        // A moment that its text tells exactly.
        let at = humantime::format_rfc3339_seconds(SystemTime::now() + Duration::from_secs(10)).to_string();
        let begin = humantime::parse_rfc3339(&at).unwrap();
        let generators = ["a", "b"].map(|name| {
            let prefix = format!("load.principal_prefix={name}");
            let arguments = ["load", "--server", &url, "--set", &prefix, "--out", name, "--start-at", &at];
            let more = ["--duration", "6s", "--warm-up", "0s", "--in-flight", "2"];
            let mut child = command(&folder, &[&arguments[..], &more].concat());
            child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        for generator in generators {
            let output = generator.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
        let merged = loadgen(&folder, &["report", "merge", "a", "b", "--out", "both", "--json"], &[]);
        assert_eq!(merged.status.code(), Some(0), "{}", text(&merged.stderr));
        let both: LoadResult = serde_json::from_slice(&merged.stdout).unwrap();
        assert_eq!(both.hosts.len(), 2);
        assert!(humantime::parse_rfc3339(&both.began).unwrap() >= begin, "{}", both.began);
        let passed = loadgen(&folder, &["load", "--start-at", "2020-01-31T12:00:00Z"], &[]);
        assert_eq!(passed.status.code(), Some(2));
        assert!(text(&passed.stderr).contains("this time has passed"), "{}", text(&passed.stderr));
    })
    .await
    .unwrap();
}

#[test]
fn a_line_of_json_for_each_second_has_the_keys_of_the_page() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let output = loadgen(folder, &QUICK, &["--json-lines", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("correctness: VALID (60 of 60)"), "{}", text(&output.stderr));
    let lines: Vec<Json> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["done"].as_u64().unwrap()).sum::<u64>(), 60);
    assert_eq!(lines.last().unwrap()["valid"], 60);
    let (_, page) = include_str!("../../docs/use/files.md").split_once("## `--json-lines`").unwrap();
    for key in lines[0].as_object().unwrap().keys() {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
    let kept = loadgen(folder, &QUICK, &["--json-lines", "lines", "--out", "kept"]);
    assert!(text(&kept.stdout).contains("correctness: VALID (60 of 60)"), "{}", text(&kept.stdout));
    let kept = fs::read_to_string(folder.join("lines")).unwrap();
    assert!(kept.lines().all(|line| line.starts_with("{\"time\":\"")) && kept.ends_with("}\n"), "{kept}");
}

#[test]
fn a_load_shows_its_figures_to_prometheus() {
    let temporary = tempfile::tempdir().unwrap();
    let endless = ["load", "--duration", "1h", "--warm-up", "0s", "--metrics", "127.0.0.1:0"];
    let mut child =
        command(temporary.path(), &endless).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| Some(line.strip_prefix("metrics: http://")?.to_owned())).unwrap();
    let busy = |line: &String| line.contains(" instances/s") && !line.contains("  0 instances/s");
    lines.find(busy).unwrap();
    let mut asked = TcpStream::connect(address.strip_suffix("/metrics").unwrap()).unwrap();
    asked.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    asked.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("application/openmetrics-text"),
        "{answer}"
    );
    let done = answer
        .lines()
        .find_map(|line| line.strip_prefix("stickycas_load_instances_total{outcome=\"done\"} "));
    assert!(done.is_some_and(|done| done.parse::<u64>().unwrap() > 0), "{answer}");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mostly_refused_load_fails_and_says_so_first() {
    let server =
        OwnServer::start_with(Limits { instances_per_creator: 3, ..Limits::default() }).await.unwrap();
    let url = server.url().to_owned();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    tokio::task::spawn_blocking(move || {
        let out = |more: &[&str]| loadgen(&folder, &[&QUICK[..], &["--server", &url]].concat(), more);
        let output = out(&["--out", "refused", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let told = text(&output.stderr);
        let both = "FAILED: error_rate 95 % (limit 1 %)\ncorrectness: VALID (3 of 60; 57 not created)\n";
        assert!(told.contains(both), "{told}");
        let json: Json = serde_json::from_slice(&output.stdout).unwrap();
        let schema = schema();
        assert_eq!(json_schema::faults(&schema, &schema, &json, ""), [""; 0]);
        // What the server said of the first, wherever one looks.
        let message = json["messages"]["TOO_MANY_INSTANCES"].as_str().unwrap().to_owned();
        assert!(!message.is_empty() && !message.contains("TOO_MANY_INSTANCES"), "{message}");
        assert!(told.contains(&format!("the first TOO_MANY_INSTANCES: {message}")), "{told}");
        let page = fs::read_to_string(folder.join("refused/report.html")).unwrap();
        assert!(page.contains(&message.replace('"', "&quot;")), "{message}");
        // Who expects refusals may say so, but not that nothing is measured.
        let expected = out(&["--max-errors", "1", "--out", "expected"]);
        assert_eq!(expected.status.code(), Some(4), "{expected:?}");
        assert!(text(&expected.stdout).starts_with("FAILED: no instance came to its end\n"), "{expected:?}");
        let own = text(&out(&["--fail-if", "errors > 60", "--out", "own"]).stdout);
        assert!(own.starts_with("FAILED: no instance came to its end\n"), "{own}");
    })
    .await
    .unwrap();
}

#[test]
fn a_short_load_has_a_short_warm_up_unless_it_was_asked_for() {
    let temporary = tempfile::tempdir().unwrap();
    let output = loadgen(temporary.path(), &["load", "--duration", "200ms", "--out", "short"], &[]);
    // It was run; whether so short a load keeps its rate depends on what else the machine does.
    assert!(matches!(output.status.code(), Some(0 | 1 | 4)), "{}", text(&output.stderr));
    let profile = fs::read_to_string(temporary.path().join("short/profile.toml")).unwrap();
    assert!(profile.contains("warm_up = \"20ms\""), "{profile}");
    let output = loadgen(temporary.path(), &["load", "--duration", "200ms", "--warm-up", "1s"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("give less than the whole 200ms"), "{}", text(&output.stderr));
}

/// As if they had been made at the same time, as on several machines.
fn at_the_same_time(folder: &Path, names: &[&str]) {
    let file = |name: &str| folder.join(name).join("result.json");
    let read = |name: &str| -> Json { serde_json::from_slice(&fs::read(file(name)).unwrap()).unwrap() };
    let first = read(names[0]);
    for name in names {
        let mut result = read(name);
        result["began"] = first["began"].clone();
        result["figures"]["seconds"] = first["figures"]["seconds"].clone();
        fs::write(file(name), result.to_string()).unwrap();
    }
}

#[test]
fn results_of_several_generators_are_merged_into_one() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    for (name, seed) in [("one", "1"), ("two", "2"), ("three", "3")] {
        let output = loadgen(folder, &QUICK, &["--seed", seed, "--out", name, "--fail-if", "errors > 0"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let apart = loadgen(folder, &["report", "merge", "two", "one", "three", "--out", "all"], &[]);
    assert_eq!(apart.status.code(), Some(2));
    assert!(text(&apart.stderr).contains("rates add up only if all measure"), "{}", text(&apart.stderr));
    at_the_same_time(folder, &["one", "two", "three"]);
    let merged = loadgen(folder, &["report", "merge", "two", "one", "three", "--out", "all", "--json"], &[]);
    assert_eq!(merged.status.code(), Some(0), "{}", text(&merged.stderr));
    let json: Json = serde_json::from_slice(&merged.stdout).unwrap();
    let schema = schema();
    assert_eq!(json_schema::faults(&schema, &schema, &json, ""), [""; 0]);
    let all: LoadResult = serde_json::from_value(json).unwrap();
    let read = |name: &str| -> LoadResult {
        serde_json::from_str(&fs::read_to_string(folder.join(name).join("result.json")).unwrap()).unwrap()
    };
    let parts = [read("one"), read("two"), read("three")];
    assert_eq!((all.judged.valid, all.figures.counts.done, all.hosts.len()), (180, 180, 3));
    assert_eq!(all.began, parts[0].began);
    let rates: f64 = parts.iter().map(|part| part.figures.rate).sum();
    assert!((all.figures.rate / rates - 1.0).abs() < 1e-9, "{} and {rates}", all.figures.rate);
    for measure in [Measure::Instance, Measure::Append, Measure::Read] {
        let latency = all.figures.latency(measure).unwrap();
        let of_parts = parts.iter().map(|part| part.figures.latency(measure).unwrap());
        assert_eq!(latency.count, of_parts.clone().map(|part| part.count).sum::<u64>());
        assert_eq!(latency.max, of_parts.map(|part| part.max).max().unwrap());
    }
    // What is merged can be merged again, and is a baseline.
    let again = loadgen(folder, &["report", "merge", "all", "--out", "again"], &[]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let none = loadgen(folder, &["report", "merge", "nowhere"], &[]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("cannot read nowhere"), "{}", text(&none.stderr));
}

#[test]
fn what_is_worse_than_the_baseline_fails_the_run() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    assert_eq!(loadgen(folder, &QUICK, &["--out", "before"]).status.code(), Some(0));
    let file = folder.join("before/result.json");
    let mut before: LoadResult = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let same = loadgen(folder, &QUICK, &["--baseline", "before", "--noise", "1000", "--out", "same"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("baseline: rate "), "{}", text(&same.stdout));
    before.figures.rate = 1e9;
    fs::write(&file, serde_json::to_string(&before).unwrap()).unwrap();
    let worse = loadgen(folder, &QUICK, &["--baseline", "before/result.json", "--json", "--out", "worse"]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse.stderr));
    let json: Json = serde_json::from_slice(&worse.stdout).unwrap();
    let schema = schema();
    assert_eq!(json_schema::faults(&schema, &schema, &json, ""), [""; 0]);
    assert_eq!(json["baseline"][0]["worse"], true);
    let failed = "rate worse than the baseline by more than 10 %";
    assert!(json["failed"].as_array().unwrap().iter().any(|it| it["condition"] == failed), "{json}");
}

#[test]
fn a_search_for_the_limit_leaves_a_folder_with_its_probes() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    // With room for one instance only, starts are soon dropped.
    let arguments =
        ["load", "--rate", "40", "--duration", "100ms", "--warm-up", "0s", "--max-in-flight", "1"];
    let search = ["--find-limit", "instance_p99 < 1h", "--repeats", "2", "--precision", "0.5", "--json"];
    let output = loadgen(folder, &arguments, &search);
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    let schema: Json =
        serde_json::from_str(include_str!("../../docs/schema/load-limit.schema.json")).unwrap();
    assert_eq!(json_schema::faults(&schema, &schema, &json, ""), [""; 0]);
    let limit: Limit = serde_json::from_value(json).unwrap();
    assert_eq!(
        output.status.code(),
        Some(match (limit.rate, limit.is_settled()) {
            (None, _) => 1,
            (Some(_), false) => 4,
            (Some(_), true) => 0,
        }),
        "{}",
        text(&output.stderr)
    );
    let told = text(&output.stderr);
    assert!(told.contains("2 searches, some ") && told.contains("search 1 of 2, about "), "{told}");
    // One search alone, in which every rate holds, settles on nothing.
    let arguments = ["load", "--instances", "2", "--duration", "1s", "--rate", "1000", "--warm-up", "0s"];
    let search =
        ["--find-limit", "instance_p99 < 1h", "--repeats", "1", "--precision", "0.9", "--max-missed", "1"];
    let open = loadgen(folder, &arguments, &search);
    assert_eq!(open.status.code(), Some(4), "{}", text(&open.stderr));
    let found = text(&open.stdout);
    assert!(found.lines().next().unwrap().ends_with("/s (one search: no interval; NOT SETTLED)"), "{found}");
    assert_eq!(limit.verdict, Outcome::Valid);
    let kept = limit.probes.iter().filter(|probe| probe.held).count();
    assert!(kept < limit.probes.len() && limit.searches.len() <= 2, "{limit:?}");
    assert_eq!(text(&output.stdout), fs::read_to_string(folder.join("runs/load-limit/limit.json")).unwrap());
    let probes = fs::read_to_string(folder.join("runs/load-limit/probes.csv")).unwrap();
    assert_eq!(probes.lines().count(), limit.probes.len() + 1);

    let closed = loadgen(folder, &["load", "--find-limit", "rate > 1", "--in-flight", "4"], &[]);
    assert_eq!(closed.status.code(), Some(2));
}

#[test]
fn instances_that_are_not_valid_are_kept_as_run_folders() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let profile = "name = \"over\"\nseed = 4\n[instance]\nprocesses = 8\nwarp_size = 2\nread_size = 4\n\
                   arbiter = \"byzantine_first\"\n[[faults]]\ncount = 4\nstrategy = \"collude(value=0)\"\n\
                   [load]\nin_flight = 4\ninstances = 20\nhistory_sample = 1\n";
    fs::write(folder.join("over.toml"), profile).unwrap();
    let output = loadgen(folder, &["load", "--profile", "over.toml"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("\ncorrectness: BROKEN (20 of 20)\n"), "{shown}");
    assert!(shown.contains("strong validity"), "{shown}");
    let kept = fs::read_dir(folder.join("runs/over-4/instances")).unwrap().map(|entry| entry.unwrap().path());
    let (kept, seen): (Vec<_>, Vec<_>) = kept.partition(|path| path.is_dir());
    assert_eq!(kept.len(), 8, "as many as are kept of one kind");
    assert_eq!(seen.len(), 8, "what was seen stands beside each");
    let replayed = loadgen(folder, &["replay", kept[0].to_str().unwrap()], &[]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
}

#[test]
fn too_many_connections_for_this_process_are_refused_at_once() {
    let temporary = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_stickycas-loadgen");
    let limited = format!("ulimit -n 256 && exec {program} load --rosters 20");
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]).current_dir(temporary.path()).env_remove("STICKYCAS_SERVER");
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output.stderr);
    assert!(told.contains("160 connections need 384 open files, and this process may have 256"), "{told}");
}
