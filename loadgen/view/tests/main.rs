//! The page of a real server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

mod browser;
mod links;
mod page;
mod shown;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use stickycas_client::{Client, InstanceId};
use stickycas_server::{Config, Listeners};
use stickycas_view::{PageOptions, ServerPage};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use self::browser::{Answer, EventStream, get, with_timeout};
use http::StatusCode;

/// A server that believes names, and its page, as an observer sees it.
struct Site {
    server: String,
    http: SocketAddr,
    page: SocketAddr,
    stop: Arc<Notify>,
}

impl Site {
    async fn start() -> Self {
        Self::with(|_| (), |_| ()).await
    }

    /// With another configuration of the server, or of the page.
    async fn with(config: impl FnOnce(&mut Config), options: impl FnOnce(&mut PageOptions)) -> Self {
        let (grpc, http) = (bind().await, bind().await);
        let (server, http_address) =
            (format!("http://{}", grpc.local_addr().unwrap()), http.local_addr().unwrap());
        let mut with = Config::insecure(["coordinator".to_owned()]);
        with.observers.insert("observer".to_owned());
        config(&mut with);
        let (stop, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let shutdown = stop.clone();
        tokio::spawn(async move {
            let listeners = Listeners { http: Some(http), ..Listeners::from(grpc) };
            stickycas_server::run(listeners, with, shutdown.notified()).await.unwrap();
            stopped.notify_one();
        });
        let mut given = PageOptions::default();
        options(&mut given);
        let page = serve(client_of(&server, "observer"), given).await.1;
        Self { server, http: http_address, page, stop }
    }

    fn client(&self, principal: &str) -> Client {
        client_of(&self.server, principal)
    }

    /// A new instance of three processes.
    async fn instance(&self) -> InstanceId {
        self.create("", ["p1", "p2", "p3"]).await
    }

    async fn create<const N: usize>(&self, name: &str, roster: [&str; N]) -> InstanceId {
        let create = self.client("coordinator").create_instance().roster(roster).read_size(1);
        let create = if name.is_empty() { create } else { create.name(name) };
        with_timeout(create.send()).await.unwrap().instance.id
    }

    /// Plays all processes of an instance to their end.
    async fn play(&self, id: InstanceId, roster: &[&str]) {
        let plays = roster.iter().map(|name| {
            let client = self.client(name);
            tokio::spawn(async move { client.propose(id, "yes").await.unwrap() })
        });
        for play in plays.collect::<Vec<_>>() {
            with_timeout(play).await.unwrap();
        }
    }

    /// What the page answers.
    async fn page(&self, path: &str) -> Answer {
        get(self.page, path, &[]).await
    }

    async fn rows(&self, query: &str) -> Vec<Value> {
        let list = self.page(&format!("/api/instances?{query}")).await.json();
        list["rows"].as_array().unwrap().clone()
    }

    async fn events(&self, id: InstanceId, query: &str) -> Result<EventStream, StatusCode> {
        EventStream::open(self.page, &format!("/api/instances/{id}/events{query}"), &[]).await
    }
}

const ROSTER: [&str; 3] = ["p1", "p2", "p3"];

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn client_of(server: &str, principal: &str) -> Client {
    Client::builder(server).principal(principal).connect_lazy().unwrap()
}

/// The page of what a client sees: a link to it, and its address.
async fn serve(client: Client, options: PageOptions) -> (String, SocketAddr) {
    let listener = bind().await;
    let address = listener.local_addr().unwrap();
    let page = ServerPage::new(client, listener, options).unwrap();
    let link = page.link(None, None);
    tokio::spawn(page.serve(|_| ()));
    (link, address)
}

fn indices(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["index"].as_u64().unwrap()).collect()
}
