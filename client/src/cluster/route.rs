//! [`Route`]: the way of one call, session or watch to the server that answers it.
//!
//! A server that is silent closes nothing: it was stopped, cut off, or its machine has died. Until its lease
//! has ended the others name it as the owner. So a client that has noticed its silence does not go back for
//! the epoch that it knows: it asks all other servers first, each after a pause, and then makes sure that the
//! server answers ([`Cluster::probe`]) before it waits for anything else of it. A newer epoch says that the
//! server has come back.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;
use tokio::time::Instant;

use super::Cluster;
use super::owners::{Hint, Known};
use crate::address::Address;
use crate::connection::Connection;
use crate::error::{Error, Refusal};
use crate::retry::Backoff;

/// The most redirects that are followed without a pause. After one more the client waits, as after any other
/// failure, and asks any server again; so servers that name each other cost no more than a server that is
/// down.
pub const MAX_REDIRECTS: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Route {
    cluster: Cluster,
    /// `None`: the call does not name an instance by its id.
    instance: Option<InstanceId>,
    /// The knowledge of the owner if there is no instance.
    known: Known,
    at: Address,
    /// Whether no other server will do.
    pinned: bool,
    /// Redirects since the last pause or answer.
    redirects: u32,
    /// The servers that have refused since one could not be reached, and that one.
    tried: BTreeSet<Address>,
}

/// How to go on after a failure.
#[derive(Debug)]
pub(crate) enum NextTry {
    /// Ask at once: the owner is known.
    Now,
    /// Wait as after this failure, and ask then.
    Later(Error),
    /// Do not ask again: no other server will do.
    Stop(Error),
}

/// The state of the server that a failure shows.
enum Failure<'a> {
    /// It is not the owner, or is not any more. The refusal may name the owner.
    NotOwner(&'a Refusal),
    /// It does not serve at the moment.
    NotServing,
    /// It cannot be reached.
    Down,
    /// None of these.
    Other,
}

impl Route {
    pub(super) fn new(cluster: Cluster, instance: Option<InstanceId>, at: Address) -> Self {
        let (known, tried) = (Known::default(), BTreeSet::new());
        Self { cluster, instance, known, at, pinned: false, redirects: 0, tried }
    }

    /// To this server alone.
    pub(crate) fn pinned(cluster: &Cluster, at: Address) -> Self {
        Self { pinned: true, ..Self::new(cluster.clone(), None, at) }
    }

    /// From now on no other server than this one will do.
    pub(crate) fn pin(&mut self) {
        self.pinned = self.cluster.has_several();
    }

    /// Whether another server may be asked.
    pub(crate) fn has_others(&self) -> bool {
        !self.pinned && self.cluster.has_several()
    }

    /// The server to ask.
    pub(crate) fn at(&self) -> &Address {
        &self.at
    }

    /// The connection to it. If it could not be reached the last time, it answers now.
    ///
    /// # Errors
    /// If there can be none, or the server is still down.
    pub(crate) async fn connection(&self) -> Result<Connection, Error> {
        self.cluster.probe(&self.at).await?;
        self.cluster.connection(&self.at)
    }

    /// The same; and if it has not answered yet, it does so now, within this time.
    ///
    /// # Errors
    /// If there can be none, or the server is silent.
    pub(crate) async fn connection_that_answers(&self, longest: Duration) -> Result<Connection, Error> {
        self.cluster.probe(&self.at).await?;
        self.cluster.ensure_answers(&self.at, longest).await?;
        self.cluster.connection(&self.at)
    }

    /// The server has answered: ask it first the next time.
    pub(crate) fn note_answer(&mut self) {
        self.redirects = 0;
        self.tried.clear();
        self.cluster.note_answer_of(&self.at);
        // There is nothing to choose otherwise.
        if let Some(instance) = self.instance.filter(|_| self.cluster.has_several()) {
            self.cluster.state().owners.known(instance).prefer(&self.at);
        }
    }

    /// A pause was made.
    pub(crate) fn note_pause(&mut self) {
        self.redirects = 0;
    }

    /// See [`Cluster::diagnosed`].
    pub(crate) async fn diagnosed(&self, error: Error, backoff: &Backoff) -> Error {
        match backoff.has_sent() {
            // An earlier try may have reached a server that has gone.
            true => error,
            false => self.cluster.diagnosed(&self.at, error, backoff.names_come()).await,
        }
    }

