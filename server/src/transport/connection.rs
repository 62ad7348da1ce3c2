//! The handle of one connection: the connection and the calls on it share it.
//!
//! Principals are identified call by call, so a connection belongs to no principal until a call on it is
//! admitted; from then on it belongs to the principal of that call; a connection with a certificate belongs
//! to its principal from its handshake on. Unclaimed connections are few ([`super::unclaimed`]), and each has
//! a deadline: a client that opens connections and makes no call takes no place from those that do (SPEC
//! section 8, `slow-open`).
//!
//! A connection whose client leaves an answer unread is closed. The transport does not poll the body of a
//! response while its client opens no window, so no body notices the time itself; and HTTP/2 has no way to
//! tell the client a status behind bytes that it does not take. So each piece of an answer that waits in the
//! transport counts on its connection, under the period in which it was handed over. A few times in the
//! allowed time a new period begins, and the pieces that are left of an old one were not read. No clock is
//! read for an answer, and no lock taken.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use slab::Slab;
use tokio::task::AbortHandle;

use super::unclaimed::{Pool, PoolLimits, Source};
use crate::auth::{ClientIdentity, Peer};
use crate::limits::Limits;
use crate::quota::{Account, Counter, FRAME_TYPES, NoPermit, Permit, Principals, Quota, Rounds};

/// Periods in the time that answers may lie unread. A piece that was handed over in one is checked when this
/// many whole ones have passed since.
const PERIODS: u64 = 4;
/// More than periods that are told apart.
const SLOTS: usize = 8;

/// One connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<ConnectionState>);

/// The state that all handles of a connection share.
#[derive(Debug)]
struct ConnectionState {
    /// Its key among all that are open.
    key: usize,
    /// Its key among the unclaimed ones from its address.
    number: u64,
    /// The address of the client.
    address: SocketAddr,
    source: Source,
    /// Those of its address.
    rounds: Arc<Rounds>,
    connections: Arc<Connections>,
    /// The identity that the handshake has proven; not set without TLS.
    identity: OnceLock<ClientIdentity>,
    /// The account of the principal that the handshake has proven.
    proven: OnceLock<Arc<Account>>,
    claim: OnceLock<Claim>,
    /// Held while the claim is made.
    claiming: Mutex<()>,
    /// The task that serves the connection.
    task: OnceLock<AbortHandle>,
    /// Whether it is to be closed.
    aborted: AtomicBool,
    /// Requests whose response has not been handed to HTTP/2 as a whole.
    calls: AtomicUsize,
    /// By period, modulo their number: pieces of its answers that have not left.
    unread: [AtomicUsize; SLOTS],
}

/// A request on a connection, until its response has been handed to HTTP/2 as a whole.
#[derive(Debug)]
pub(super) struct OpenCall(Connection);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A piece of an answer that has not left; it has when this is dropped.
#[derive(Debug)]
pub(super) struct UnreadPiece {
    connection: Connection,
    slot: usize,
}

impl Drop for UnreadPiece {
    fn drop(&mut self) {
        self.connection.0.unread[self.slot].fetch_sub(1, Ordering::Relaxed);
    }
}

/// The principal that the connection belongs to.
#[derive(Debug)]
struct Claim {
    account: Arc<Account>,
    _permit: Permit,
}

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<Slab<Weak<ConnectionState>>>,
    /// Those that belong to no principal yet, see [`super::unclaimed`].
    pool: Mutex<Pool<Weak<ConnectionState>>>,
    /// The number of the period of unread answers.
    period: AtomicU64,
    principals: Principals,
}

impl Connections {
    /// None yet; at most as many without a principal as the limits say.
    pub(crate) fn new(limits: &Limits, principals: Principals) -> Arc<Self> {
        let limits = PoolLimits {
            connections: limits.unclaimed_connections,
            per_address: limits.unclaimed_connections_per_address,
            known_addresses: limits.known_addresses,
        };
        let (open, period, pool) = (Mutex::default(), AtomicU64::default(), Mutex::new(Pool::new(limits)));
        Arc::new(Self { open, pool, period, principals })
    }

