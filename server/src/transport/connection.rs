//! The handle of one connection: the connection and the calls on it share it.
//!
//! Principals are identified call by call, so a connection belongs to no principal until a call on it is admitted;
//! from then on it belongs to the principal of that call. Unclaimed connections are few, the oldest makes room for
//! the next, and each has a deadline: a client that opens connections and makes no call takes no place from those
//! that do (SPEC section 8, `slow-open`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use stickycas_proto::status::RpcRefusal;
use tokio::task::AbortHandle;

use super::unread::Unread;
use crate::auth::ClientIdentity;
use crate::quota::{Account, Counter, Permit, Principals, Quota};

/// One connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<ConnectionState>);

#[derive(Debug)]
struct ConnectionState {
    /// Its key among the unclaimed ones.
    number: u64,
    unclaimed: Arc<UnclaimedConnections>,
    /// What the handshake has proven of the client; not set without TLS.
    identity: OnceLock<ClientIdentity>,
    claim: OnceLock<Claim>,
    /// Held while the claim is made.
    claiming: Mutex<()>,
    /// The task that serves the connection.
    task: OnceLock<AbortHandle>,
    /// Its answers that have not left; not set before there was one.
    unread: OnceLock<Arc<Unread>>,
    /// Whether it was aborted because its client does not read.
    given_up: AtomicBool,
}

/// A connection, unless it has ended.
#[derive(Debug)]
pub(super) struct WeakConnection(Weak<ConnectionState>);

impl WeakConnection {
    pub(super) fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(Connection)
    }
}

/// The principal that the connection belongs to.
#[derive(Debug)]
struct Claim {
    account: Arc<Account>,
    _permit: Permit,
}

/// The open connections that belong to no principal yet.
#[derive(Debug)]
pub(crate) struct UnclaimedConnections {
    by_age: Mutex<ByAge>,
    limit: usize,
    principals: Principals,
}

#[derive(Debug, Default)]
struct ByAge {
    connections: BTreeMap<u64, Weak<ConnectionState>>,
    next: u64,
}

impl UnclaimedConnections {
    /// At most `limit` connections at a time.
    pub(crate) fn new(limit: usize, principals: Principals) -> Arc<Self> {
        Arc::new(Self { by_age: Mutex::default(), limit, principals })
    }

    /// The handle of a new connection. If there are more than the limit, the oldest is aborted.
    pub(crate) fn register(self: &Arc<Self>) -> Connection {
        let mut by_age = self.by_age();
        let number = by_age.next;
        by_age.next += 1;
        let connection = Arc::new(ConnectionState {
            number,
            unclaimed: self.clone(),
            identity: OnceLock::new(),
            claim: OnceLock::new(),
            claiming: Mutex::default(),
            task: OnceLock::new(),
            unread: OnceLock::new(),
            given_up: AtomicBool::new(false),
        });
        by_age.connections.insert(number, Arc::downgrade(&connection));
        let usage = self.principals.usage();
        usage.connections.fetch_add(1, Ordering::Relaxed);
        usage.accepted.fetch_add(1, Ordering::Relaxed);
        let oldest =
            if by_age.connections.len() > self.limit { by_age.connections.pop_first() } else { None };
        // Before a connection may be dropped, which takes the lock.
        drop(by_age);
        if let Some((_, oldest)) = oldest {
            self.count(Counter::ConnectionSilent);
            if let Some(oldest) = oldest.upgrade() {
                Connection(oldest).abort();
            }
        }
        Connection(connection)
    }

    /// Counts an event for which no principal is known.
    pub(crate) fn count(&self, counter: Counter) {
        self.principals.all().count(counter);
    }

    fn by_age(&self) -> MutexGuard<'_, ByAge> {
        self.by_age.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// The task that serves the connection: what [`Self::abort`] aborts.
    pub(super) fn set_task(&self, task: AbortHandle) {
        let _ = self.0.task.set(task);
    }

    /// The handshake has proven this.
    pub(super) fn set_identity(&self, identity: ClientIdentity) {
        let _ = self.0.identity.set(identity);
    }

    /// What the handshake has proven of the client. `None`: there was none that proves anything.
    pub(crate) fn identity(&self) -> Option<&ClientIdentity> {
        self.0.identity.get()
    }

    /// Makes the connection that of this principal, unless it belongs to one already.
    ///
    /// # Errors
    /// If the principal has as many connections as it may. The connection then stays unclaimed.
    pub(crate) fn claim(&self, account: &Arc<Account>) -> Result<(), RpcRefusal> {
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
        self.0.deregister();
        Ok(())
    }

    /// The account of the principal that the connection belongs to. `None`: it is unclaimed.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.0.claim.get().map(|claim| &claim.account)
    }

    /// Its answers that have not left, made by `new` for the first one.
    pub(super) fn unread(&self, new: impl FnOnce(WeakConnection) -> Arc<Unread>) -> Arc<Unread> {
        self.0.unread.get_or_init(|| new(WeakConnection(Arc::downgrade(&self.0)))).clone()
    }

    /// Closes the connection at once, because its client leaves answers unread. False: it was closed for that before.
    pub(crate) fn give_up(&self) -> bool {
        let is_first = !self.0.given_up.swap(true, Ordering::Relaxed);
        self.abort();
        is_first
    }

    /// Closes the connection at once.
    pub(crate) fn abort(&self) {
        if let Some(task) = self.0.task.get() {
            task.abort();
        }
    }

    /// Counts what happened on the connection for its principal, if it has one.
    pub(crate) fn count(&self, counter: Counter) {
        match self.account() {
            Some(account) => account.count(counter),
            None => self.0.unclaimed.count(counter),
        }
    }
}

impl ConnectionState {
    fn deregister(&self) {
        self.unclaimed.by_age().connections.remove(&self.number);
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.unclaimed.principals.usage().connections.fetch_sub(1, Ordering::Relaxed);
        self.deregister();
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;
    use crate::auth::Principal;
    use crate::limits::Limits;

    fn unclaimed(limits: &Limits) -> (Arc<UnclaimedConnections>, Principals) {
        let principals = Principals::new(limits);
        (UnclaimedConnections::new(limits.unclaimed_connections, principals.clone()), principals)
    }

    /// A connection, and a task in place of the one that would serve it.
    fn register(unclaimed: &Arc<UnclaimedConnections>) -> (Connection, JoinHandle<()>) {
        let (connection, task) = (unclaimed.register(), tokio::spawn(std::future::pending()));
        connection.set_task(task.abort_handle());
        (connection, task)
    }

    #[tokio::test]
    async fn the_oldest_unclaimed_connection_makes_room() {
        let (unclaimed, principals) = unclaimed(&Limits { unclaimed_connections: 2, ..Limits::default() });
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
        let counts = principals.counts(&[], 9).all.unwrap();
        assert_eq!(counts.connections_silent, 2);
    }

    #[test]
    fn a_connection_belongs_to_its_first_principal_to_its_end() {
        let (unclaimed, principals) =
            unclaimed(&Limits { connections_per_principal: 1, ..Limits::default() });
        let account = |name| principals.account(&Principal::new(name)).unwrap();
        let [one, other, third] = [(); 3].map(|()| unclaimed.register());
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
            let connection = unclaimed.register();
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
