//! What a load makes of a server that stands still: for a moment, and for good. Between the two stands a
//! proxy that can stop carrying bytes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use stickycas_harness::run::{COORDINATOR, OwnServer, ServerHandle};
use stickycas_load::measure::Measure;
use stickycas_load::profile::Flags;
use stickycas_load::{LoadOutcome, Profile};
use stickycas_model::judge::Outcome;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Carries bytes while its gate is open.
struct Proxy {
    address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Proxy {
    async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, gate) = watch::channel(true);
        let server: SocketAddr = server.strip_prefix("http://").unwrap().parse().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = TcpStream::connect(server).await.unwrap().into_split();
                tokio::spawn(carry(from_client, to_server, gate.clone()));
                tokio::spawn(carry(from_server, to_client, gate.clone()));
            }
        });
        Self { address, open }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: watch::Receiver<bool>,
) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if gate.wait_for(|open| *open).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

const PROFILE: &str = r#"
name = "stall"
seed = 5
[instance]
processes = 4
warp_size = 2
read_size = 2
patience = "none"
[load]
history_sample = 0.0
"#;

async fn loaded(keys: &str, look: impl FnMut(&stickycas_load::LoadProgress<'_>, &Proxy)) -> LoadOutcome {
    let mut look = look;
    let server = OwnServer::start().await.unwrap();
    let proxy = Proxy::before(server.url()).await;
    let handle = ServerHandle::open(&proxy.url(), COORDINATOR).await.unwrap();
    let profile = Profile::parse("stall.toml", &format!("{PROFILE}{keys}"), &Flags::default()).unwrap();
    stickycas_load::run(&handle, &profile, std::future::pending(), |progress| look(progress, &proxy))
        .await
        .unwrap()
}

/// So many instances begin while the server stands still. A generator that waits for answers before it goes
/// on would have begun four or so.
const BEGUN_MEANWHILE: u64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_begin_and_wait_while_the_server_stands_still() {
    let open = "rate = 200\nduration = \"2s\"\nmax_missed = 1.0\ndrain = \"1h\"\nstall = \"1h\"\n";
    let (mut stood, mut waited) = (false, 0);
    let loaded = loaded(open, |progress, proxy| {
        let in_flight = progress.recorder.seconds.last().unwrap().in_flight;
        if !std::mem::replace(&mut stood, true) {
            proxy.open.send_replace(false);
        } else if waited == 0 && in_flight >= BEGUN_MEANWHILE {
            // The server stands still until as many have begun, however long that takes.
            waited = in_flight;
            proxy.open.send_replace(true);
        }
    })
    .await;
    let figures = loaded.figures;
    assert_eq!(loaded.judged.verdict(), Outcome::Valid, "{:?}", loaded.judged.reasons);
    assert_eq!((figures.counts.done, figures.counts.errors()), (400, 0), "{:?}", figures.counts);
    assert!(waited >= BEGUN_MEANWHILE, "{waited} were under way");
    // Each counts from its planned start, and of so many the first was planned so long before the last.
    let spread = Duration::from_secs(waited - 1) / 200;
    let longest = Duration::from_nanos(figures.latency(Measure::Instance).unwrap().max);
    assert!(longest >= spread, "{waited} were under way, none for longer than {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_the_generator_delays_counts_from_its_plan() {
    let open = "rate = 200\nduration = \"1300ms\"\nmax_missed = 1.0\n";
    let mut kept_for = None;
    let loaded = loaded(open, |_, _| {
        // Nothing begins while the one who begins them is kept.
        kept_for.get_or_insert_with(|| {
            let since = Instant::now();
            std::thread::sleep(Duration::from_millis(250));
            since.elapsed()
        });
    })
    .await;
    let figures = loaded.figures;
    let max = |measure| Duration::from_nanos(figures.latency(measure).unwrap().max);
    // Of 200 a second one was planned in the first half of that time. A bound from below holds on a machine
    // of any speed.
    assert!(
        max(Measure::StartLag) >= kept_for.unwrap() / 2 && max(Measure::Instance) >= max(Measure::StartLag)
    );
    assert!(figures.counts.late > 0, "and it is a missed start: {:?}", figures.counts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_swallow_everything_are_an_outcome() {
    let swallowed = async |transport| {
        let closed = format!(
            "in_flight = 4\nduration = \"5s\"\nstall = \"1s\"\ndrain = \"1h\"\ntransport = \"{transport}\"\n"
        );
        let loaded = loaded(&closed, |progress, proxy| {
            if progress.judged.valid > 0 {
                proxy.open.send_replace(false);
            }
        })
        .await;
        let counts = loaded.figures.counts;
        assert!(counts.done > 0 && counts.stalled >= 4, "{transport}: {counts:?}");
        assert_eq!(
            (counts.errors(), loaded.judged.violation),
            (counts.stalled, 0),
            "{transport}: {counts:?}"
        );
    };
    tokio::join!(swallowed("attach"), swallowed("unary"));
}
