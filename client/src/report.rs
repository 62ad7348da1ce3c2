//! Telling the judge of a run how a process has ended.
//!
//! The judge is no part of the service: a program that runs many processes started elsewhere has one, see
//! `judge_service.proto`. A [`Client`] of a judge is one whose connection goes to it.

use stickycas_model::judge::Outcome;
use stickycas_proto::convert::report::{ProcessReport, verdict_from_wire};
use stickycas_proto::names::InstanceId;

use crate::client::{Client, Idempotency};
use crate::connection::Connection;
use crate::error::Error;

impl Client {
    /// Reports to the judge at the other end of this connection, and waits until the instance has been judged.
    /// Asked again until it is answered, since a judge that is restarted knows of no report.
    ///
    /// # Errors
    /// When the judge does not take the report, for example since it never saw the instance; when there was no
    /// judge for as long as is allowed.
    pub async fn report(&self, instance: InstanceId, said: &ProcessReport) -> Result<Outcome, Error> {
        let request = said.to_wire(instance);
        let call = |connection: Connection| {
            let request = request.clone();
            async move { connection.judge().report(request).await }
        };
        Ok(verdict_from_wire(&self.call(Idempotency::Waits, call).await?)?)
    }
}
