//! Takes in one event after another and hands each to its rules.

use super::fault::{BrokenRule, CheckResult, RuleFault, ensure};
use super::state::Invariants;
use crate::history::{Event, Recorded};
use crate::scheduler::PhaseOrder;
use crate::types::Time;

impl<S: PhaseOrder> Invariants<S> {
    /// Takes in the next event of the history.
    ///
    /// # Errors
    /// The rule that it breaks, or that earlier events left unfulfilled.
    pub fn observe(&mut self, recorded: &Recorded) -> Result<(), BrokenRule> {
        let index = self.observed;
        self.observed += 1;
        self.take_in(recorded.at, &recorded.event).map_err(|RuleFault { rule, what }| BrokenRule {
            rule,
            what,
            index,
        })
    }

    /// Takes in that the history ends here, without a gap.
    ///
    /// # Errors
    /// The rule that is left unfulfilled.
    pub fn finish(&mut self) -> Result<(), BrokenRule> {
        let index = self.observed;
        self.end().map_err(|RuleFault { rule, what }| BrokenRule { rule, what, index })
    }

    fn take_in(&mut self, at: Time, event: &Event) -> CheckResult {
        use Event::{Accepted, Decided, PatienceSpent, Rejoined, Session};
        self.settle_before(event)?;
        if !matches!(event, PatienceSpent { .. }) {
            self.go_on_after_restart();
        }
        self.take_in_kind(at, event)?;
        if let &Session { process, .. } | &Accepted { process, .. } | &Decided { process, .. } = event {
            self.heard_of(at, process);
        }
        if let &PatienceSpent { process } | &Rejoined { process } = event {
            self.heard_of(at, process);
        }
        Ok(())
    }

    fn take_in_kind(&mut self, at: Time, event: &Event) -> CheckResult {
        use Event::{Accepted, Added, Answered, Closed, Decided, Finished, GatheringEnded, Joined};
        use Event::{
            Offence, PatienceSpent, Refused, Rejoined, Restarted, Sealed, Session, Stepped, Withdrawn,
        };
        match event {
            &Joined { process } => self.joined(at, process),
            &Session { process, session, .. } => self.session(process, session),
            &Accepted { process, number, session, ref op } => self.accepted(at, process, number, session, op),
            &GatheringEnded { joined } => self.gathering_ended(at, joined),
            &PatienceSpent { process } => self.patience_spent(at, process),
            &Stepped { phase, warp, length } => self.stepped(at, phase, warp, length),
            &Added { position, process, phase, ref value } => self.added(position, process, phase, value),
            &Answered { process, number, phase, answer } => self.answered(process, number, phase, answer),
            &Sealed { phase, length } => self.sealed(phase, length),
            &Decided { process, .. } => self.decided(process),
            &Withdrawn { process, number } => self.withdrawn(process, number),
            &Refused { process, .. } => self.known(process),
            Offence(offence) => self.known(offence.process),
            Finished => self.finished(),
            Closed => self.closed(),
            &Restarted { rejoin } => self.restarted(at, rejoin),
            &Rejoined { process } => self.rejoined(process),
        }
    }

    /// The consequences of earlier events are complete, unless this event is still one of them.
    fn settle_before(&mut self, event: &Event) -> CheckResult {
        use Event::{Added, Answered, Closed, Joined, Offence, Refused, Session, Withdrawn};
        if matches!(event, Offence(_) | Refused { .. }) {
            return Ok(());
        }
        if !matches!(event, Added { .. } | Answered { .. }) {
            self.end_step()?;
        }
        if !matches!(event, Withdrawn { .. }) {
            self.end_leaving()?;
            if *event != Closed {
                self.end_closing()?;
            }
            // Only now: the accesses of a process that leaves are withdrawn before any phase passes.
            if self.gathering.ended.is_some() && !self.closed && !self.finished {
                self.oracle.advance();
            }
        }
        let nothing_changes = matches!(event, Withdrawn { .. } | Session { .. } | Joined { .. });
        ensure(!self.closed || nothing_changes, "F10", || format!("after the close: {event:?}"))
    }

    fn end(&mut self) -> CheckResult {
        self.end_step()?;
        self.end_leaving()?;
        self.end_closing()?;
        let over = self.closed || self.finished;
        ensure(!over || self.oracle.ready() == 0, "F10", || {
            "the instance is over, and accesses were neither answered nor withdrawn".to_owned()
        })?;
        let all_left = self.left == self.params.processes();
        ensure(!all_left || self.finished, "F10", || {
            "every process left, and the instance did not finish".to_owned()
        })
    }
}
