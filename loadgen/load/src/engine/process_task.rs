//! One process of one instance at play: the model's [`Player`], its observations, and the time of each
//! answer. The stream or the call that carries its accesses to the server drives this.
//!
//! The load generator has just created the instance and is alone in playing its processes. So a player need
//! not wait to be welcomed: it knows what it would be told, sends its first access along with its hello, and
//! has what it is told checked against that.

use std::sync::Arc;
use std::time::Duration;

use stickycas_client::LAST_MOMENT;
use stickycas_model::access::{Answer, AppendAnswer};
use stickycas_model::machine::Welcome;
use stickycas_model::params::Patience;
use stickycas_model::player::{Player, Step};
use stickycas_model::process::RawOp;
use stickycas_model::types::{AccessNumber, Phase, ProcessId};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::v1::{self, RefusalReason};
use tokio::time::Instant;

use super::super::measure::{Histograms, Label, Measure, OperationOutcome, Party, record};
use super::super::observations::{AnsweredAccess, ObservedRefusal, ProcessObservation};
use super::instance_state::{InstanceState, ProcessEnding};

/// See the module.
pub(super) struct ProcessTask {
    pub(super) state: Arc<InstanceState>,
    pub(super) me: ProcessId,
    pub(super) party: Party,
    player: Player,
    accesses: Vec<AnsweredAccess>,
    told: Vec<Instant>,
    /// The request that is not answered yet, and when it was sent.
    under_way: Option<(Measure, Instant)>,
    decided: Option<Instant>,
    /// The first refusal that it met.
    refused: Option<ObservedRefusal>,
    /// The part of its patience for which accesses may still be held back.
    patience: Duration,
}

impl ProcessTask {
    /// A process that begins; `None` if it never joins.
    pub(super) fn begin(state: &Arc<InstanceState>, me: ProcessId) -> Option<Self> {
        let drawn = &state.drawn;
        let behaviour =
            drawn.truth.assignment(me).filter(|assignment| assignment.joins())?.behaviour(me, drawn.seed)?;
        let mut player = Player::new(me, Arc::clone(&drawn.params), behaviour);
        player.welcome(&Welcome::first());
        let patience = match drawn.params.spec().patience {
            Patience::Finite(patience) => patience,
            Patience::Endless => Duration::ZERO,
        };
        Some(Self {
            state: Arc::clone(state),
            me,
            party: state.party(me),
            player,
            accesses: Vec::with_capacity(2),
            told: Vec::new(),
            under_way: None,
            decided: None,
            refused: None,
            patience,
        })
    }

    /// Its next step. The stream or the call that carries its accesses does it now, or at the [last
    /// moment](Self::last_moment).
    pub(super) fn next(&mut self, now: Instant) -> Step {
        let step = self.player.next_step();
        if let Step::Decide(_) = &step {
            self.decided = Some(now);
        }
        step
    }

    /// How long an access is held back that is to be sent at the last moment; such processes do not know when
    /// their phase opens, and so spend their patience from now on.
    pub(super) fn last_moment(&mut self) -> Duration {
        let hold = self.patience.saturating_sub(LAST_MOMENT);
        self.patience = self.patience.saturating_sub(hold);
        hold
    }

    /// This access is sent now.
    pub(super) fn sends(&mut self, op: &RawOp, now: Instant) {
        let measure = match op {
            RawOp::Append(_) => Measure::Append,
            RawOp::Read(_) => Measure::Read,
        };
        self.under_way = Some((measure, now));
    }

    /// Its decision is sent now.
    pub(super) fn sends_decision(&mut self, now: Instant) {
        self.under_way = Some((Measure::Decide, now));
    }

    /// Whether the welcome to its session shows a process that has done nothing yet.
    pub(super) fn is_as_expected(&self, welcome: &v1::Welcome) -> bool {
        let fresh = |own: &v1::Own| {
            own.process == self.me.get()
                && own.next_access_number == 1
                && own.waiting.is_empty()
                && own.append.is_none()
                && own.decided.is_none()
        };
        welcome.own.as_ref().is_some_and(fresh)
    }

