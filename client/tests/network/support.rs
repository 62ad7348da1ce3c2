//! What the tests of the client against a real server share: a server, and a proxy that breaks connections.

#![allow(unreachable_pub)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stickycas_client::watch::{Watch, WatchFrom, Watched};
use stickycas_client::{Client, InstanceId, RetryPolicy};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::Value;
use stickycas_server::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Long enough that a test which waits for it hangs visibly instead of passing by luck.
pub const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);

pub fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

/// Starts a server that lives as long as the test's runtime; gives its address.
pub async fn server() -> String {
    server_until(std::future::pending()).await
}

/// Starts a server that drains and ends when `stop` resolves; gives its address.
pub async fn server_until(stop: impl Future<Output = ()> + Send + 'static) -> String {
    start(None, stop).await.0
}

/// Starts a server that keeps its log in this folder; gives its address and its task, which ends after
/// `stop`.
pub async fn durable_server(
    data: &Path,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (String, JoinHandle<()>) {
    start(Some(data.to_owned()), stop).await
}

async fn start(
    data: Option<PathBuf>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = Config { data, ..Config::insecure(["coordinator".to_owned()]) };
    let server = tokio::spawn(async move {
        stickycas_server::run(listener, config, stop).await.unwrap();
    });
    (address, server)
}

pub fn client(address: &str, principal: &str) -> Client {
    client_with(address, principal, FOR_EVER)
}

pub fn client_with(address: &str, principal: &str, give_up_after: Duration) -> Client {
    let policy = RetryPolicy { first: Duration::from_millis(2), give_up_after, ..RetryPolicy::default() };
    Client::builder(format!("http://{address}")).principal(principal).retry(policy).connect_lazy().unwrap()
}

/// Resolves when the sender is dropped.
pub fn until_dropped() -> (oneshot::Sender<()>, impl Future<Output = ()> + Send) {
    let (sender, receiver) = oneshot::channel();
    (sender, async move {
        let _ = receiver.await;
    })
}

/// An instance of p1, ..., pn, one to a warp, in which everybody is awaited for ever.
pub async fn instance(address: &str, n: u32) -> InstanceId {
    let spec = ParamsSpec { patience: Patience::Endless, ..ParamsSpec::new(n, 1, n) };
    let params = Params::try_new(spec).unwrap();
    let created = client(address, "coordinator").create_instance().params(&params).send().await.unwrap();
    created.instance.id
}

/// What the coordinator sees of an instance.
pub struct Watcher(Watch, pub Vec<Event>);

impl Watcher {
    pub fn new(address: &str, instance: InstanceId) -> Self {
        Self(client(address, "coordinator").watch(instance, WatchFrom::Start), Vec::new())
    }

    /// Waits for an event.
    pub async fn until(&mut self, wanted: impl Fn(&Event) -> bool) {
        loop {
            let event = self.next().await.expect("the event comes before the end");
            if wanted(&event) {
                return;
            }
        }
    }

    /// Everything from the first event to the end of the instance.
    pub async fn until_the_end(mut self) -> Vec<Event> {
        while self.next().await.is_some() {}
        self.1
    }

    async fn next(&mut self) -> Option<Event> {
        match self.0.try_next().await.unwrap()? {
            Watched::Event(_, Recorded { event, .. }) => {
                self.1.push(event.clone());
                Some(event)
            }
            Watched::Snapshot(_) => panic!("nobody asked for a snapshot"),
        }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// A TCP proxy that breaks connections on command.
pub struct Proxy {
    pub address: String,
    shared: Arc<Shared>,
    cuts: watch::Sender<u64>,
}

struct Shared {
    server: Mutex<Option<String>>,
    /// Swallow what the server says.
    deaf: watch::Sender<bool>,
    /// Lose this piece of data, counted down from here, and cut its connection.
    lose: Mutex<Option<(Way, u64)>>,
    lost: AtomicU64,
}

impl Proxy {
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cuts, cut) = watch::channel(0);
        let shared = Arc::new(Shared {
            server: Mutex::new(Some(server.to_owned())),
            deaf: watch::Sender::new(false),
            lose: Mutex::new(None),
            lost: AtomicU64::new(0),
        });
        let proxy = Self { address, shared: shared.clone(), cuts };
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = shared.server.lock().unwrap().clone();
                // Nobody behind it: the connection is closed at once.
                let Some(server) = server else { continue };
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(carry(client, server, shared.clone(), cut.clone()));
            }
        });
        proxy
    }

    /// Breaks every connection.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// New connections go to this server, or nowhere.
    pub fn redirect(&self, server: Option<&str>) {
        *self.shared.server.lock().unwrap() = server.map(str::to_owned);
    }

    /// From now on nothing that the server says arrives, or again all of it.
    pub fn swallow_answers(&self, swallow: bool) {
        self.shared.deaf.send_replace(swallow);
    }

    /// Loses piece number `index` (from 0) that goes this way, and cuts the connection on which it went.
    pub fn lose(&self, way: Way, index: u64) {
        *self.shared.lose.lock().unwrap() = Some((way, index));
    }

    /// How many pieces were lost so.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

async fn carry(client: TcpStream, server: TcpStream, shared: Arc<Shared>, mut cut: watch::Receiver<u64>) {
    cut.mark_unchanged();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever ends first drops the other, and with it both sockets.
    tokio::select! {
        () = pump(from_client, to_server, Way::ToServer, &shared) => {}
        () = pump(from_server, to_client, Way::ToClient, &shared) => {}
        _ = cut.changed() => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, shared: &Shared) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if shared.loses(way) {
            return;
        }
        if way == Way::ToClient && *shared.deaf.borrow() {
            continue;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

impl Shared {
    fn loses(&self, way: Way) -> bool {
        let mut lose = self.lose.lock().unwrap();
        match &mut *lose {
            Some((wanted, 0)) if *wanted == way => {
                *lose = None;
                self.lost.fetch_add(1, Ordering::SeqCst);
                true
            }
            Some((wanted, left)) if *wanted == way => {
                *left -= 1;
                false
            }
            _ => false,
        }
    }
}
