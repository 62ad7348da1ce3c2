//! Telling the judge of a run how a process has ended.
//!
//! The judge is no part of the service: whoever runs many processes started elsewhere has one, see
//! `judge_service.proto`. A [`Client`] of a judge is one whose connection goes to it.

use stickycas_model::judge::Outcome;
use stickycas_model::types::Value;
use stickycas_proto::convert::report::{ProcessReport, verdict_from_wire};
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use crate::client::{Client, Manner};
use crate::error::Error;
use crate::record::PlayRecord;

impl Client {
    /// Reports to the judge at the other end of this connection, and waits until the instance has been judged.
    /// Asked again until it is answered, since a judge that is restarted knows of no report.
    ///
    /// # Errors
    /// When the judge does not take the report, for example since it never saw the instance; when there was no
    /// judge for as long as is allowed.
    pub async fn report(&self, instance: InstanceId, said: &ProcessReport) -> Result<Outcome, Error> {
        let request = said.to_wire(instance);
        let call = || {
            let (mut judge, request) = (self.connection.judge(), request.clone());
            async move { judge.report(request).await }
        };
        Ok(verdict_from_wire(&self.call(Manner::Waits, call).await?)?)
    }
}

impl PlayRecord {
    /// What the process says to a judge; `proposal` is what it proposed.
    #[must_use]
    pub fn said(&self, proposal: Option<Value>) -> ProcessReport {
        let reason = self.error.as_ref().and_then(|error| error.reason.as_deref());
        ProcessReport {
            decision: self.decision.clone(),
            phase: self.phase,
            from: self.from.clone(),
            ended: self.ended.clone(),
            refusal: reason.and_then(RefusalReason::from_name),
            proposal,
            reconnections: self.reconnections,
        }
    }
}