    /// The server has failed: chooses the one to ask next.
    pub(crate) async fn next_try(&mut self, error: Error) -> NextTry {
        if matches!(error, Error::Refused(_)) {
            self.cluster.reached().store(true, Ordering::Relaxed);
        }
        let failure = Failure::of(&error);
        if self.pinned {
            return match failure {
                Failure::Other => NextTry::Later(error),
                _ => {
                    self.note(&failure);
                    NextTry::Stop(error)
                }
            };
        }
        self.note(&failure);
        match failure {
            Failure::Other => NextTry::Later(error),
            Failure::NotServing | Failure::Down => {
                let failed = self.at.clone();
                self.turn();
                NextTry::Later(if self.at == failed { error } else { error.without_advice() })
            }
            Failure::NotOwner(refusal) => {
                let hint = match refusal.owner.as_deref() {
                    // As many as may be, and one more.
                    Some(owner) if self.redirects < MAX_REDIRECTS => {
                        let address = self.cluster.admit(&owner.address, &self.at).await;
                        address.map(|address| (self.learn(&address, owner.epoch), address))
                    }
                    _ => Ok((Hint::Old, self.at.clone())),
                };
                match hint {
                    Ok((Hint::Follow, owner)) => {
                        self.at = owner;
                        self.redirects += 1;
                        NextTry::Now
                    }
                    Ok((Hint::Old, _)) => {
                        self.turn();
                        NextTry::Later(error)
                    }
                    Ok((Hint::Down, owner)) => {
                        self.turn_before(owner);
                        NextTry::Later(error)
                    }
                    Err(not_dialled) => {
                        self.turn();
                        // The news that the call may have happened must not be lost.
                        NextTry::Later(if error.may_have_happened() { error } else { not_dialled })
                    }
                }
            }
        }
    }

    /// A server has named the owner.
    fn learn(&mut self, owner: &Address, epoch: u64) -> Hint {
        // A server that names itself when it refuses is confused.
        let hint = if *owner == self.at {
            Hint::Old
        } else {
            let mut state = self.cluster.state();
            let is_down = state.down.contains_key(owner);
            match self.instance {
                Some(instance) => state.owners.known(instance).learn(owner, epoch, is_down),
                None => self.known.learn(owner, epoch, is_down),
            }
        };
        tracing::debug!(at = %self.at, %owner, epoch, ?hint, "this server names the owner");
        hint
    }

    /// Keeps in mind what the failure says of the server.
    fn note(&mut self, failure: &Failure<'_>) {
        let mut state = self.cluster.state();
        match failure {
            Failure::Other => return,
            Failure::Down => {
                state.down.insert(self.at.clone(), Instant::now());
                state.answered.remove(&self.at);
                self.tried.clear();
            }
            Failure::NotServing | Failure::NotOwner(_) => {}
        }
        self.tried.insert(self.at.clone());
        match self.instance {
            Some(instance) if state.owners.ask(instance).is_some() => {
                state.owners.known(instance).avoid(&self.at);
            }
            Some(_) => {}
            None => self.known.avoid(&self.at),
        }
    }

    /// On to the next server.
    fn turn(&mut self) {
        self.at = self.cluster.next_after(&self.at);
    }

    /// On to the next server that may serve and was not asked yet; when all were, to this one, which is down.
    fn turn_before(&mut self, last: Address) {
        self.tried.insert(last.clone());
        let next = self.cluster.next_but(&self.at, &self.tried);
        self.at = next.unwrap_or_else(|| {
            self.tried.clear();
            last
        });
    }
}

