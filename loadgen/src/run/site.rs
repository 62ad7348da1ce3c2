//! A server and the connections to it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use stickycas_client::{Client, Connection, RetryPolicy, Target};
use stickycas_model::types::ProcessId;

/// The principal that creates and closes the instances of runs, unless another is given.
pub const COORDINATOR: &str = "loadgen";

/// How long to try to reach a server that does not answer.
const GIVE_UP_CONNECTING: Duration = Duration::from_secs(5);

/// How many processes share a connection when they are tasks: few enough for the server's limit on streams
/// and for one connection not to be the bottleneck, many enough for a thousand processes to need few sockets.
const PROCESSES_PER_CONNECTION: usize = 64;

/// A server and the connections to it, which any number of runs may share, also at the same time.
#[derive(Debug)]
pub struct Site {
    client: Client,
    shared: Mutex<BTreeMap<usize, Connection>>,
}

impl Site {
    /// Connects to the server at this address as a coordinator.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub async fn open(url: &str, coordinator: &str) -> anyhow::Result<Self> {
        // Whoever mistyped the address should not wait long to learn it.
        let policy = RetryPolicy { give_up_after: GIVE_UP_CONNECTING, ..RetryPolicy::default() };
        let client = Client::connect_with(Target::new(url, coordinator)?, policy).await?;
        let client = Client::on(client.connection().clone(), RetryPolicy::default());
        Ok(Self { client, shared: Mutex::default() })
    }

    /// Connects to a server that may not be there yet, or be away for a while: waits so long for it, now and later.
    ///
    /// # Errors
    /// If it cannot be reached within this time.
    pub async fn open_within(url: &str, coordinator: &str, within: Duration) -> anyhow::Result<Self> {
        let policy = RetryPolicy { give_up_after: within, ..RetryPolicy::default() };
        let client = Client::connect_with(Target::new(url, coordinator)?, policy).await?;
        Ok(Self { client, shared: Mutex::default() })
    }

    /// The server's address.
    #[must_use]
    pub fn url(&self) -> &str {
        self.client.connection().target().server()
    }

    /// The coordinator's client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// A client for this process, on a connection that nobody else uses: what an attacker does to a connection
    /// must hurt its own.
    pub(super) fn client_apart(&self, process: ProcessId) -> anyhow::Result<Client> {
        let target = Target::new(self.url(), &principal(process))?;
        Ok(Client::on(Connection::lazy(target), RetryPolicy::default()))
    }

    /// A client for this process, on a connection that it shares.
    pub(super) fn client_of(&self, process: ProcessId) -> anyhow::Result<Client> {
        let mut shared = self.shared.lock().expect("nobody panics while holding it");
        let connection = shared
            .entry(process.index() / PROCESSES_PER_CONNECTION)
            .or_insert_with(|| Connection::lazy(self.client.connection().target().clone()));
        Ok(Client::on(connection.as_principal(&principal(process))?, RetryPolicy::default()))
    }
}

/// The principal of a process in every instance of every run.
pub(crate) fn principal(process: ProcessId) -> String {
    format!("process-{process}")
}
