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

use crate::principals::{Account, Incident, Place, Principals, Share};

/// The peer of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Its place among those that belong to nobody.
    number: u64,
    nameless: Arc<Nameless>,
    owner: OnceLock<Owner>,
    /// Held while it gets its owner.
    naming: Mutex<()>,
    cut: CancellationToken,
}

#[derive(Debug)]
struct Owner {
    account: Arc<Account>,
    _place: Place,
}

/// The open connections that belong to nobody yet.
#[derive(Debug)]
pub(crate) struct Nameless {
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

impl Nameless {
    /// None is open; at most `limit` may be.
    pub(crate) fn new(limit: usize, principals: Principals) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), limit, principals })
    }

    /// The peer of a new connection, which breaks off when `cut` is cancelled. The oldest of too many breaks off
    /// for it.
    pub(crate) fn meet(self: &Arc<Self>, cut: CancellationToken) -> Peer {
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.cuts.insert(number, cut.clone());
        if waiting.cuts.len() > self.limit
            && let Some((_, oldest)) = waiting.cuts.pop_first()
        {
            self.note(Incident::ConnectionSilent);
            oldest.cancel();
        }
        drop(waiting);
        let nameless = self.clone();
        Peer(Arc::new(Shared { number, nameless, owner: OnceLock::new(), naming: Mutex::default(), cut }))
    }

    /// Something that nobody is known to have done.
    pub(crate) fn note(&self, incident: Incident) {
        self.principals.all().note(incident);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// A call on the connection is taken for this principal: if it is the first one, the connection is the
    /// principal's.
    ///
    /// # Errors
    /// If the principal has as many connections as it may. The connection then still belongs to nobody.
    pub(crate) fn speak(&self, account: &Arc<Account>) -> Result<(), RpcRefusal> {
        if self.0.owner.get().is_some() {
            return Ok(());
        }
        let naming = self.0.naming.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two calls at once one is first, and the other needs no place: there may be only one left.
        if self.0.owner.get().is_some() {
            return Ok(());
        }
        let place = account.take(Share::Connections)?;
        let _ = self.0.owner.set(Owner { account: account.clone(), _place: place });
        drop(naming);
        self.leave();
        Ok(())
    }

    /// Whose the connection is, once somebody has spoken on it.
    pub(crate) fn owner(&self) -> Option<&Arc<Account>> {
        self.0.owner.get().map(|owner| &owner.account)
    }

    /// Breaks the connection off.
    pub(crate) fn cut(&self) {
        self.0.cut.cancel();
    }

    /// What happened on the connection, whoever's it is.
    pub(crate) fn note(&self, incident: Incident) {
        match self.owner() {
            Some(account) => account.note(incident),
            None => self.0.nameless.note(incident),
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

    fn nameless(limits: &Limits) -> (Arc<Nameless>, Principals) {
        let principals = Principals::new(limits);
        (Nameless::new(limits.nameless_connections, principals.clone()), principals)
    }

    #[test]
    fn the_oldest_connection_that_belongs_to_nobody_makes_room() {
        let (nameless, principals) = nameless(&Limits { nameless_connections: 2, ..Limits::default() });
        let meet = || {
            let cut = CancellationToken::new();
            (nameless.meet(cut.clone()), cut)
        };
        let [(named, named_cut), (_old, old_cut), (gone, gone_cut)] = [meet(), meet(), meet()];
        assert!(named_cut.is_cancelled(), "the oldest of three");
        let account = principals.account("p1").unwrap();
        drop((named, gone));
        let (_next, next_cut) = meet();
        assert!(!old_cut.is_cancelled() && !gone_cut.is_cancelled(), "those that are gone take no place");
        let (speaking, speaking_cut) = meet();
        assert!(old_cut.is_cancelled());
        speaking.speak(&account).unwrap();
        let (_later, _) = meet();
        assert!(!next_cut.is_cancelled() && !speaking_cut.is_cancelled());
        let told = principals.counts(&[], 9).all.unwrap();
        assert_eq!(told.connections_silent, 2);
    }

    #[test]
    fn a_connection_belongs_to_the_first_who_speaks_until_it_ends() {
        let (nameless, principals) = nameless(&Limits { connections_per_principal: 1, ..Limits::default() });
        let account = |name| principals.account(name).unwrap();
        let [one, other, third] = [(); 3].map(|()| nameless.meet(CancellationToken::new()));
        one.speak(&account("p1")).unwrap();
        one.speak(&account("p2")).unwrap();
        other.speak(&account("p1")).unwrap_err();
        assert!(other.owner().is_none());
        other.speak(&account("p2")).unwrap();
        third.speak(&account("p1")).unwrap_err();
        drop(one);
        third.speak(&account("p1")).unwrap();
    }

    #[test]
    fn two_first_calls_at_once_need_one_place() {
        let (nameless, principals) = nameless(&Limits { connections_per_principal: 1, ..Limits::default() });
        let account = principals.account("p1").unwrap();
        for _ in 0..1_000 {
            let peer = nameless.meet(CancellationToken::new());
            let together = std::sync::Barrier::new(3);
            let speak = || {
                together.wait();
                peer.speak(&account)
            };
            std::thread::scope(|threads| {
                let calls = [(); 3].map(|()| threads.spawn(speak));
                calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
            });
        }
    }
}
