//! Plays one process of one instance by unary calls: one for each access, one for its decision.

use std::sync::Arc;

use stickycas_client::raw::Connection;
use stickycas_model::player::Step;
use stickycas_model::process::{RawOp, SendTime};
use stickycas_model::types::AccessNumber;
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::v1;
use tokio::time::{Instant, sleep};

use super::super::measure::{Fault, OperationOutcome, Party};
use super::process_task::{ProcessTask, Then};
use super::shared::Shared;
use crate::principal::Principal;

/// Plays until the process has ended or the instance is over.
pub(super) async fn play(mut part: ProcessTask, connection: Connection, shared: Arc<Shared>, who: Principal) {
    let state = Arc::clone(&part.state);
    let ended = tokio::select! {
        ended = drive(&mut part, &connection, &shared, who) => ended,
        () = state.over() => return,
    };
    part.ended(ended, Instant::now(), &mut shared.meter.shard(who.near()));
    part.end(ended);
}

async fn drive(
    part: &mut ProcessTask,
    connection: &Connection,
    shared: &Shared,
    who: Principal,
) -> OperationOutcome {
    loop {
        match part.next(Instant::now()) {
            Step::Access { number, op, when } => {
                if when == SendTime::LastMoment {
                    sleep(part.last_moment()).await;
                }
                if let Then::Ends(ended) = access(part, number, &op, connection, shared, who).await {
                    return ended;
                }
            }
            Step::Decide(value) => {
                part.sends_decision(Instant::now());
                let instance_id = part.state.id.clone();
                let request = v1::DecideRequest { instance_id, value: value.to_bytes() };
                let answer = connection.list().decide(request).await;
                let now = Instant::now();
                match answer {
                    Ok(_) => part.taken(now, &mut shared.meter.shard(who.near())),
                    Err(status) => {
                        let error = connection.error(&status);
                        let ended = shared.ended_by(&error);
                        let Some(reason) = error.reason() else { return ended };
                        shared.meter.refused(who, reason);
                        let shard = &mut shared.meter.shard(who.near());
                        match part.refused(None, reason, &error.to_string(), now, shard) {
                            Then::Ends(ended) => return ended,
                            Then::GoesOn => {}
                        }
                    }
                }
            }
            // It is asked for the next step only when it has its answer, so it never waits.
            Step::Stay if part.party == Party::Byzantine => std::future::pending().await,
            Step::Wait | Step::Stay | Step::Leave => return OperationOutcome::Done,
        }
    }
}

async fn access(
    part: &mut ProcessTask,
    number: AccessNumber,
    op: &RawOp,
    connection: &Connection,
    shared: &Shared,
    who: Principal,
) -> Then {
    part.sends(op, Instant::now());
    let instance_id = part.state.id.clone();
    let access_number = number.get();
    let params = &part.state.drawn.params;
    let answer = match op {
        RawOp::Append(value) => {
            let value = value.to_bytes();
            let request = v1::AppendRequest { instance_id, access_number, value, no_wait: false };
            let answer = connection.list().append(request).await;
            answer.map(|response| AnswerData::from_append(response.get_ref()))
        }
        RawOp::Read(start) => {
            let request = v1::ReadRequest { instance_id, access_number, start: start.get(), no_wait: false };
            let answer = connection.list().read(request).await;
            answer.map(|response| AnswerData::from_read(response.get_ref(), params))
        }
    };
    let now = Instant::now();
    let mut shard = shared.meter.shard(who.near());
    match answer {
        Ok(Ok(received)) => {
            shared.meter.accesses(1);
            shared.meter.phase(received.phase.map_or(0, stickycas_model::types::Phase::get));
            part.answered(number, received, now, &mut shard);
            Then::GoesOn
        }
        Ok(Err(error)) => {
            let ended = OperationOutcome::Failed(Fault::Protocol);
            shared.meter.said(ended, &error.to_string());
            Then::Ends(ended)
        }
        Err(status) => {
            let error = connection.error(&status);
            let ended = shared.ended_by(&error);
            match error.reason() {
                Some(reason) => {
                    shared.meter.refused(who, reason);
                    part.refused(Some(number), reason, &error.to_string(), now, &mut shard)
                }
                None => Then::Ends(ended),
            }
        }
    }
}
