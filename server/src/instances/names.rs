//! Names of instances that other servers of a cluster may have (SPEC F11).
//!
//! In one server a name is unique in the registry. In a cluster each name that is in use has a claim in the store that the
//! servers share: the id of its instance. The transaction that commits the creation of an instance makes the claim, on
//! condition that there is none, or that it is that of the closed instance whose name is taken; the transaction of its
//! expiry removes it, and so does that of a close when nobody needs to find the closed instance by its name. A log sees
//! both in its steps: the record of the creation has the name, and with `Step::name` every other one too. If the
//! condition does not hold, the log refuses the steps of this one instance (`Settled::Refused` with NAME_TAKEN), and the
//! Create is told that: the commit decides, nothing before it.
//!
//! What is asked here is asked before, by a linearizable read: to find an instance by its name at any server, and to
//! refuse a Create at once whose name is taken elsewhere. A claim of an instance that is here is not asked for: the
//! registry knows it.

use std::fmt;
use std::pin::Pin;

use stickycas_model::machine::State;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;

use super::Instances;

/// The instance that has a name, if any does.
pub(crate) type Claimed = Pin<Box<dyn Future<Output = Result<Option<InstanceId>, RpcRefusal>> + Send>>;

/// See the module.
pub(crate) trait NameClaims: fmt::Debug + Send + Sync {
    /// The instance that has this name in the cluster. An error tells why nobody can say it.
    fn claimed(&self, name: &InstanceName) -> Claimed;
}

impl Instances {
    /// The instance that has this name in the cluster, if it is not here.
    pub(super) async fn holder_elsewhere(
        &self,
        name: &InstanceName,
    ) -> Result<Option<InstanceId>, RpcRefusal> {
        let Some(names) = &self.names else { return Ok(None) };
        let claimed = names.claimed(name).await?;
        Ok(claimed.filter(|id| self.get(*id).is_err()))
    }

    /// The refusal of a call that names an instance which is not here. After the log has failed nobody knows that.
    pub(super) async fn unknown_name(&self, name: &InstanceName) -> RpcRefusal {
        if let Some(failure) = self.log_failure() {
            return failure;
        }
        match self.holder_elsewhere(name).await {
            Ok(Some(id)) => self.absent(id),
            Ok(None) => super::unknown(name.as_str()),
            Err(refused) => refused,
        }
    }

    /// Refuses a Create whose name an instance of another server has: that server knows whether it is the same, or closed.
    pub(super) async fn check_name(&self, name: &InstanceName) -> Result<(), RpcRefusal> {
        match self.holder_elsewhere(name).await? {
            Some(id) => Err(self.absent(id)),
            None => Ok(()),
        }
    }

    /// Whether the instance with this id gives its name up to a new one: it is here, has the name and was closed, and that is
    /// committed.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "names are those of one server"))]
    pub(crate) async fn gives_up_name(&self, id: InstanceId, name: &InstanceName) -> bool {
        let Ok(instance) = self.get(id) else { return false };
        let is_closed =
            async || instance.state().committed().await.flatten().is_ok_and(|it| it == State::Closed);
        instance.config().name.as_ref() == Some(name) && is_closed().await
    }
}