    /// The handle of a new connection from this address. If there are more than the limits, one makes room:
    /// it is aborted.
    pub(crate) fn register(self: &Arc<Self>, address: SocketAddr) -> Connection {
        let source = Source::of(address);
        let mut pool = self.pool();
        let (number, rounds) = pool.next_number(source);
        let mut open = self.open();
        let entry = open.vacant_entry();
        let connection = Arc::new(ConnectionState {
            key: entry.key(),
            number,
            rounds: rounds.clone(),
            address,
            source,
            connections: self.clone(),
            identity: OnceLock::new(),
            proven: OnceLock::new(),
            claim: OnceLock::new(),
            claiming: Mutex::default(),
            task: OnceLock::new(),
            aborted: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            unread: Default::default(),
        });
        entry.insert(Arc::downgrade(&connection));
        drop(open);
        let loser = pool.add(source, (number, rounds), Arc::downgrade(&connection));
        self.publish(&pool);
        // Before a connection may be dropped, which takes the lock.
        drop(pool);
        let usage = self.principals.totals();
        usage.connections.fetch_add(1, Ordering::Relaxed);
        usage.accepted.fetch_add(1, Ordering::Relaxed);
        if let Some(loser) = loser {
            self.count(Counter::ConnectionSilent);
            if let Some(loser) = loser.upgrade() {
                Connection(loser).abort();
            }
        }
        Connection(connection)
    }

    /// Counts an event for which no principal is known.
    pub(crate) fn count(&self, counter: Counter) {
        self.principals.all().count(counter);
    }

    /// Closes, for ever, connections whose clients leave an answer unread for this long or a little longer.
    pub(super) async fn close_unread(self: Arc<Self>, unread_for: Duration) {
        let period = unread_for / u32::try_from(PERIODS).unwrap_or(1);
        let mut periods = tokio::time::interval(period.max(Duration::from_millis(1)));
        loop {
            periods.tick().await;
            self.begin_period();
        }
    }

