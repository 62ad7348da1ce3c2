//! A process that makes unary calls: the same player as on Attach, with one call for each access.

use std::sync::Arc;
use std::time::Duration;

use stickycas_client::raw::Told;
use stickycas_client::{Client, Error, LAST_MOMENT, MemberState, RefusalReason, WaitMode};
use stickycas_model::access::{Answer, ReadAnswer};
use stickycas_model::ground_truth::{Assignment, Role};
use stickycas_model::machine::Welcome;
use stickycas_model::params::{Params, Patience};
use stickycas_model::player::{Player, Step};
use stickycas_model::process::{ProcessEnd, RawOp, Report, SendTime};
use stickycas_model::types::{AccessNumber, Phase, ProcessId, SessionId, Value};
use stickycas_proto::names::InstanceId;

use crate::facts::{Fact, Facts};

const EMPTY: &str = "the client's calls append no empty value: its process has to be on Attach";

/// A process, and where it plays.
pub(crate) struct UnaryProcess<'a> {
    pub(crate) client: &'a Client,
    pub(crate) instance: InstanceId,
    pub(crate) process: ProcessId,
    pub(crate) facts: &'a Facts,
}

impl UnaryProcess<'_> {
    /// Plays it to its end; a Byzantine one that falls silent stays silent for ever.
    pub(crate) async fn play(&self, assignment: &Assignment, run_seed: u64) -> Report {
        let view = match self.client.get(self.instance).await {
            Ok(view) => view,
            Err(error) => return self.failed(&error),
        };
        let params = Arc::new(view.instance.parameters);
        let Some(behaviour) = assignment.behaviour(self.process, run_seed) else {
            std::future::pending().await
        };
        let mut player = Player::new(self.process, params.clone(), behaviour);
        if let Some(own) = view.own {
            player.welcome(&welcome(own.clone()));
            self.told(Told::Welcome(own));
        }
        let mut patience = match params.spec().patience {
            Patience::Finite(patience) => patience,
            Patience::Endless => Duration::ZERO,
        };
        loop {
            match player.next_step() {
                Step::Access { number, op, when } => {
                    if when == SendTime::LastMoment {
                        let hold = patience.saturating_sub(LAST_MOMENT);
                        patience -= hold;
                        tokio::time::sleep(hold).await;
                    }
                    if let Err(error) = self.access(&mut player, &params, number, op).await {
                        self.fail(&mut player, &error);
                    }
                }
                Step::Decide(value) => match self.client.decide(self.instance, &value).await {
                    Ok(()) => {
                        self.told(Told::Decided(value));
                        player.decided();
                    }
                    Err(error) => self.fail(&mut player, &error),
                },
                Step::Leave => return player.report(),
                // A correct process that has nothing to decide has nothing to wait for either.
                Step::Stay if assignment.role == Role::Correct => return player.report(),
                Step::Wait | Step::Stay => std::future::pending().await,
            }
        }
    }

    async fn access(
        &self,
        player: &mut Player,
        params: &Params,
        number: AccessNumber,
        op: RawOp,
    ) -> Result<(), Error> {
        match self.perform(params, number, &op).await {
            Ok((phase, answer, entries)) => {
                player.answered(number, phase, answer, entries.clone());
                self.told(Told::Answered { number, op: Some(op), phase, answer, entries });
                Ok(())
            }
            Err(error) => match error.reason() {
                Some(RefusalReason::ValueEmpty | RefusalReason::ValueTooLarge | RefusalReason::Malformed) => {
                    player.rejected(number, &error.to_string());
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    /// Makes the call of an access until it is answered.
    pub(crate) async fn perform(
        &self,
        params: &Params,
        number: AccessNumber,
        op: &RawOp,
    ) -> Result<(Option<Phase>, Answer, Vec<Value>), Error> {
        let wait = WaitMode::UntilPhase;
        match op {
            RawOp::Append(raw) => {
                let value = Value::new(raw.as_bytes()).ok_or_else(|| Error::Protocol(EMPTY.to_owned()))?;
                let appended = self.client.append(self.instance, number, &value, wait).await?;
                Ok((Some(appended.phase), Answer::Append(appended.answer), Vec::new()))
            }
            RawOp::Read(start) => {
                let read = self.client.read(self.instance, params, number, *start, wait).await?;
                let stickycas_client::Read { phase, start, values, length, sealed } = read;
                let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
                Ok((phase, Answer::Read(ReadAnswer { start, count, length, sealed }), values))
            }
        }
    }

    fn told(&self, told: Told) {
        self.facts.note(Fact::Told(self.process, told));
    }

    fn fail(&self, player: &mut Player, error: &Error) {
        self.facts.note_error(error);
        player.fail(error.to_string());
    }

    fn failed(&self, error: &Error) -> Report {
        self.facts.note_error(error);
        no_report(self.process, error.to_string())
    }
}

/// The report of a process that cannot say anything itself.
pub(crate) fn no_report(process: ProcessId, why: String) -> Report {
    Report {
        process,
        decision: None,
        phase: None,
        from: Vec::new().into(),
        ended: ProcessEnd::Failed(why),
        unanswered: None,
    }
}

fn welcome(own: MemberState) -> Welcome {
    let MemberState { process: _, next, waiting, append, decided } = own;
    Welcome { session: SessionId::FIRST, next, waiting, append, decided }
}
