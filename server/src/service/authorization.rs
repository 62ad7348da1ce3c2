//! The rights of a caller at an instance: to act as a process of it, or to view it; and the refusal of a member's bad
//! message.

use std::sync::Arc;

use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::types::{AccessNumber, ProcessId};
use stickycas_proto::convert::WireError;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::Service;
use super::channels::Channel;
use crate::call_layer::Caller;
use crate::gate::Uncommitted;
use crate::instances::Instance;

impl Service {
    /// The refusal of what concerns an instance that is gone. After the log has failed nobody knows that it is.
    pub(super) fn expired(&self) -> RpcRefusal {
        let expired = || RpcRefusal::new(RefusalReason::InstanceUnknown, "the instance has expired");
        self.0.instances.log_failure().unwrap_or_else(expired)
    }

    /// The refusal of what comes on a channel whose instance is gone: it has expired, or another server has it.
    pub(super) fn gone(&self, channel: &Channel) -> Uncommitted<RpcRefusal> {
        match self.0.instances.owner_lost(channel.shard()) {
            Some(lost) => lost.into(),
            None => Uncommitted::new(self.expired(), channel.shard().ownership()),
        }
    }

    /// The instance with this id, at which the caller is about to act, and the process of it that the caller is.
    /// `id`: `None` if the text of the request is no id.
    pub(super) fn member(
        &self,
        caller: &Caller,
        id: Option<InstanceId>,
    ) -> Result<(Arc<Instance>, ProcessId), RpcRefusal> {
        let id = id.ok_or_else(|| {
            caller.account.file_offence(OffenceKind::Malformed, &WireError::InstanceId.to_string());
            RpcRefusal::from(&WireError::InstanceId)
        })?;
        let instance = self.0.instances.get(id)?;
        if !caller.rights.process {
            let why = "the scope of the token has no `process`";
            return Err(RpcRefusal::new(RefusalReason::NotAMember, why));
        }
        match instance.process_of(&caller.principal) {
            Some(process) => {
                caller.account.remember_instance(&instance, process);
                Ok((instance, process))
            }
            None => {
                tracing::warn!(instance = %id, principal = ?caller.principal.as_str(), "foreign identity");
                let why = format!("{:?} is no process of instance {id}", caller.principal.as_str());
                caller.account.file_offence(OffenceKind::ForeignIdentity, &why);
                Err(RpcRefusal::new(RefusalReason::NotAMember, why))
            }
        }
    }
}

/// As what a caller may look at an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewBasis {
    Creator,
    Member,
    Observer,
}

impl ViewBasis {
    /// Whether the look counts as touching the instance (F10): an observer only looks.
    pub(super) fn touches(self) -> bool {
        self != Self::Observer
    }
}

/// Checks that the caller may use Get, List and Watch: members, the creator and observers may (F13), as far as the scope of
/// a token does not exclude it.
pub(super) fn authorize_view(caller: &Caller, instance: &Instance) -> Result<ViewBasis, RpcRefusal> {
    let (config, Caller { principal, rights, .. }) = (instance.config(), caller);
    if caller.scope().coordinator && config.shared.creator == *principal {
        return Ok(ViewBasis::Creator);
    }
    if rights.process && instance.process_of(principal).is_some() {
        return Ok(ViewBasis::Member);
    }
    if rights.observer {
        return Ok(ViewBasis::Observer);
    }
    let why = format!(
        "{:?} is neither a process nor the creator of instance {}, nor an observer",
        principal.as_str(),
        config.id
    );
    Err(RpcRefusal::new(RefusalReason::NotAMember, why))
}

/// The offence of a member's message with content that is refused (B2), and the refusal.
pub(super) fn refused_content(
    process: ProcessId,
    number: Option<AccessNumber>,
    error: &WireError,
) -> (Offence, RpcRefusal) {
    let kind = match error {
        WireError::Value { error, .. } => OffenceKind::from(*error),
        _ => OffenceKind::Malformed,
    };
    let offence = Offence { process, kind, number, phase: None, detail: error.to_string() };
    (offence, RpcRefusal::from(error))
}
