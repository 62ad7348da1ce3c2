//! The state of an instance by the status that the server tells.

use stickycas_client::info::InstanceStatus;
use stickycas_model::params::Patience;
use stickycas_model::scheduler::Schedule;
use stickycas_model::types::{Phase, Time, WarpId};
use stickycas_page::frame::{AWAITED, Awaited, Now, state_name};

use crate::instances::InstanceFacts;

/// The same for viewers.
pub(crate) fn now(facts: &InstanceFacts, status: &InstanceStatus) -> Now {
    let awaited = status.awaited.shown.iter().take(AWAITED).map(|awaited| Awaited {
        process: awaited.process,
        left_nanos: match awaited.patience_left {
            Patience::Finite(left) => Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)),
            Patience::Endless => None,
        },
    });
    Now {
        at: facts.now(Time::ZERO),
        state: state_name(status.state),
        phase: status.phase.map(Phase::get),
        warp: status.warp.map(WarpId::get),
        round: status.phase.map(|phase| Schedule::new(&facts.params).round_of(phase).get()),
        open: status.open,
        awaited_count: status.awaited.total(),
        awaited: awaited.collect(),
        joined: status.joined,
    }
}
