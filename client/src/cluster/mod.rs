//! The servers that a client may ask, and a connection to each that it has asked.
//!
//! In a cluster every server answers for every instance, and refuses what it does not own with NOT_OWNER, which names the
//! owner. A [`Route`](route::Route) is the way of one call, session or watch to the owner: it follows what servers tell, by
//! rising epoch (`owners`), and goes to the next server when one is down.
//!
//! Only servers whose addresses the user has given are dialled, and those that such a server names in GetCluster, unless
//! the user allows others: a server that is wrong cannot send a client, and its token, anywhere.

mod address;
mod info;
mod owners;
mod route;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;
use tokio::time::{Instant, timeout};

pub(crate) use self::address::Address;
pub use self::info::{ClusterInfo, ClusterServer, OwnedShard};
use self::owners::Owners;
pub use self::route::MAX_REDIRECTS;
pub(crate) use self::route::{NextTry, Route};
use crate::connection::Connection;
use crate::error::Error;

/// The most servers that are known by GetCluster.
const MOST_SERVERS: usize = 1_024;
/// How long a server may take to answer GetCluster.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long a server that could not be reached is asked last.
const DOWN: Duration = Duration::from_secs(1);
/// The least time between two questions which servers there are.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// See the module. Cheap to clone; clones share connections and what they were told.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// As whom calls are made. Its server is one of the given ones.
    base: Connection,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The addresses that the user has given. Never empty.
    given: Vec<Address>,
    /// Whether owners are followed to any address.
    any_server: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: HashMap<Address, Connection>,
    /// The addresses that GetCluster has named.
    named: BTreeSet<Address>,
    named_at: Option<Instant>,
    owners: Owners,
    /// The server to ask first, among all of them.
    first: usize,
    /// When which server could not be reached.
    down: HashMap<Address, Instant>,
}

impl Cluster {
    /// The servers with these addresses, of which `base` is a connection to one.
    pub(crate) fn new(base: Connection, given: Vec<Address>, any_server: bool) -> Self {
        let address = base.config().address();
        let first = given.iter().position(|given| *given == address).unwrap_or(0);
        let connections = HashMap::from([(address, base.clone())]);
        let state = Mutex::new(State { connections, first, ..State::default() });
        Self { base, shared: Arc::new(Shared { given, any_server, state }) }
    }

    /// One server, and those that it names.
    pub(crate) fn of(base: Connection) -> Self {
        let given = vec![base.config().address()];
        Self::new(base, given, false)
    }

    /// The same servers and connections for another principal.
    ///
    /// # Errors
    /// See [`Connection::as_principal`].
    pub(crate) fn as_principal(&self, principal: &str) -> Result<Self, Error> {
        Ok(Self { base: self.base.as_principal(principal)?, shared: self.shared.clone() })
    }

    pub(crate) fn base(&self) -> &Connection {
        &self.base
    }

    /// The way to the owner of an instance.
    pub(crate) fn route_to(&self, instance: InstanceId) -> Route {
        let known = self.state().owners.ask(instance).cloned();
        let at = known.unwrap_or_else(|| self.any());
        Route::new(self.clone(), Some(instance), at)
    }

    /// The way to any server.
    pub(crate) fn route(&self) -> Route {
        Route::new(self.clone(), None, self.any())
    }

    /// The way to another server each time, so that new instances spread over all.
    pub(crate) fn route_in_turn(&self) -> Route {
        let at = self.any();
        let all = self.all();
        self.state().first = self.behind(&all, &at);
        Route::new(self.clone(), None, at)
    }

    /// Whether there is a choice.
    fn has_several(&self) -> bool {
        let state = self.state();
        state.connections.len() > 1 || self.shared.given.len() > 1 || !state.named.is_empty()
    }

    /// Every server that is known, the given ones first.
    fn all(&self) -> Vec<Address> {
        let given = &self.shared.given;
        let state = self.state();
        let named = state.named.iter().filter(|named| !given.contains(named));
        given.iter().chain(named).cloned().collect()
    }

    /// A server to ask first.
    fn any(&self) -> Address {
        let all = self.all();
        let state = self.state();
        let start = state.first % all.len();
        let in_order = || all[start..].iter().chain(&all[..start]);
        let up = in_order().find(|address| !state.is_down(address));
        up.or_else(|| in_order().next()).expect("a server is given").clone()
    }

    /// The server to ask after this one has failed.
    fn next_after(&self, failed: &Address) -> Address {
        let all = self.all();
        let behind = self.behind(&all, failed);
        self.state().first = behind;
        self.any()
    }

    fn behind(&self, all: &[Address], address: &Address) -> usize {
        let place = all.iter().position(|known| known == address);
        place.map_or(0, |place| (place + 1) % all.len())
    }

    /// The connection to a server, which opens when it is first used.
    ///
    /// # Errors
    /// If there can be none: its address does not fit the credentials, or connections go over byte streams to one server.
    fn connection(&self, address: &Address) -> Result<Connection, Error> {
        let mut state = self.state();
        let opened = match state.connections.get(address) {
            Some(opened) => opened,
            None => {
                let connection = self.base.to_server(address)?;
                state.connections.entry(address.clone()).or_insert(connection)
            }
        };
        Ok(opened.identified_as(&self.base))
    }

    /// The address that a server has told, if it may be dialled.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if not: a server that is behind or wrong has told it, and another one may know better.
    pub(crate) async fn admit(&self, told: &str, by: &Address) -> Result<Address, Error> {
        let refused = |why: &str| {
            let cause = format!("not dialled: {by} has told this address, {why}");
            Error::Unreachable { server: told.to_owned(), cause, sent: false }
        };
        let address = Address::parse(told).ok_or_else(|| refused("which is not HOST:PORT"))?;
        if self.shared.any_server || self.is_known(&address) {
            return Ok(address);
        }
        self.look().await;
        if self.is_known(&address) {
            return Ok(address);
        }
        Err(refused(
            "and it is neither given nor named by GetCluster of a given server; give it as a server too, or allow any \
             (ClientBuilder::any_server)",
        ))
    }

    fn is_known(&self, address: &Address) -> bool {
        self.shared.given.contains(address) || self.state().named.contains(address)
    }

    /// Asks the given servers which servers there are, until one answers.
    async fn look(&self) {
        let now = Instant::now();
        {
            let mut state = self.state();
            if state.named_at.is_some_and(|at| now.duration_since(at) < LOOK_AGAIN) {
                return;
            }
            state.named_at = Some(now);
        }
        for given in &self.shared.given {
            let Ok(connection) = self.connection(given) else { continue };
            let asked = async { connection.server().get_cluster(v1::GetClusterRequest {}).await };
            match timeout(ANSWER_TIMEOUT, asked).await {
                Ok(Ok(answer)) => {
                    let servers = answer.into_inner().servers;
                    let named = servers.iter().filter_map(|server| Address::parse(&server.address));
                    let mut state = self.state();
                    state.named = named.take(MOST_SERVERS).collect();
                    // Connections to servers that have gone.
                    let State { connections, named, down, .. } = &mut *state;
                    connections
                        .retain(|address, _| named.contains(address) || self.shared.given.contains(address));
                    down.retain(|address, _| named.contains(address) || self.shared.given.contains(address));
                    return;
                }
                Ok(Err(status)) => tracing::debug!(server = %given, %status, "does not tell its cluster"),
                Err(_) => tracing::debug!(server = %given, "does not tell its cluster in time"),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No step leaves it in between.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_down(&self, address: &Address) -> bool {
        self.down.get(address).is_some_and(|since| since.elapsed() < DOWN)
    }
}