    /// An access was answered.
    pub(super) fn answered(
        &mut self,
        number: AccessNumber,
        received: AnswerData,
        now: Instant,
        into: &mut Histograms,
    ) {
        let AnswerData { phase, answer, entries } = received;
        let ended = match answer {
            Answer::Append(AppendAnswer::Success(_)) => OperationOutcome::Won,
            Answer::Append(AppendAnswer::Failed) => OperationOutcome::Lost,
            Answer::Append(AppendAnswer::LimitReached) => OperationOutcome::Limit,
            Answer::Read(_) => OperationOutcome::Done,
        };
        self.ended(ended, now, into);
        if self.state.drawn.watched {
            self.told.push(now);
        }
        self.state.progress(now);
        self.player.answered(number, phase, answer, entries.iter().cloned());
        if self.party == Party::Correct {
            self.accesses.extend(seen(phase, answer, entries));
        }
    }

    /// The server has taken its decision.
    pub(super) fn taken(&mut self, now: Instant, into: &mut Histograms) {
        self.ended(OperationOutcome::Done, now, into);
        self.state.progress(now);
        self.player.decided();
    }

    /// The request under way was refused. `number` is that of the access; `None`: the request was no access.
    ///
    /// # Errors
    /// How the process has ended, if it does not think again.
    pub(super) fn refused(
        &mut self,
        number: Option<AccessNumber>,
        reason: RefusalReason,
        why: &str,
        now: Instant,
        into: &mut Histograms,
    ) -> Result<(), OperationOutcome> {
        self.ended(OperationOutcome::Refused(reason), now, into);
        self.state.progress(now);
        self.refused.get_or_insert_with(|| ObservedRefusal { reason, why: why.to_owned() });
        match (number, reason) {
            // The border did not take its content: the process thinks again.
            (
                Some(number),
                RefusalReason::ValueEmpty | RefusalReason::ValueTooLarge | RefusalReason::Malformed,
            ) => {
                self.player.rejected(number, why);
                Ok(())
            }
            // Nothing is tried again: under load, a refusal is a result.
            _ => Err(OperationOutcome::Refused(reason)),
        }
    }

    /// The request under way has ended so.
    pub(super) fn ended(&mut self, ended: OperationOutcome, now: Instant, into: &mut Histograms) {
        if let Some((measure, sent)) = self.under_way.take()
            && self.state.measured
        {
            record(into, Label { measure, party: self.party, ended }, now.duration_since(sent));
        }
    }

    /// The process has ended: its end is recorded in the state of the instance.
    pub(super) fn end(mut self, ended: OperationOutcome) {
        if !ended.is_answer() {
            self.player.fail(format!("ended by the load generator: {ended}"));
        }
        let report = self.player.report();
        let left = report.ended == stickycas_model::process::ProcessEnd::Decided;
        // By itself it ends with a decision, because there is nothing to decide, or because its strategy
        // ends.
        let failed = self.party == Party::Correct
            && matches!(report.ended, stickycas_model::process::ProcessEnd::Failed(_));
        let ended = if ended.is_answer() && failed { OperationOutcome::GaveUp } else { ended };
        let decision = self.decided.and(report.decision.clone());
        self.state.end(ProcessEnding {
            seen: Some(ProcessObservation {
                process: self.me,
                accesses: self.accesses,
                decision,
                refused: self.refused,
            }),
            report,
            ended,
            decided: self.decided,
            left,
            told: self.told,
        });
    }
}

fn seen(
    phase: Option<Phase>,
    answer: Answer,
    entries: Vec<stickycas_model::types::Value>,
) -> Option<AnsweredAccess> {
    match answer {
        Answer::Append(answer) => phase.map(|phase| AnsweredAccess::Append { phase, answer }),
        Answer::Read(answer) => Some(AnsweredAccess::Read { phase, answer, entries }),
    }
}
