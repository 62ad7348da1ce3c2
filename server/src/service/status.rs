//! The status of an instance on the wire (SPEC F12), with a limited number of rows.

use std::time::Duration;

use stickycas_model::access::Op;
use stickycas_model::machine::{MemberStatus, Status, WaitingMember};
use stickycas_model::params::Patience;
use stickycas_model::types::{AccessNumber, Phase, ProcessId, WarpId};
use stickycas_proto::convert::duration_to_wire;
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::convert::state::state_to_wire;
use stickycas_proto::v1;

pub(super) fn status_to_wire(status: &Status) -> v1::Status {
    v1::Status {
        state: state_to_wire(status.state).into(),
        phase: status.phase.map_or(0, Phase::get),
        warp: status.warp.map_or(0, WarpId::get),
        phase_open: status.open,
        awaited: to_wire(&status.awaited, |awaited| v1::AwaitedProcess {
            process: awaited.process.get(),
            patience_left: patience_left(awaited.patience).map(duration_to_wire),
        }),
        awaited_left_out: status.left_out.awaited,
        waiting: to_wire(&status.waiting, waiting_to_wire),
        waiting_left_out: status.left_out.waiting,
        joined: status.joined,
        list_length: status.length,
        sealed: status.sealed,
        left: to_wire(&status.left, |(process, _)| process.get()),
        left_left_out: status.left_out.left,
        offences: to_wire(&status.offences, |offence| v1::OffenceSummary {
            process: offence.first.process.get(),
            kind: v1::OffenceKind::from(offence.first.kind).into(),
            count: offence.count,
            first_detail: offence.first.detail.clone(),
            first_number: offence.first.number.map_or(0, AccessNumber::get),
            first_phase: offence.first.phase.map_or(0, Phase::get),
        }),
        offences_left_out: status.left_out.offences,
    }
}

pub(super) fn own_to_wire(process: ProcessId, own: MemberStatus) -> v1::Own {
    let MemberStatus { session: _, next, waiting, append, decided } = own;
    (&MemberState { process, next, waiting, append, decided }).into()
}

fn waiting_to_wire(member: &WaitingMember) -> v1::WaitingProcess {
    let numbers = |appends: bool| {
        let wanted = member.accesses.iter().filter(move |(_, op)| matches!(op, Op::Append(_)) == appends);
        wanted.map(|(number, _)| number.get()).collect()
    };
    v1::WaitingProcess {
        process: member.process.get(),
        append_numbers: numbers(true),
        read_numbers: numbers(false),
    }
}

fn patience_left(patience: Patience) -> Option<Duration> {
    match patience {
        Patience::Finite(left) => Some(left),
        Patience::Endless => None,
    }
}

fn to_wire<T, U>(rows: &[T], to_wire: impl FnMut(&T) -> U) -> Vec<U> {
    rows.iter().map(to_wire).collect()
}
