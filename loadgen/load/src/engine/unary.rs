//! Plays one process of one instance by unary calls: one for each access, one for its decision.

use std::sync::Arc;

use stickycas_client::raw::Connection;
use stickycas_model::player::Step;
use stickycas_model::process::{RawOp, SendTime};
use stickycas_model::types::{AccessNumber, Phase};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::v1;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::Shared;
use super::process_task::ProcessTask;
use crate::measure::{OperationOutcome, Party, Principal};

/// A principal that calls.
pub(super) struct Caller {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) principal: Principal,
}

impl Caller {
    /// Plays until the process has ended or the instance is over.
    pub(super) async fn play(self, mut task: ProcessTask) {
        let state = Arc::clone(&task.state);
        let ended = tokio::select! {
            ended = self.drive(&mut task) => ended,
            () = state.over() => return,
        };
        let ended = ended.err().unwrap_or(OperationOutcome::Done);
        task.ended(ended, Instant::now(), &mut self.shared.meter.shard(self.principal.shard()));
        task.end(ended);
    }

    async fn drive(&self, task: &mut ProcessTask) -> Result<(), OperationOutcome> {
        loop {
            match task.next(Instant::now()) {
                Step::Access { number, op, when } => {
                    if when == SendTime::LastMoment {
                        sleep(task.last_moment()).await;
                    }
                    self.access(task, number, &op).await?;
                }
                Step::Decide(value) => {
                    task.sends_decision(Instant::now());
                    let instance_id = task.state.id.clone();
                    let request = v1::DecideRequest { instance_id, value: value.to_bytes() };
                    let answer = self.connection.list().decide(request).await;
                    let now = Instant::now();
                    match answer {
                        Ok(_) => task.taken(now, &mut self.shared.meter.shard(self.principal.shard())),
                        Err(status) => self.refused(task, None, &status, now)?,
                    }
                }
                // It is asked for the next step only when it has its answer, so it never waits.
                Step::Stay if task.party == Party::Byzantine => std::future::pending().await,
                Step::Wait | Step::Stay | Step::Leave => return Ok(()),
            }
        }
    }

    async fn access(
        &self,
        task: &mut ProcessTask,
        number: AccessNumber,
        op: &RawOp,
    ) -> Result<(), OperationOutcome> {
        task.sends(op, Instant::now());
        let (instance_id, access_number) = (task.state.id.clone(), number.get());
        let answer = match op {
            RawOp::Append(value) => {
                let value = value.to_bytes();
                let request = v1::AppendRequest { instance_id, access_number, value, no_wait: false };
                let answer = self.connection.list().append(request).await;
                answer.map(|response| AnswerData::from_append(response.get_ref()))
            }
            RawOp::Read(start) => {
                let start = start.get();
                let request = v1::ReadRequest { instance_id, access_number, start, no_wait: false };
                let answer = self.connection.list().read(request).await;
                answer.map(|response| AnswerData::from_read(response.get_ref(), &task.state.drawn.params))
            }
        };
        let now = Instant::now();
        let meter = &self.shared.meter;
        match answer {
            Ok(Ok(received)) => {
                meter.accesses(1);
                meter.phase(received.phase.map_or(0, Phase::get));
                task.answered(number, received, now, &mut meter.shard(self.principal.shard()));
                Ok(())
            }
            Ok(Err(error)) => {
                let ended = OperationOutcome::Protocol;
                meter.said(ended, &error.to_string());
                Err(ended)
            }
            Err(status) => self.refused(task, Some(number), &status, now),
        }
    }

    /// A call failed; `number` is that of the access, if it was one.
    fn refused(
        &self,
        task: &mut ProcessTask,
        number: Option<AccessNumber>,
        status: &Status,
        now: Instant,
    ) -> Result<(), OperationOutcome> {
        let error = self.connection.error(status);
        let ended = self.shared.ended_by(&error);
        let Some(reason) = error.reason() else { return Err(ended) };
        let meter = &self.shared.meter;
        meter.refused(self.principal, reason);
        task.refused(number, reason, &error.to_string(), now, &mut meter.shard(self.principal.shard()))
    }
}
