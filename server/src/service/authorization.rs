//! The right of a caller to view an instance, and the refusal of a member's bad message.

use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::types::{AccessNumber, ProcessId};
use stickycas_proto::convert::WireError;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use crate::call_layer::Caller;
use crate::instances::Instance;

/// The capacity in which a caller may look at an instance.
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

/// Checks that the caller may use Get, List and Watch: members, the creator and observers may (F13), as far
/// as the scope of a token does not exclude it.
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
