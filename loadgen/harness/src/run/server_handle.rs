//! A server and the connections to it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;
use std::time::Duration;

use stickycas_client::{Client, Error, RetryPolicy};
use stickycas_model::types::ProcessId;

use super::identities::Identities;

/// The principal that creates and closes the instances of runs, unless another is given.
pub const COORDINATOR: &str = "loadgen";

/// How long to try to reach a server that is to be there already, ...
const REACH_WITHIN: Duration = Duration::from_secs(2);
/// ... and how long one that is silent may take to answer.
const GIVE_UP_CONNECTING: Duration = Duration::from_secs(5);

/// How many processes share a connection when they are tasks: few enough for the server's limit on streams
/// and for one connection not to be the bottleneck, many enough for a thousand processes to need few sockets.
const PROCESSES_PER_CONNECTION: usize = 64;

/// A server and the connections to it, which any number of runs may share, also at the same time.
#[derive(Debug)]
pub struct ServerHandle {
    client: Client,
    identities: Identities,
    token_url: Option<String>,
    shared: Mutex<BTreeMap<usize, Client>>,
}

impl ServerHandle {
    /// Connects to the server at this address as a coordinator. It has to believe names.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub async fn open(url: &str, coordinator: &str) -> anyhow::Result<Self> {
        Self::open_with(url, coordinator, Identities::Names).await
    }

    /// The same for principals that prove who they are like this.
    ///
    /// # Errors
    /// If it cannot be reached, or the coordinator has no credentials.
    pub async fn open_with(url: &str, coordinator: &str, identities: Identities) -> anyhow::Result<Self> {
        // A mistyped address should be reported soon.
        let retries = Identities::retries(url);
        let soon = RetryPolicy { give_up_after: GIVE_UP_CONNECTING, reach_within: REACH_WITHIN, ..retries };
        let handle = Self::open_retrying(url, coordinator, identities, soon).await?;
        // A connection alone does not show who answers.
        let own = [coordinator.to_owned()];
        if let Err(error @ (Error::WrongServer { .. } | Error::GaveUp { .. })) =
            handle.client.counts(&own).await
            && error.reason().is_none()
        {
            return Err(error.into());
        }
        Ok(Self { client: handle.client.with_retry(retries), ..handle })
    }

    /// Connects to a server that may not be there yet, or be away for a while: waits so long for it, now and
    /// later. `url`: its address; of a cluster, those of several of its servers, separated by commas.
    ///
    /// # Errors
    /// If it cannot be reached within this time, or the coordinator has no credentials.
    pub async fn open_within(
        url: &str,
        coordinator: &str,
        identities: Identities,
        within: Duration,
    ) -> anyhow::Result<Self> {
        let policy = RetryPolicy { give_up_after: within, ..Identities::retries(url) };
        Self::open_retrying(url, coordinator, identities, policy).await
    }

    async fn open_retrying(
        url: &str,
        coordinator: &str,
        identities: Identities,
        policy: RetryPolicy,
    ) -> anyhow::Result<Self> {
        let client = identities.client(url, coordinator)?.retry(policy).connect().await?;
        Ok(Self { client, identities, token_url: None, shared: Mutex::default() })
    }

    /// The same with the address of the server's listener for tokens, which attackers attack.
    #[must_use]
    pub fn with_token_url(self, url: Option<String>) -> Self {
        Self { token_url: url, ..self }
    }

    /// The address of the server's listener for tokens, if it is known.
    #[must_use]
    pub fn token_url(&self) -> Option<&str> {
        self.token_url.as_deref()
    }

    /// The server's address.
    #[must_use]
    pub fn url(&self) -> &str {
        self.client.server()
    }

    /// The coordinator's client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How principals prove who they are to it.
    #[must_use]
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// A client for this process, on a connection of its own: an attack on the connection must hurt no other
    /// process.
    pub(super) fn client_apart(&self, process: ProcessId) -> anyhow::Result<Client> {
        Ok(self.identities.client(self.url(), &principal(process))?.connect_lazy()?)
    }

    /// A client for this process of the listener for tokens, if there is one that is known.
    pub(super) fn token_client(&self, process: ProcessId) -> anyhow::Result<Option<Client>> {
        let client = |url| anyhow::Ok(self.identities.client(url, &principal(process))?.connect_lazy()?);
        self.token_url().map(client).transpose()
    }

    /// A client for this process, on a connection that it shares with others where connections can be shared.
    pub(super) fn client_of(&self, process: ProcessId) -> anyhow::Result<Client> {
        if !self.identities.may_share_connections() {
            return self.client_apart(process);
        }
        let principal = principal(process);
        let mut shared = self.shared.lock().expect("nobody panics while holding it");
        match shared.entry(process.index() / PROCESSES_PER_CONNECTION) {
            Entry::Occupied(entry) => Ok(entry.get().as_principal(&principal)?),
            Entry::Vacant(entry) => {
                let client = self.identities.client(self.url(), &principal)?.connect_lazy()?;
                Ok(entry.insert(client).clone())
            }
        }
    }
}

/// The principal of a process in every instance of every run.
#[must_use]
pub fn principal(process: ProcessId) -> String {
    format!("process-{process}")
}