    fn begin_period(&self) {
        let period = self.period.fetch_add(1, Ordering::Relaxed) + 1;
        // Its last piece was handed over just before the period after it began.
        let Some(old) = period.checked_sub(PERIODS + 1) else { return };
        let open: Vec<_> = self.open().iter().filter_map(|(_, it)| it.upgrade().map(Connection)).collect();
        for connection in open {
            if connection.0.unread[slot(old)].load(Ordering::Relaxed) > 0 && connection.abort() {
                let principal = connection.account().map(|account| account.name());
                tracing::warn!(?principal, "connection aborted: its client does not read an answer");
                connection.count(Counter::ConnectionUnread);
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, Slab<Weak<ConnectionState>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Pool<Weak<ConnectionState>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For metrics.
    fn publish(&self, pool: &Pool<Weak<ConnectionState>>) {
        let (most, known) = pool.usage();
        let usage = self.principals.totals();
        usage.unclaimed_of_one_address.store(most, Ordering::Relaxed);
        usage.known_addresses.store(known, Ordering::Relaxed);
    }
}

/// The place of a period among those that are told apart.
fn slot(period: u64) -> usize {
    usize::try_from(period % SLOTS as u64).unwrap_or(0)
}

impl Connection {
    /// The task that serves the connection: what [`Self::abort`] aborts.
    pub(super) fn set_task(&self, task: AbortHandle) {
        let _ = self.0.task.set(task);
        // One that had to make room before its task began.
        if self.0.aborted.load(Ordering::SeqCst) {
            self.abort();
        }
    }

    /// The handshake has proven this.
    pub(super) fn set_identity(&self, identity: ClientIdentity) {
        let _ = self.0.identity.set(identity);
    }

    /// The address from which the connection comes.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The identity that the handshake has proven. `None`: it has proven none.
    pub(crate) fn identity(&self) -> Option<&ClientIdentity> {
        self.0.identity.get()
    }

    /// The facts about a caller that follow from its connection.
    pub(crate) fn peer(&self) -> Peer<'_> {
        Peer { identity: self.identity(), address: self.address(), is_claimed: self.account().is_some() }
    }

    /// Makes the connection that of this principal, unless it belongs to one already.
    ///
    /// # Errors
    /// If the principal has as many connections as it may. The connection then stays unclaimed.
    pub(crate) fn claim(&self, account: &Arc<Account>) -> Result<(), NoPermit> {
        if self.0.claim.get().is_some() {
            return Ok(());
        }
        let claiming = self.0.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        // Two first calls at once need one permit, and there may be only one left.
        if self.0.claim.get().is_some() {
            return Ok(());
        }
        let permit = account.take(Quota::Connections)?;
        let _ = self.0.claim.set(Claim { account: account.clone(), _permit: permit });
        drop(claiming);
        let mut pool = self.0.connections.pool();
        pool.remove(self.0.source, self.0.number);
        pool.identified(self.0.source);
        self.0.connections.publish(&pool);
        Ok(())
    }

    /// Makes the connection that of the principal that its handshake has proven. Without a place for it the
    /// connection stays unclaimed, and its first call is told why.
    pub(super) fn claim_for_identity(&self) {
        let Some(identity) = self.identity() else { return };
        let account = self.0.connections.principals.account(&identity.principal);
        let claimed = account.and_then(|account| {
            let _ = self.0.proven.set(account.clone());
            Ok(self.claim(&account)?)
        });
        if let Err(refused) = claimed {
            tracing::debug!(principal = identity.principal.as_str(), why = refused.message, "not claimed");
        }
    }

    /// The account of the principal that the connection belongs to, or that its handshake has proven though
    /// there was no place for one more connection of it.
    pub(super) fn proven_account(&self) -> Option<&Arc<Account>> {
        self.account().or_else(|| self.0.proven.get())
    }

    /// The account of the principal that the connection belongs to. `None`: it is unclaimed.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.0.claim.get().map(|claim| &claim.account)
    }

    /// The rounds in which its tasks have their turns while the account is greedy to which they are charged:
    /// those of its principal; without one those of its address, so that no address waits for all tasks of
    /// another.
    pub(super) fn rounds(&self) -> &Rounds {
        self.proven_account().map_or(&self.0.rounds, |account| account.rounds())
    }

    /// The account to which its frames and its processor time are charged: that of its principal, or that of
    /// all clients without identity.
    pub(super) fn charged_account(&self) -> &Arc<Account> {
        self.proven_account().unwrap_or_else(|| self.0.connections.principals.anonymous())
    }

    /// Counts frames by type.
    pub(super) fn count_frames(&self, by_type: &[u32; FRAME_TYPES]) {
        let counters = &self.0.connections.principals.totals().frames;
        for (counter, frames) in counters.iter().zip(by_type).filter(|(_, frames)| **frames > 0) {
            counter.fetch_add((*frames).into(), Ordering::Relaxed);
        }
    }

    /// Counts a request as open.
    pub(super) fn open_call(&self) -> OpenCall {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        OpenCall(self.clone())
    }

    /// The number of requests that are open.
    pub(super) fn open_calls(&self) -> usize {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// A piece of an answer is handed to the transport.
    pub(super) fn unread_piece(&self) -> UnreadPiece {
        let slot = slot(self.0.connections.period.load(Ordering::Relaxed));
        self.0.unread[slot].fetch_add(1, Ordering::Relaxed);
        UnreadPiece { connection: self.clone(), slot }
    }

    /// Closes the connection at once. False: it was closed before.
    pub(super) fn abort(&self) -> bool {
        let is_first = !self.0.aborted.swap(true, Ordering::SeqCst);
        if let Some(task) = self.0.task.get() {
            task.abort();
        }
        is_first
    }

    /// Counts what happened on the connection for its principal, if it has one.
    pub(crate) fn count(&self, counter: Counter) {
        match self.account() {
            Some(account) => account.count(counter),
            None => self.0.connections.count(counter),
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.connections.open().remove(self.key);
        self.connections.principals.totals().connections.fetch_sub(1, Ordering::Relaxed);
        if self.claim.get().is_none() {
            let mut pool = self.connections.pool();
            pool.remove(self.source, self.number);
            self.connections.publish(&pool);
        }
    }
}

/// An address for connections in tests.
#[cfg(test)]
pub(super) const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;
    use crate::auth::Principal;

    fn unclaimed(limits: &Limits) -> (Arc<Connections>, Principals) {
        let principals = Principals::new(limits);
        (Connections::new(limits, principals.clone()), principals)
    }

    /// A connection, and a task in place of the one that would serve it.
    fn register(unclaimed: &Arc<Connections>) -> (Connection, JoinHandle<()>) {
        let (connection, task) = (unclaimed.register(LOCAL), tokio::spawn(std::future::pending()));
        connection.set_task(task.abort_handle());
        (connection, task)
    }

    /// However many addresses they come from: the one that has just come is the youngest.
    #[tokio::test]
    async fn whoever_has_to_make_room_is_closed_also_before_its_task_begins() {
        let limits = Limits { unclaimed_connections: 8, ..Limits::default() };
        let (unclaimed, _) = unclaimed(&limits);
        let mut tasks = Vec::new();
        let mut held = Vec::new();
        for last in 0..=200 {
            let connection = unclaimed.register(SocketAddr::from(([198, 51, 100, last], 1)));
            let task = tokio::spawn(std::future::pending::<()>());
            connection.set_task(task.abort_handle());
            tasks.push(task);
            held.push(connection);
        }
        // Half is for addresses that are known.
        let kept = tasks.split_off(tasks.len() - 4);
        for task in tasks {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert!(kept.iter().all(|task| !task.is_finished()), "the youngest stay");
        // One that is told before its task begins.
        let early = unclaimed.register(SocketAddr::from(([203, 0, 113, 1], 1)));
        early.abort();
        let task = tokio::spawn(std::future::pending::<()>());
        early.set_task(task.abort_handle());
        assert!(task.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn the_oldest_unclaimed_connection_makes_room() {
        let (unclaimed, principals) =
            unclaimed(&Limits { unclaimed_connections_per_address: 2, ..Limits::default() });
        let register = || register(&unclaimed);
        let [(first, first_task), (_old, old_task), (gone, gone_task)] = [register(), register(), register()];
        assert!(first_task.await.unwrap_err().is_cancelled(), "the oldest of three");
        let account = principals.account(&Principal::new("p1")).unwrap();
        drop((first, gone));
        let (_next, next_task) = register();
        tokio::task::yield_now().await;
        assert!(!old_task.is_finished() && !gone_task.is_finished(), "a dropped connection takes no place");
        let (claimed, claimed_task) = register();
        assert!(old_task.await.unwrap_err().is_cancelled());
        claimed.claim(&account).unwrap();
        let (_later, _) = register();
        tokio::task::yield_now().await;
        assert!(!next_task.is_finished() && !claimed_task.is_finished());
        let counts = principals.counts(None::<[&str; 0]>, 9).all.unwrap();
        assert_eq!(counts.connections_silent, 2);
    }

    #[test]
    fn a_connection_belongs_to_its_first_principal_to_its_end() {
        let (unclaimed, principals) =
            unclaimed(&Limits { connections_per_principal: 1, ..Limits::default() });
        let account = |name| principals.account(&Principal::new(name)).unwrap();
        let [one, other, third] = [(); 3].map(|()| unclaimed.register(LOCAL));
        one.claim(&account("p1")).unwrap();
        one.claim(&account("p2")).unwrap();
        other.claim(&account("p1")).unwrap_err();
        assert!(other.account().is_none());
        other.claim(&account("p2")).unwrap();
        third.claim(&account("p1")).unwrap_err();
        drop(one);
        third.claim(&account("p1")).unwrap();
    }

    #[test]
    fn simultaneous_first_calls_need_one_permit() {
        let (unclaimed, principals) =
            unclaimed(&Limits { connections_per_principal: 1, ..Limits::default() });
        let account = principals.account(&Principal::new("p1")).unwrap();
        for _ in 0..1_000 {
            let connection = unclaimed.register(LOCAL);
            let together = std::sync::Barrier::new(3);
            let claim = || {
                together.wait();
                connection.claim(&account)
            };
            std::thread::scope(|threads| {
                let calls = [(); 3].map(|()| threads.spawn(claim));
                calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
            });
        }
    }
}
