//! The servers that a client may ask, and a connection to each that it has asked.
//!
//! In a cluster every server answers for every instance, and refuses what it does not own with NOT_OWNER,
//! which names the owner. A [`Route`] is the way of one call, session or watch to the owner: it follows what
//! servers say, by rising epoch (`owners`), and goes to the next server when one is down.
//!
//! Only servers whose addresses the user has given are dialled, and those that such a server names in
//! GetCluster, unless the user allows others: a server that is wrong cannot send a client, and its token,
//! anywhere.

mod owners;
mod route;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stickycas_certificates::Fault;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use self::owners::Owners;
pub(crate) use self::owners::shard_of;
pub use self::route::MAX_REDIRECTS;
pub(crate) use self::route::{NextTry, Route};
use crate::address::Address;
use crate::connection::Connection;
use crate::error::{Error, NO_ANSWER};

/// The most servers that are known by GetCluster.
const MOST_SERVERS: usize = 1_024;
/// How long a server may take to answer GetCluster.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long a server that could not be reached is asked last.
const DOWN: Duration = Duration::from_secs(1);
/// How long a server that could not be reached may take to show that it answers again. In this time it is not
/// known to others whether it is silent, and the lease of a server that is may end meanwhile.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The least time between two questions which servers there are.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// See the module. Cheap to clone; clones share connections and what is known of owners.
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
    /// Whether one has answered.
    reached: Arc<AtomicBool>,
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
    /// The servers that could not be reached and have not answered since: when that was.
    down: HashMap<Address, Instant>,
    /// The servers that have answered, and could be reached since.
    answered: BTreeSet<Address>,
    /// The servers that have a fault, by which they never answer.
    faulty: BTreeSet<Address>,
}

