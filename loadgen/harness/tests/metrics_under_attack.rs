//! What operators see of each wire attack at `/metrics`: which series grow, and that no series is added,
//! whatever is attacked and by whom. The table in `docs/operate/operations.md` is made from here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use stickycas_harness::run::{self, COORDINATOR, RunOptions, ServerHandle};
use stickycas_model::byzantine::WireAttack;
use stickycas_model::judge::Outcome;
use stickycas_server::limits::Limits;
use stickycas_server::{Config, Listeners, ServeError, Stopped};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::wire_attacks::{in_short, scenario};

/// Families of series that grow only by what no correct process does, each with its label.
const FAMILIES: [(&str, &str); 3] = [
    ("stickycas_offences_total", "kind"),
    ("stickycas_refusals_total", "reason"),
    ("stickycas_client_faults_total", "kind"),
];

/// The series that an attack makes grow, as values of the labels of the families, in their order.
type Grows = [&'static [&'static str]; 3];

/// For each attack the series that always grow.
const GROWS: [(&str, Grows); 13] = [
    (
        "impersonate",
        [
            &["foreign_identity"],
            &["MALFORMED", "NO_IDENTITY", "NOT_A_MEMBER", "NOT_CREATOR", "NOT_COORDINATOR"],
            &[],
        ],
    ),
    ("out-of-turn", [&[], &["NOT_YOUR_PHASE"], &[]]),
    ("double", [&["other_content"], &["ACCESS_CONTENT_DIFFERS"], &[]]),
    ("replay", [&[], &["SESSION_REPLACED", "PROCESS_LEFT"], &["access_repeated", "session_replaced"]]),
    ("flood", [&["quota_exceeded"], &["TOO_MANY_WAITING", "ACCESS_NUMBER_OUT_OF_ORDER"], &[]]),
    ("oversize", [&["oversized"], &["VALUE_TOO_LARGE"], &["message_oversized"]]),
    ("garbage", [&["malformed"], &["MALFORMED"], &["message_undecodable"]]),
    ("slow-read", [&[], &[], &["stream_stalled"]]),
    ("slow-open", [&[], &[], &["connection_silent"]]),
    ("reset-flood", [&[], &[], &["connection_reset_flooded", "connection_paced"]]),
    ("handshake-flood", [&[], &[], &["connection_silent"]]),
    ("frame-flood", [&[], &[], &["connection_paced"]]),
    // On a listener for tokens also `token_refused`.
    ("bad-token-flood", [&[], &["NO_IDENTITY"], &[]]),
];

type Series = BTreeMap<String, f64>;

/// A server with a listener for operators.
struct Server {
    url: String,
    http: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Stopped, ServeError>>,
}

impl Server {
    async fn start() -> Self {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let (grpc, http) = (free().await.unwrap(), free().await.unwrap());
        let (url, address) = (format!("http://{}", grpc.local_addr().unwrap()), http.local_addr().unwrap());
        // A client of which nothing is heard is given up sooner than usual, so that the test does not wait
        // for that.
        let limits = Limits { preface_timeout: Duration::from_secs(2), ..run::attacked_limits() };
        let config = Config { limits, ..Config::insecure([COORDINATOR.to_owned()]) };
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        let task = tokio::spawn(stickycas_server::run(
            Listeners { http: Some(http), ..Listeners::from(grpc) },
            config,
            shutdown,
        ));
        Self { url, http: address, stop, task }
    }

    /// Every series with its value.
    async fn series(&self) -> Series {
        let mut tcp = TcpStream::connect(self.http).await.unwrap();
        tcp.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        let (_, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| line.rsplit_once(' ').unwrap());
        series.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap().unwrap();
    }
}

/// The series of what no correct process does that have grown.
fn grown(before: &Series, after: &Series) -> BTreeSet<String> {
    let is_telling = |series: &str| FAMILIES.iter().any(|(family, _)| series.starts_with(family));
    let has_grown = |series: &str, value: f64| value > before.get(series).copied().unwrap_or_default() + 0.5;
    let telling = after.iter().filter(|(series, value)| is_telling(series) && has_grown(series, **value));
    telling.map(|(series, _)| series.clone()).collect()
}

/// The series that a run makes grow in a server of its own. None is added, and no client is named.
async fn grown_in(attack: Option<&str>) -> BTreeSet<String> {
    let server = Server::start().await;
    let handle = ServerHandle::open(&server.url, COORDINATOR).await.unwrap();
    let before = server.series().await;
    let record = run::run(&handle, &scenario(attack), &RunOptions::in_process()).await.unwrap();
    assert_eq!(record.verdict.verdict, Outcome::Valid, "{attack:?}: {:?}", record.verdict.reasons);
    let after = server.series().await;
    let names = |series: &Series| series.keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(&after), names(&before), "{attack:?} has added series, or taken some away");
    assert!(!after.keys().any(|series| series.contains("process-")), "a client is named: {after:?}");
    drop(handle);
    server.stop().await;
    grown(&before, &after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wire_attack_shows_at_metrics_and_adds_no_series() {
    assert_eq!(GROWS.map(|(attack, _)| attack), WireAttack::ALL_NAMES);
    assert_eq!(grown_in(None).await, BTreeSet::new(), "without an attack");
    for (attack, grows) in GROWS {
        let grown = grown_in(Some(in_short(attack))).await;
        let series = FAMILIES.iter().zip(grows).flat_map(|((family, label), values)| {
            values.iter().map(move |value| format!("{family}{{{label}=\"{value}\"}}"))
        });
        let missing: Vec<String> = series.filter(|series| !grown.contains(series)).collect();
        assert!(missing.is_empty(), "{attack} made {grown:?} grow, and not {missing:?}");
    }
}

#[test]
fn the_documentation_says_what_each_wire_attack_shows() {
    let families = FAMILIES.map(|(family, label)| format!("`{family}`, by {label}"));
    let mut rows = format!("| attack | {} |\n| --- | --- | --- | --- |\n", families.join(" | "));
    for (attack, grows) in GROWS {
        let cells = grows.map(|values| values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>());
        writeln!(rows, "| `{attack}` | {} |", cells.map(|values| values.join(", ")).join(" | ")).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/operations.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- attacks: ").unwrap();
    let (note, rest) = rest.split_once("-->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of attacks -->").unwrap();
    let expected = format!("{before}<!-- attacks: {note}-->\n\n{rows}\n<!-- end of attacks -->{after}");
    if std::env::var_os("STICKYCAS_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "docs/operate/operations.md has another table of attacks:\n{rows}");
    }
}
