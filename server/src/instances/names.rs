//! Names of instances that other servers of a cluster may have (SPEC F11).
//!
//! In one server a name is unique in the registry. In a cluster each name that is in use has a claim in the
//! store that the servers share: the id of its instance. The transaction that commits the creation of an
//! instance makes the claim, on condition that there is none, or that it is that of a closed instance which
//! this server owns, and whose name the new one takes. The transaction of its expiry removes it, unless
//! another instance has taken the name. The transaction of a close leaves it: a closed instance is still
//! found by its name, at any server. If the condition does not hold, the log refuses the steps of this one
//! instance (`CommitOutcome::Refused`), and the Create is told to ask again: the commit decides, nothing
//! before it.
//!
//! This module asks for the claim before the commit, by a linearizable read: to find an instance by its name
//! at any server, and to refuse a Create at once whose name is taken elsewhere. To find an instance that is
//! here the claim is not asked for, unless that is closed: the registry does not see that an instance in a
//! shard of another server has taken its name. After a take-over the registry may not know who has a name, if
//! both are here: then the claim tells it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::{Instance, Instances};

/// The instance that has a name, if any does.
pub(crate) type Claimed = Pin<Box<dyn Future<Output = Result<Option<InstanceId>, RpcRefusal>> + Send>>;

/// See the module.
pub(crate) trait NameClaims: fmt::Debug + Send + Sync {
    /// The instance that has this name in the cluster. An error tells why nobody can say it.
    fn claimed(&self, name: &InstanceName) -> Claimed;
}

impl Instances {
    /// The instance that has this name in the cluster. `found`: the instance that the registry has found,
    /// which is closed, or not served.
    pub(super) async fn find_claimed(
        &self,
        name: &InstanceName,
        found: Option<Arc<Instance>>,
    ) -> Result<Arc<Instance>, RpcRefusal> {
        // After the log has failed nobody knows that there is none.
        if let Some(failure) = self.log_failure() {
            return Err(failure);
        }
        let Some(names) = &self.names else {
            return match found {
                Some(found) if found.shard.is_served() => Ok(found),
                Some(found) => Err(self.not_owner(found.shard.key)),
                None => Err(super::unknown(name.as_str())),
            };
        };
        match names.claimed(name).await? {
            Some(id) => self.get(id).inspect(|holder| self.link_name(holder, found.as_ref())),
            // The instance that had the name has expired.
            None => Err(super::unknown(name.as_str())),
        }
    }

    /// Refuses a Create whose name an instance of another server has: that server knows whether it is the
    /// same, or closed. One that is here is found by its name afterwards.
    pub(super) async fn check_name(&self, name: &InstanceName) -> Result<(), RpcRefusal> {
        let Some(names) = &self.names else { return Ok(()) };
        let found = self.registry().named(name).cloned();
        let Some(id) = names.claimed(name).await? else { return Ok(()) };
        match self.get(id) {
            Ok(holder) => {
                self.link_name(&holder, found.as_ref());
                Ok(())
            }
            // It has expired meanwhile.
            Err(gone) if gone.reason == RefusalReason::InstanceUnknown => Ok(()),
            Err(refused) => Err(refused),
        }
    }

    /// This instance, which is here, has the claim to its name: it is found by that, unless the name has
    /// changed hands since `found` was found by it. After a take-over it may not be: the logs of several
    /// shards are read back in any order.
    fn link_name(&self, holder: &Instance, found: Option<&Arc<Instance>>) {
        if self.registry().holds_name(holder) {
            return;
        }
        let mut registry = self.registry_mut();
        let named = holder.config().name.as_ref().and_then(|name| registry.named(name));
        if named.map(Arc::as_ptr) == found.map(Arc::as_ptr) {
            registry.give_name_back(holder);
        }
    }

    /// Whether the instance with this id gives its name up to a new one: it is here, has the name and was
    /// closed, and that is committed. Waits for nothing: a log asks that in the middle of a commit, which
    /// steps of that instance may wait for.
    pub(crate) fn gives_up_name(&self, id: InstanceId, name: &InstanceName) -> bool {
        self.get(id).is_ok_and(|it| it.config().name.as_ref() == Some(name) && it.is_closed())
    }

    /// Whether this instance is found by its name, if it has one.
    #[cfg(feature = "simulation")]
    pub(crate) fn holds_name(&self, instance: &Instance) -> bool {
        self.registry().holds_name(instance)
    }
}
