//! Whose a connection is: what the connection and the calls on it share.
//!
//! Who calls is learnt call by call, so a connection belongs to nobody until a call on it is taken for some
//! principal, whose connection it then is to its end. Those that belong to nobody are few, the oldest makes room
//! for the next, and none stays so for long: who opens connections and says nothing takes no place from those
//! who speak (SPEC section 8, `slow-open`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use stickycas_proto::status::RpcRefusal;
use tokio_util::sync::CancellationToken;

use crate::quota::{Account, Counter, Permit, Principals, Quota};

/// The connection of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Its place among those that belong to nobody.
    number: u64,
    nameless: Arc<UnclaimedConnections>,
    owner: OnceLock<Claim>,
    /// Held while it gets its owner.
    naming: Mutex<()>,
    cut: CancellationToken,
}

#[derive(Debug)]
struct Claim {
    account: Arc<Account>,
    _permit: Permit,
}

/// The open connections that belong to nobody yet.
#[derive(Debug)]
pub(crate) struct UnclaimedConnections {
    waiting: Mutex<Waiting>,
    limit: usize,
    principals: Principals,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By age.
    cuts: BTreeMap<u64, CancellationToken>,
    next: u64,
}

impl UnclaimedConnections {
    /// None is open; at most `limit` may be.
    pub(crate) fn new(limit: usize, principals: Principals) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), limit, principals })
    }

    /// The connection of a new connection, which breaks off when `cut` is cancelled. The oldest of too many breaks off
    /// for it.
    pub(crate) fn register(self: &Arc<Self>, cut: CancellationToken) -> Connection {
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.cuts.insert(number, cut.clone());
        if waiting.cuts.len() > self.limit
            && let Some((_, oldest)) = waiting.cuts.pop_first()
        {
            self.count(Counter::ConnectionSilent);
            oldest.cancel();
        }
        drop(waiting);
        let nameless = self.clone();
        Connection(Arc::new(Shared {
            number,
            nameless,
            owner: OnceLock::new(),
            naming: Mutex::default(),
            cut,
        }))
    }

    /// Something that nobody is known to have done.
    pub(crate) fn count(&self, counter: Counter) {
        self.principals.all().count(counter);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// A call on the connection is taken for this principal: if it is the first one, the connection is the
    /// principal's.
    ///
    /// # Errors
    /// If the principal has as many connections as it may. The connection then still belongs to nobody.
    pub(crate) fn claim(&self, account: &Arc<Account>) -> Result<(), RpcRefusal> {
        if self.0.owner.get().is_some() {
            return Ok(());
        }
        let naming = self.0.naming.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two calls at once one is first, and the other needs no place: there may be only one left.
        if self.0.owner.get().is_some() {
            return Ok(());
        }
        let permit = account.take(Quota::Connections)?;
        let _ = self.0.owner.set(Claim { account: account.clone(), _permit: permit });
        drop(naming);
        self.leave();
        Ok(())
    }

    /// Whose the connection is, once somebody has spoken on it.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.0.owner.get().map(|owner| &owner.account)
    }

    /// Breaks the connection off.
    pub(crate) fn abort(&self) {
        self.0.cut.cancel();
    }

    /// What happened on the connection, whoever's it is.
    pub(crate) fn count(&self, counter: Counter) {
        match self.account() {
            Some(account) => account.count(counter),
            None => self.0.nameless.count(counter),
        }
    }

    fn leave(&self) {
        self.0.nameless.waiting().cuts.remove(&self.0.number);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.nameless.waiting().cuts.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn nameless(limits: &Limits) -> (Arc<UnclaimedConnections>, Principals) {
        let principals = Principals::new(limits);
        (UnclaimedConnections::new(limits.unclaimed_connections, principals.clone()), principals)
    }

    #[test]
    fn the_oldest_connection_that_belongs_to_nobody_makes_room() {
        let (nameless, principals) = nameless(&Limits { unclaimed_connections: 2, ..Limits::default() });
        let register = || {
            let cut = CancellationToken::new();
            (nameless.register(cut.clone()), cut)
        };
        let [(named, named_cut), (_old, old_cut), (gone, gone_cut)] = [register(), register(), register()];
        assert!(named_cut.is_cancelled(), "the oldest of three");
        let account = principals.account("p1").unwrap();
        drop((named, gone));
        let (_next, next_cut) = register();
        assert!(!old_cut.is_cancelled() && !gone_cut.is_cancelled(), "those that are gone take no place");
        let (speaking, speaking_cut) = register();
        assert!(old_cut.is_cancelled());
        speaking.claim(&account).unwrap();
        let (_later, _) = register();
        assert!(!next_cut.is_cancelled() && !speaking_cut.is_cancelled());
        let told = principals.counts(&[], 9).all.unwrap();
        assert_eq!(told.connections_silent, 2);
    }

    #[test]
    fn a_connection_belongs_to_the_first_who_speaks_until_it_ends() {
        let (nameless, principals) = nameless(&Limits { connections_per_principal: 1, ..Limits::default() });
        let account = |name| principals.account(name).unwrap();
        let [one, other, third] = [(); 3].map(|()| nameless.register(CancellationToken::new()));
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
    fn two_first_calls_at_once_need_one_permit() {
        let (nameless, principals) = nameless(&Limits { connections_per_principal: 1, ..Limits::default() });
        let account = principals.account("p1").unwrap();
        for _ in 0..1_000 {
            let connection = nameless.register(CancellationToken::new());
            let together = std::sync::Barrier::new(3);
            let speak = || {
                together.wait();
                connection.claim(&account)
            };
            std::thread::scope(|threads| {
                let calls = [(); 3].map(|()| threads.spawn(speak));
                calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
            });
        }
    }
}
