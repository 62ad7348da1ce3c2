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
use super::Shared;
use super::process_task::{AfterRefusal, ProcessTask};
use crate::measure::Principal;

/// Plays until the process has ended or the instance is over.
pub(super) async fn play(
    mut task: ProcessTask,
    connection: Connection,
    shared: Arc<Shared>,
    principal: Principal,
) {
    let state = Arc::clone(&task.state);
    let ended = tokio::select! {
        ended = drive(&mut task, &connection, &shared, principal) => ended,
        () = state.over() => return,
    };
    task.ended(ended, Instant::now(), &mut shared.meter.shard(principal.shard()));
    task.end(ended);
}

async fn drive(
    task: &mut ProcessTask,
    connection: &Connection,
    shared: &Shared,
    principal: Principal,
) -> OperationOutcome {
    loop {
        match task.next(Instant::now()) {
            Step::Access { number, op, when } => {
                if when == SendTime::LastMoment {
                    sleep(task.last_moment()).await;
                }
                if let AfterRefusal::EarlyEnd(ended) =
                    access(task, number, &op, connection, shared, principal).await
                {
                    return ended;
                }
            }
            Step::Decide(value) => {
                task.sends_decision(Instant::now());
                let instance_id = task.state.id.clone();
                let request = v1::DecideRequest { instance_id, value: value.to_bytes() };
                let answer = connection.list().decide(request).await;
                let now = Instant::now();
                match answer {
                    Ok(_) => task.taken(now, &mut shared.meter.shard(principal.shard())),
                    Err(status) => {
                        let error = connection.error(&status);
                        let ended = shared.ended_by(&error);
                        let Some(reason) = error.reason() else { return ended };
                        shared.meter.refused(principal, reason);
                        let shard = &mut shared.meter.shard(principal.shard());
                        match task.refused(None, reason, &error.to_string(), now, shard) {
                            AfterRefusal::EarlyEnd(ended) => return ended,
                            AfterRefusal::GoesOn => {}
                        }
                    }
                }
            }
            // It is asked for the next step only when it has its answer, so it never waits.
            Step::Stay if task.party == Party::Byzantine => std::future::pending().await,
            Step::Wait | Step::Stay | Step::Leave => return OperationOutcome::Done,
        }
    }
}

async fn access(
    task: &mut ProcessTask,
    number: AccessNumber,
    op: &RawOp,
    connection: &Connection,
    shared: &Shared,
    principal: Principal,
) -> AfterRefusal {
    task.sends(op, Instant::now());
    let instance_id = task.state.id.clone();
    let access_number = number.get();
    let params = &task.state.drawn.params;
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
    let mut shard = shared.meter.shard(principal.shard());
    match answer {
        Ok(Ok(received)) => {
            shared.meter.accesses(1);
            shared.meter.phase(received.phase.map_or(0, stickycas_model::types::Phase::get));
            task.answered(number, received, now, &mut shard);
            AfterRefusal::GoesOn
        }
        Ok(Err(error)) => {
            let ended = OperationOutcome::Failed(Fault::Protocol);
            shared.meter.said(ended, &error.to_string());
            AfterRefusal::EarlyEnd(ended)
        }
        Err(status) => {
            let error = connection.error(&status);
            let ended = shared.ended_by(&error);
            match error.reason() {
                Some(reason) => {
                    shared.meter.refused(principal, reason);
                    task.refused(Some(number), reason, &error.to_string(), now, &mut shard)
                }
                None => AfterRefusal::EarlyEnd(ended),
            }
        }
    }
}