impl<'a> Failure<'a> {
    fn of(error: &'a Error) -> Self {
        match error {
            Error::Refused(refusal) => match refusal.reason {
                RefusalReason::NotOwner | RefusalReason::OwnerLost => Self::NotOwner(refusal),
                RefusalReason::Draining | RefusalReason::Recovering | RefusalReason::LogFailed => {
                    Self::NotServing
                }
                _ => Self::Other,
            },
            Error::Unreachable { .. } => Self::Down,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_proto::status::{Owner, RpcRefusal};

    use super::super::PROBE_TIMEOUT;
    use super::*;
    use crate::connection::ClientConfig;

    const INSTANCE: InstanceId = InstanceId::new(1);

    fn address(name: &str) -> Address {
        Address::parse(&format!("{name}:1")).unwrap()
    }

    fn cluster_at(base: &str, given: Vec<Address>) -> Cluster {
        let config = ClientConfig::new(&format!("http://{base}"), "p1").unwrap();
        let cluster = Cluster::new(Connection::lazy(config), given, false);
        // Nobody is asked for it then.
        cluster.state().owners.set_shards(64);
        cluster
    }

    /// The servers of these names, of which the first one is asked first.
    fn cluster_of(names: &[&str]) -> Cluster {
        cluster_at(&format!("{}:1", names[0]), names.iter().map(|name| address(name)).collect())
    }

    fn refused(reason: RefusalReason, owner: Option<(&str, u64)>) -> Error {
        let refusal = RpcRefusal::new(reason, "");
        match owner {
            Some((name, epoch)) => {
                let address = address(name).as_str().to_owned();
                refusal.with_owner(Owner { address, epoch }).into()
            }
            None => refusal.into(),
        }
    }

    fn not_owner(owner: Option<(&str, u64)>) -> Error {
        refused(RefusalReason::NotOwner, owner)
    }

    fn silence() -> Error {
        Error::unreachable("http://server", "keep-alive timed out", true)
    }

    /// Whether there is a pause after this failure, and the server that is asked next.
    async fn next(route: &mut Route, error: Error) -> (bool, String) {
        let pauses = match route.next_try(error).await {
            NextTry::Now => false,
            NextTry::Later(_) => {
                route.note_pause();
                true
            }
            NextTry::Stop(error) => panic!("{error}"),
        };
        (pauses, route.at().as_str().trim_end_matches(":1").to_owned())
    }

    async fn leads(route: &mut Route, error: Error, pauses: bool, to: &str) {
        assert_eq!(next(route, error).await, (pauses, to.to_owned()));
    }

    #[tokio::test]
    async fn while_there_is_no_owner_each_try_comes_after_a_pause() {
        for reason in [RefusalReason::NotOwner, RefusalReason::OwnerLost] {
            let mut route = cluster_of(&["a", "b", "c"]).route_to(INSTANCE);
            for server in ["b", "c", "a", "b", "c", "a"] {
                leads(&mut route, refused(reason, None), true, server).await;
            }
        }
    }

    #[tokio::test]
    async fn a_silent_owner_is_asked_after_all_others_unless_it_is_there_anew() {
        for is_redirected in [false, true] {
            let mut route = cluster_of(&["a", "b", "c", "d"]).route_to(INSTANCE);
            if is_redirected {
                leads(&mut route, not_owner(Some(("b", 5))), false, "b").await;
            } else {
                leads(&mut route, not_owner(None), true, "b").await;
            }
            // With each round anew.
            for _ in 0..3 {
                leads(&mut route, silence(), true, "c").await;
                leads(&mut route, not_owner(Some(("b", 5))), true, "d").await;
                leads(&mut route, not_owner(Some(("b", 5))), true, "a").await;
                leads(&mut route, not_owner(Some(("b", 5))), true, "b").await;
            }
            leads(&mut route, silence(), true, "c").await;
            leads(&mut route, not_owner(Some(("b", 6))), false, "b").await;
            leads(&mut route, silence(), true, "c").await;
            leads(&mut route, not_owner(Some(("d", 7))), false, "d").await;
        }
    }

    #[tokio::test]
    async fn silence_is_known_to_the_other_calls_of_a_client() {
        let cluster = cluster_of(&["a", "b", "c"]);
        let mut routes = [INSTANCE, InstanceId::new(2)].map(|instance| cluster.route_to(instance));
        leads(&mut routes[0], silence(), true, "b").await;
        leads(&mut routes[1], not_owner(None), true, "b").await;
        leads(&mut routes[1], not_owner(Some(("a", 5))), true, "c").await;
        // It has answered.
        let mut back = Route::new(cluster, None, address("a"));
        back.note_answer();
        leads(&mut routes[1], not_owner(Some(("a", 5))), false, "a").await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_server_that_was_silent_nothing_is_awaited_but_a_short_probe() {
        // Connections to it are accepted, and nobody answers on them.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = silent.local_addr().map(|address| (silent, address.to_string())).unwrap();
        let given = vec![Address::parse(&silent.1).unwrap(), address("b")];
        let mut route = cluster_at(&silent.1, given.clone()).route_to(INSTANCE);
        route.connection().await.expect("it has not failed yet");
        leads(&mut route, silence(), true, "b").await;
        for waits in [false, true] {
            route.at = given[0].clone();
            let begun = Instant::now();
            let reached = match waits {
                true => route.connection_that_answers(10 * PROBE_TIMEOUT).await,
                false => route.connection().await,
            };
            let error = reached.unwrap_err();
            assert!(matches!(error, Error::Unreachable { sent: false, .. }), "{error:?}");
            // By a clock that stands still whenever anything is done.
            assert!(begun.elapsed() <= PROBE_TIMEOUT + Duration::from_millis(1));
            leads(&mut route, error, true, "b").await;
        }
    }
}