impl Cluster {
    /// The servers with these addresses, of which `base` is a connection to one.
    pub(crate) fn new(base: Connection, given: Vec<Address>, any_server: bool) -> Self {
        let address = base.config().address();
        let first = given.iter().position(|given| *given == address).unwrap_or(0);
        let connections = HashMap::from([(address, base.clone())]);
        let state = Mutex::new(State { connections, first, ..State::default() });
        Self { base, shared: Arc::new(Shared { given, any_server, reached: Arc::default(), state }) }
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

    /// The servers that the user has given.
    pub(crate) fn given(&self) -> &[Address] {
        &self.shared.given
    }

    /// Whether there is a choice.
    pub(crate) fn has_several(&self) -> bool {
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

    /// The same, but for these servers and those that are down.
    fn next_but(&self, failed: &Address, but: &BTreeSet<Address>) -> Option<Address> {
        let all = self.all();
        let place = self.behind(&all, failed);
        let mut in_order = all[place..].iter().chain(&all[..place]);
        let state = self.state();
        in_order.find(|address| !but.contains(address) && !state.is_down(address)).cloned()
    }

    fn behind(&self, all: &[Address], address: &Address) -> usize {
        let place = all.iter().position(|known| known == address);
        place.map_or(0, |place| (place + 1) % all.len())
    }

    /// The connection to a server, which opens when it is first used.
    ///
    /// # Errors
    /// If there can be none: its address does not fit the credentials, or connections go over byte streams to
    /// one server.
    pub(crate) fn connection(&self, address: &Address) -> Result<Connection, Error> {
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

    /// Makes sure, if this server could not be reached the last time and there are others, that it answers
    /// now.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: it does not, within [`PROBE_TIMEOUT`].
    async fn probe(&self, address: &Address) -> Result<(), Error> {
        if !self.has_several() || !self.state().down.contains_key(address) {
            return Ok(());
        }
        self.ensure_answers(address, PROBE_TIMEOUT).await
    }

    /// Makes sure that this server answers, unless it has answered since it could last not be reached: a call
    /// that waits for a phase would wait as long for a peer that accepts connections and is silent.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: it does not, within this time.
    async fn ensure_answers(&self, address: &Address, longest: Duration) -> Result<(), Error> {
        if self.state().answered.contains(address) {
            return Ok(());
        }
        let connection = self.connection(address)?;
        let silent = |cause: &str| Err(Error::unreachable(connection.config().server(), cause, false));
        let call = async { connection.server().get_cluster(v1::GetClusterRequest {}).await };
        match timeout(longest, call).await {
            Err(_) => return silent(NO_ANSWER),
            Ok(Err(status)) => {
                if let Error::Unreachable { cause, .. } = connection.error(&status) {
                    return silent(&cause);
                }
            }
            Ok(Ok(_)) => {}
        }
        self.note_answer_of(address);
        Ok(())
    }

    /// The failure of a call to this server; or, as long as no server has answered, the fault of its address
    /// or of the credentials. Where there are several, it counts once all that are given have one.
    pub(crate) async fn diagnosed(&self, at: &Address, error: Error, names_come: bool) -> Error {
        let is_reached = self.reached().load(Ordering::Relaxed);
        let sent = match &error {
            // Silence is no answer either.
            Error::Unreachable { cause, sent, .. } if cause != NO_ANSWER && !is_reached => *sent,
            _ => return error,
        };
        let Ok(connection) = self.connection(at) else { return error };
        let fault = match connection.fault().await {
            // A server that was there may have gone with its name.
            Some(Fault::UnknownHost(_)) if sent => return error,
            Some(fault) => fault,
            None => return error,
        };
        let fault = Error::faulty(connection.config().server(), fault, names_come);
        let mut state = self.state();
        state.faulty.insert(at.clone());
        let all = self.shared.given.iter().all(|given| state.faulty.contains(given));
        if all { fault } else { fault.of_one_of_several() }
    }

    /// Whether a server has answered.
    pub(crate) fn reached(&self) -> &Arc<AtomicBool> {
        &self.shared.reached
    }

    fn note_answer_of(&self, address: &Address) {
        self.reached().store(true, Ordering::Relaxed);
        let mut state = self.state();
        state.down.remove(address);
        state.answered.insert(address.clone());
    }

    /// The address that a server has named as that of another one, if it may be dialled.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if not: a server that is behind or wrong has named it, and another one may know
    /// better.
    pub(crate) async fn admit(&self, name: &str, by: &Address) -> Result<Address, Error> {
        let refused = |why: &str| {
            let cause = format!("not dialled: {by} has named this address, {why}");
            Error::Unreachable { server: name.to_owned(), cause, sent: false }
        };
        let address = Address::parse(name).ok_or_else(|| refused("which is not HOST:PORT"))?;
        if self.shared.any_server || self.is_known(&address) {
            self.learn_shards();
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

    /// Asks how many shards there are, unless that is known. The redirect does not wait for the answer: a
    /// server that is down would hold it up.
    fn learn_shards(&self) {
        if !self.state().owners.has_shards() {
            let cluster = self.clone();
            tokio::spawn(async move { cluster.look().await });
        }
    }

    /// Asks the given servers which servers there are, all at once: the first answer counts.
    async fn look(&self) {
        let now = Instant::now();
        {
            let mut state = self.state();
            if state.named_at.is_some_and(|at| now.duration_since(at) < LOOK_AGAIN) {
                return;
            }
            state.named_at = Some(now);
        }
        let (sender, mut answers) = mpsc::channel(self.shared.given.len());
        for given in &self.shared.given {
            let Ok(connection) = self.connection(given) else { continue };
            let (given, sender) = (given.clone(), sender.clone());
            // Each to its end: a call that is broken off counts against this client.
            tokio::spawn(async move {
                let call = async { connection.server().get_cluster(v1::GetClusterRequest {}).await };
                match timeout(ANSWER_TIMEOUT, call).await {
                    // Nobody may wait for it any more.
                    Ok(Ok(answer)) => drop(sender.send(answer.into_inner()).await),
                    Ok(Err(status)) => tracing::debug!(server = %given, %status, "does not name its cluster"),
                    Err(_) => tracing::debug!(server = %given, "does not name its cluster in time"),
                }
            });
        }
        drop(sender);
        if let Some(answer) = answers.recv().await {
            self.learn_cluster(answer);
        }
    }

    fn learn_cluster(&self, answer: v1::GetClusterResponse) {
        let v1::GetClusterResponse { servers, shards, .. } = answer;
        let named = servers.iter().filter_map(|server| Address::parse(&server.address));
        let mut state = self.state();
        state.owners.set_shards(shards);
        state.named = named.take(MOST_SERVERS).collect();
        // Connections to servers that have gone.
        let State { connections, named, down, answered, .. } = &mut *state;
        let stays = |address: &Address| named.contains(address) || self.shared.given.contains(address);
        connections.retain(|address, _| stays(address));
        down.retain(|address, _| stays(address));
        answered.retain(stays);
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

#[cfg(test)]
mod tests {
    use stickycas_proto::v1::server_service_server::{ServerService, ServerServiceServer};
    use tokio::io::duplex;
    use tonic::transport::Server;
    use tonic::{Request, Response, Status};

    use super::*;
    use crate::connection::ClientConfig;

    /// A server that names this one as its cluster.
    struct Names(&'static str);

    #[tonic::async_trait]
    impl ServerService for Names {
        async fn get_counts(
            &self,
            _: Request<v1::GetCountsRequest>,
        ) -> Result<Response<v1::GetCountsResponse>, Status> {
            Err(Status::unimplemented("counts"))
        }

        async fn get_cluster(
            &self,
            _: Request<v1::GetClusterRequest>,
        ) -> Result<Response<v1::GetClusterResponse>, Status> {
            let servers = vec![v1::ClusterServer { address: self.0.to_owned(), ..Default::default() }];
            Ok(Response::new(v1::GetClusterResponse { shards: 64, servers, ..Default::default() }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_found_though_a_given_server_is_silent() {
        let connect = |address: String| async move {
            if address == "silent:1" {
                std::future::pending::<()>().await;
            }
            let (client, server) = duplex(65_536);
            let incoming = tokio_stream::once(Ok::<_, std::io::Error>(server));
            let server = Server::builder().add_service(ServerServiceServer::new(Names("owner:1")));
            tokio::spawn(server.serve_with_incoming(incoming));
            Ok(client)
        };
        let [silent, up] = ["silent:1", "up:1"].map(|address| Address::parse(address).unwrap());
        let base = Connection::lazy_over(ClientConfig::new("http://up:1", "p1").unwrap(), connect);
        let cluster = Cluster::new(base, vec![silent, up.clone()], false);
        let begun = Instant::now();
        assert_eq!(cluster.admit("owner:1", &up).await.unwrap().as_str(), "owner:1");
        // By a clock that stands still whenever anything is done.
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
