//! What operators see: `/livez`, `/readyz`, `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stickycas_proto::v1::{ListRequest, Parameters, RefusalReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Request;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::handshakes::{connect_from, flood};
use crate::harness::fixtures::{append, instance, instance_with, parameters, play, principal};
use crate::harness::raw::{RawClient, prefixed};
use crate::harness::{COORDINATOR, Server, with_timeout};

/// What operators get.
impl Server {
    pub(crate) async fn get(&self, path: &str) -> (String, String) {
        get(self.http, path).await
    }

    async fn raw(&self, bytes: &[u8]) -> String {
        raw(self.http, bytes).await
    }

    /// Every series with its value.
    async fn series(&self) -> BTreeMap<String, f64> {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
            })
            .collect()
    }
}

/// The status line and the body of a page.
pub(crate) async fn get(http: SocketAddr, path: &str) -> (String, String) {
    let answer = raw(http, format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

/// All that the server answers to these bytes.
async fn raw(http: SocketAddr, bytes: &[u8]) -> String {
    let mut tcp = TcpStream::connect(http).await.unwrap();
    // The server may have refused by now.
    let _ = tcp.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = with_timeout(tcp.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn probes_and_metrics_are_there_and_nothing_else() {
    let server = Server::start().await;
    assert_eq!(server.get("/livez").await, ("HTTP/1.1 200 OK".to_owned(), "alive\n".to_owned()));
    assert_eq!(server.get("/readyz").await, ("HTTP/1.1 200 OK".to_owned(), "ready\n".to_owned()));
    for path in ["/", "/metrics/", "/favicon.ico", "/livez/x", "/..%2f"] {
        assert_eq!(server.get(path).await.0, "HTTP/1.1 404 Not Found", "{path}");
    }
    let posted = server.raw(b"POST /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").await;
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
}

#[tokio::test]
async fn large_headers_are_refused_and_silent_clients_hold_nobody_up() {
    let server = Server::start().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut tcp = TcpStream::connect(server.http).await.unwrap();
        tcp.write_all(b"GET /metrics HT").await.unwrap();
        silent.push(tcp);
    }
    let large = format!("GET /livez HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(64 * 1024));
    let answer = server.raw(large.as_bytes()).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    let many = format!("GET /livez HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
    assert!(!server.raw(many.as_bytes()).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.get("/livez").await.0, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn probes_are_answered_however_many_half_sent_requests_wait() {
    const HELD: u8 = 200;
    const PLACES: usize = 64;
    let server = Server::start().await;
    // From the address of the probes, and from others.
    for addresses in [1, 5] {
        let mut held = Vec::new();
        for number in 0..HELD {
            let mut tcp = connect_from(1 + number % addresses, server.http).await.unwrap();
            tcp.write_all(b"GET /livez HT").await.unwrap();
            held.push(tcp);
        }
        for path in ["/livez", "/readyz", "/metrics"].repeat(10) {
            assert_eq!(server.get(path).await.0, "HTTP/1.1 200 OK", "{path}");
        }
        let closed = held.iter().filter(
            |tcp| !matches!(tcp.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock),
        );
        assert!(closed.count() >= usize::from(HELD) - PLACES, "the oldest have made room");
    }
}

#[tokio::test]
async fn probes_are_answered_beside_floods_from_other_addresses() {
    let server = Server::start().await;
    let (flood, connected) = flood(server.http);
    for _ in 0..5 {
        let before = connected.load(Ordering::Relaxed);
        with_timeout(async {
            while connected.load(Ordering::Relaxed) < before + 200 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(server.get("/livez").await.0, "HTTP/1.1 200 OK");
    }
    drop(flood);
}

#[tokio::test]
async fn who_sends_a_request_and_no_more_is_answered() {
    let server = Server::start().await;
    for path in ["/livez", "/readyz", "/metrics"].repeat(50) {
        let mut tcp = TcpStream::connect(server.http).await.unwrap();
        tcp.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut answer = String::new();
        with_timeout(tcp.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn browsers_that_were_led_here_by_another_name_are_refused() {
    let server = Server::with(|config| config.http_hosts = vec!["ops.example".to_owned()]).await;
    let status = async |request: &str| {
        let answer = server.raw(format!("{request}\r\n\r\n").as_bytes()).await;
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    for host in [
        "localhost",
        "LOCALHOST:7421",
        "127.0.0.1",
        "127.0.0.9:1",
        "[::1]:7421",
        "10.1.2.3:9",
        "ops.example:1",
    ] {
        assert_eq!(status(&format!("GET /livez HTTP/1.1\r\nhost: {host}")).await, "200", "{host}");
    }
    assert_eq!(status("GET /livez HTTP/1.0").await, "200", "as older probes ask");
    for host in ["evil.example", "evil.example:7421", "localhost.evil.example", "127.0.0.1.evil.example", ""]
    {
        for path in ["/livez", "/metrics", "/nothing"] {
            assert_eq!(status(&format!("GET {path} HTTP/1.1\r\nhost: {host}")).await, "421", "{host}");
        }
    }
    let two = "GET http://evil.example/metrics HTTP/1.1\r\nhost: evil.example";
    assert_eq!(status(two).await, "421");
}

#[tokio::test]
async fn a_server_that_drains_says_so_and_every_service_is_not_serving() {
    let server = Server::with(|config| config.drain = Duration::from_secs(60)).await;
    let mut health = HealthClient::new(server.connect().await);
    let services =
        ["", "stickycas.v1.StickyCasService", "stickycas.v1.InstanceService", "stickycas.v1.ServerService"];
    for service in services {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let mut watches = Vec::new();
    for service in services {
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut watch = health.watch(request).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        watches.push(watch);
    }
    // A connection that does not end keeps the server draining.
    let mut raw = RawClient::connect(server.address).await;
    let _call = raw.begin("StickyCasService/Append", &[("stickycas-principal", "p1")]).await;
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    let http = server.http;
    let stopping = server.begin_shutdown();
    for mut watch in watches {
        assert_eq!(with_timeout(watch.message()).await.unwrap().unwrap().status(), ServingStatus::NotServing);
    }
    let (status, words) = get(http, "/readyz").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(words.starts_with("not ready: ") && words.contains("told to stop"), "{words}");
    assert_eq!(get(http, "/livez").await.0, "HTTP/1.1 200 OK");
    drop(stopping);
}

#[tokio::test]
async fn hostile_clients_and_many_principals_add_no_series() {
    let server = Server::start().await;
    let before: BTreeSet<String> = server.series().await.into_keys().collect();
    for number in 0..50 {
        let mut client = server.client(&format!("p{number}")).await;
        client.instances.list(Request::new(ListRequest::default())).await.unwrap();
        let mut raw = RawClient::connect(server.address).await;
        let name = format!("hostile-{number}");
        raw.call_as(&name, &format!("StickyCasService/Method{number}"), prefixed(&[])).await;
        raw.call_as(&name, "StickyCasService/Append", prefixed(&[0xff; 9])).await;
        raw.call_as("p\"} 1", "StickyCasService/Append", prefixed(&[])).await;
    }
    let after = server.series().await;
    assert_eq!(after.keys().cloned().collect::<BTreeSet<_>>(), before);
    assert!(after.len() < 700, "{}", after.len());
    let value = |series: &str| after[series] as u64;
    assert_eq!(value("stickycas_calls_total{method=\"unknown\"}"), 50, "the attack took place");
    assert_eq!(value("stickycas_refusals_total{reason=\"MALFORMED\"}"), 50);
    assert_eq!(value("stickycas_limit_used{limit=\"principals\"}"), 100);
    assert_eq!(value("stickycas_limit_bound{limit=\"principals\"}"), 131_072);
}

#[tokio::test]
async fn what_instances_do_is_counted_when_it_is_done() {
    let server = Server::start().await;
    let before = server.series().await;
    assert!(before["stickycas_build_info{version=\"0.1.0\",commit=\"unknown\"}"] > 0.0, "{before:?}");
    let played = instance(&server).await;
    let waiting = instance(&server).await;
    let gathering = instance_with(&server, parameters()).await;
    play(&server, &played, "yes").await;
    let mut client = server.client(&principal(1)).await;
    let _pending = client.append_and_wait(&waiting, "yes").await;
    // Refused: not a process of the instance.
    let mut stranger = server.client("stranger").await;
    stranger.list.append(append(&gathering, 1, "yes")).await.unwrap_err();
    let now = server.series().await;
    assert!(now["stickycas_quota_used_max{quota=\"connections\"}"] > 0.5);
    assert!(now["stickycas_quota_bound{quota=\"connections\"}"] > 1.5);
    let grown = |series: &str| {
        let value =
            |all: &BTreeMap<String, f64>| *all.get(series).unwrap_or_else(|| panic!("no {series}: {all:?}"));
        value(&now) - value(&before)
    };
    let close_to = |series: &str, expected: f64| {
        assert!((grown(series) - expected).abs() < 0.5, "{series}: {} and not {expected}", grown(series));
    };
    close_to("stickycas_instance_events_total{event=\"created\"}", 3.0);
    close_to("stickycas_instance_events_total{event=\"finished\"}", 1.0);
    close_to("stickycas_instances{state=\"finished\"}", 1.0);
    close_to("stickycas_instances{state=\"closed\"}", 0.0);
    close_to("stickycas_call_seconds_count{method=\"Create\"}", 3.0);
    // The one that was refused, and the ones of the instance that was played; not the one that waits.
    close_to(
        "stickycas_call_seconds_count{method=\"Append\"}",
        grown("stickycas_calls_total{method=\"Append\"}") - 1.0,
    );
    close_to("stickycas_call_seconds_bucket{le=\"+Inf\",method=\"Create\"}", 3.0);
    assert!(grown("stickycas_call_seconds_sum{method=\"Create\"}") > 0.0);
    assert!(
        !now.keys().any(|series| series.starts_with("stickycas_call_seconds") && series.contains("Attach"))
    );
    close_to("stickycas_limit_used{limit=\"live_instances\"}", 2.0);
    close_to("stickycas_limit_used{limit=\"instances\"}", 3.0);
    close_to("stickycas_accesses_waiting", 1.0);
    close_to("stickycas_calls_ended_total{method=\"Append\",code=\"PERMISSION_DENIED\"}", 1.0);
    close_to("stickycas_calls_ended_total{method=\"Create\",code=\"OK\"}", 3.0);
    close_to(&format!("stickycas_refusals_total{{reason=\"{}\"}}", RefusalReason::NotAMember.name()), 1.0);
    for more in [
        "stickycas_phases_total{outcome=\"won\"}",
        "stickycas_accesses_accepted_total{kind=\"append\"}",
        "stickycas_accesses_answered_total{answer=\"success\"}",
        "stickycas_accesses_answered_total{answer=\"read\"}",
        "stickycas_process_events_total{event=\"decided\"}",
        "stickycas_calls_total{method=\"Create\"}",
        "stickycas_connections_accepted_total",
    ] {
        assert!(grown(more) > 0.0, "{more}");
    }
    // A close withdraws what waits.
    server.client(COORDINATOR).await.close(&waiting).await.unwrap();
    let closed = server.series().await;
    assert!(closed["stickycas_accesses_waiting"].abs() < 0.5, "{closed:?}");
    assert!(closed["stickycas_accesses_withdrawn_total"] > 0.5);
    let ended = async || {
        let series = server.series().await;
        ["finished", "closed"]
            .map(|state| series[&format!("stickycas_instances{{state=\"{state}\"}}")] as i64)
    };
    assert_eq!(ended().await, [1, 1]);
    // One that has finished may be closed as well.
    server.client(COORDINATOR).await.close(&played).await.unwrap();
    assert_eq!(ended().await, [0, 2]);
}

#[tokio::test]
async fn a_phase_that_opens_is_counted_before_it_is_executed() {
    let server = Server::start().await;
    let id = instance_with(&server, Parameters { warp_size: 3, ..parameters() }).await;
    let opened_and_executed = async || {
        let series = server.series().await;
        let executed =
            |outcome: &str| series[&format!("stickycas_phases_total{{outcome=\"{outcome}\"}}")] as u64;
        (series["stickycas_phases_opened_total"] as u64, executed("won") + executed("empty"))
    };
    let mut first = server.client(&principal(1)).await;
    let mut second = server.client(&principal(2)).await;
    let pending = [first.append_and_wait(&id, "yes").await, second.append_and_wait(&id, "yes").await];
    assert_eq!(opened_and_executed().await, (0, 0), "processes gather");
    server.client(&principal(3)).await.append(&id, 1, "yes").await.unwrap();
    for append in pending {
        append.await.unwrap().unwrap();
    }
    assert_eq!(opened_and_executed().await, (1, 1));
    let reader = tokio::spawn({
        let (mut client, id) = (first.clone(), id.clone());
        async move { client.read(&id, 2).await }
    });
    first.until_waiting(&id, 2).await;
    assert_eq!(opened_and_executed().await, (2, 1), "it waits for the other two");
    reader.abort();
}

#[tokio::test]
async fn an_instance_that_expires_has_no_waiting_accesses_any_more() {
    let server = Server::with(|config| {
        config.limits.idle_lifetime = Duration::from_millis(20);
        config.limits.retention = Duration::from_millis(1);
    })
    .await;
    // Nobody else comes, so its access waits until the instance has expired.
    let mut client = server.client(&principal(1)).await;
    let waits = async {
        loop {
            let id = instance_with(&server, parameters()).await;
            // Refused when the instance expires; it may have expired before.
            client.append(&id, 1, "yes").await.unwrap_err();
            if server.series().await["stickycas_accesses_accepted_total{kind=\"append\"}"] > 0.0 {
                return;
            }
        }
    };
    with_timeout(waits).await;
    with_timeout(async {
        while server.series().await["stickycas_instances{state=\"gathering\"}"] > 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(server.series().await["stickycas_accesses_waiting"].abs() < 0.5);
}

/// The rows of the table of metrics: name, kind, labels, explanation.
fn metric_rows(text: &str) -> String {
    let mut rows = String::from("| metric | kind | labels | |\n| --- | --- | --- | --- |\n");
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap();
        let first = lines.peek().unwrap();
        let labels = first.split_once('{').map_or("", |(_, labels)| labels.split('}').next().unwrap());
        let labels: Vec<_> = labels.split("\",").filter_map(|label| label.split_once('=')).collect();
        let labels: Vec<_> = labels.iter().map(|(label, _)| format!("`{label}`")).collect();
        let total = if kind == "counter" { "_total" } else { "" };
        rows += &format!("| `{name}{total}` | {kind} | {} | {help} |\n", labels.join(", "));
    }
    rows
}

#[tokio::test]
async fn the_table_of_metrics_is_the_one_in_the_documentation() {
    let server = Server::start().await;
    let rows = metric_rows(&server.get("/metrics").await.1);
    assert!(rows.contains("| `stickycas_phases_total` | counter | `outcome` | "), "{rows}");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/operations.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- metrics: ").unwrap();
    let (note, rest) = rest.split_once("-->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of metrics -->").unwrap();
    let expected = format!("{before}<!-- metrics: {note}-->\n\n{rows}\n<!-- end of metrics -->{after}");
    if std::env::var_os("STICKYCAS_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "docs/operate/operations.md has another table of metrics:\n{rows}");
    }
}

#[test]
fn dashboard_and_rules_name_metrics_that_are_documented() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let page = read("docs/operate/operations.md");
    let mut found = 0;
    for file in ["deploy/grafana/stickycas-server.json", "deploy/prometheus/alerts.yml"] {
        let text = read(file);
        let names = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let is_metric = |name: &&str| name.starts_with("stickycas_") || name.starts_with("process_");
        // Not a prefix that a comment names.
        for name in names.filter(|name| is_metric(name) && !name.ends_with('_')) {
            let parts = ["_bucket", "_sum", "_count"];
            let base = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
            let known = [name, base].iter().any(|name| page.contains(&format!("`{name}`")));
            assert!(known, "{file}: {name}");
            found += 1;
        }
    }
    assert!(found > 30, "{found}");
}
