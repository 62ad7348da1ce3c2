//! [`Route`]: the way of one call, session or watch to the server that answers it.

use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;
use tokio::time::Instant;

use super::Cluster;
use super::address::Address;
use super::owners::Known;
use crate::connection::Connection;
use crate::error::{Error, Refusal};

/// The most redirects that are followed without a pause. After one more the client waits, as after any other failure, and
/// asks any server again; so servers that name each other cost no more than a server that is down.
pub const MAX_REDIRECTS: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Route {
    cluster: Cluster,
    /// `None`: the call does not name an instance by its id.
    instance: Option<InstanceId>,
    /// What is known without an instance.
    known: Known,
    at: Address,
    /// Whether no other server will do.
    pinned: bool,
    /// Redirects since the last pause or answer.
    redirects: u32,
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

/// What a failure says of the server.
enum Failure<'a> {
    /// It is not the owner, or is not any more; and what it says of the owner.
    NotOwner(&'a Refusal),
    /// It does not serve at the moment.
    NotServing,
    /// It cannot be reached.
    Down,
    /// Nothing.
    Other,
}

impl Route {
    pub(super) fn new(cluster: Cluster, instance: Option<InstanceId>, at: Address) -> Self {
        Self { cluster, instance, known: Known::default(), at, pinned: false, redirects: 0 }
    }

    /// To this server alone.
    pub(crate) fn pinned(cluster: &Cluster, at: Address) -> Self {
        Self { pinned: true, ..Self::new(cluster.clone(), None, at) }
    }

    /// From now on no other server than this one will do.
    pub(crate) fn pin(&mut self) {
        self.pinned = self.cluster.has_several();
    }

    /// The server to ask.
    pub(crate) fn at(&self) -> &Address {
        &self.at
    }

    /// The connection to it.
    ///
    /// # Errors
    /// If there can be none.
    pub(crate) fn connection(&self) -> Result<Connection, Error> {
        self.cluster.connection(&self.at)
    }

    /// The server has answered: ask it first the next time.
    pub(crate) fn answered(&mut self) {
        self.redirects = 0;
        // There is nothing to choose otherwise.
        if self.cluster.has_several() {
            let mut state = self.cluster.state();
            state.down.remove(&self.at);
            if let Some(instance) = self.instance {
                state.owners.known(instance).answered(&self.at);
            }
        }
    }

    /// A pause was made.
    pub(crate) fn waited(&mut self) {
        self.redirects = 0;
    }

    /// The server has failed: chooses the one to ask next.
    pub(crate) async fn failed(&mut self, error: Error) -> NextTry {
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
                let followed = match refusal.owner.as_deref() {
                    // As many as may be, and one more.
                    Some(owner) if self.redirects < MAX_REDIRECTS => {
                        let admitted = self.cluster.admit(&owner.address, &self.at).await;
                        admitted.map(|address| self.told(address, owner.epoch))
                    }
                    _ => Ok(false),
                };
                match followed {
                    Ok(true) => {
                        self.redirects += 1;
                        NextTry::Now
                    }
                    Ok(false) => {
                        self.turn();
                        NextTry::Later(error)
                    }
                    Err(not_dialled) => {
                        self.turn();
                        // What may have happened must not be forgotten.
                        NextTry::Later(if error.may_have_happened() { error } else { not_dialled })
                    }
                }
            }
        }
    }

    /// The owner has been told; whether to go there.
    fn told(&mut self, owner: Address, epoch: u64) -> bool {
        // A server that names itself when it refuses is confused.
        let newer = owner != self.at
            && match self.instance {
                Some(instance) => self.cluster.state().owners.known(instance).told(&owner, epoch),
                None => self.known.told(&owner, epoch),
            };
        if newer {
            tracing::debug!(from = %self.at, to = %owner, epoch, "another server is the owner");
            self.at = owner;
        } else {
            tracing::debug!(at = %self.at, %owner, epoch, "ignored: older than the owner that is known");
        }
        newer
    }

    /// Keeps in mind what the failure says of the server.
    fn note(&mut self, failure: &Failure<'_>) {
        let mut state = self.cluster.state();
        match failure {
            Failure::Other => return,
            Failure::Down => {
                state.down.insert(self.at.clone(), Instant::now());
            }
            Failure::NotServing | Failure::NotOwner(_) => {}
        }
        match self.instance {
            Some(instance) if state.owners.ask(instance).is_some() => {
                state.owners.known(instance).failed(&self.at);
            }
            Some(_) => {}
            None => self.known.failed(&self.at),
        }
    }

    /// On to the next server.
    fn turn(&mut self) {
        self.at = self.cluster.next_after(&self.at);
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
