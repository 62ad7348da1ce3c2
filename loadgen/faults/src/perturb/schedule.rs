//! The steps that are due: the events of an instance go in, steps come out. Pure; the time of day is an
//! input.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stickycas_model::history::Event;
use stickycas_model::types::Phase;

use crate::plan::{Moment, Step, When};

/// The steps of a plan that are due in the course of the instance, one after the other.
#[derive(Debug)]
pub(crate) struct Schedule<'a> {
    steps: &'a [Step],
    /// When the steps so far were done.
    done: Vec<Instant>,
    seen: ObservedMoments,
    /// When the events were first seen by which a step must be done; one place for each step.
    deadlines: Vec<Option<Instant>>,
    /// When the last event was seen.
    last: Option<Instant>,
    quiet: Duration,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due<'a> {
    /// This step, now.
    Now(&'a Step),
    /// The next step at this moment, whatever happens until then.
    At(Instant),
    /// Nothing before another event comes.
    WhenObserved(Moment),
    /// Nothing any more.
    Nothing,
}

/// A step that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLate<'a> {
    pub(crate) step: &'a Step,
    /// The moment that came before it was done.
    pub(crate) by: Moment,
    /// How long before.
    pub(crate) before: Duration,
}

impl<'a> Schedule<'a> {
    /// Of these steps, all of which are later than before the instance.
    pub(crate) fn new(steps: &'a [Step]) -> Self {
        Self {
            steps,
            done: Vec::new(),
            seen: ObservedMoments::default(),
            deadlines: vec![None; steps.len()],
            last: None,
            quiet: Duration::ZERO,
        }
    }

    /// Takes in an event that is seen now.
    pub(crate) fn observe(&mut self, now: Instant, event: &Event) {
        self.seen.observe(event);
        let last = self.last.replace(now).unwrap_or(now);
        self.quiet = self.quiet.max(now.saturating_duration_since(last));
        for (step, deadline) in self.steps.iter().zip(&mut self.deadlines) {
            if deadline.is_none() && step.by.is_some_and(|by| self.seen.has(by)) {
                *deadline = Some(now);
            }
        }
    }

    /// The next action; `begun` is when the instance was found, from which a first step's `after` counts.
    pub(crate) fn due(&self, begun: Instant, now: Instant) -> Due<'a> {
        let Some(step) = self.steps.get(self.done.len()) else { return Due::Nothing };
        match step.when {
            // The kill test has moments of its own, which are refused here.
            When::Before | When::Served(_) | When::UnderWay | When::Ended => Due::Now(step),
            When::Observed(moment) if self.seen.has(moment) => Due::Now(step),
            When::Observed(moment) => Due::WhenObserved(moment),
            When::After(time) => {
                let at = self.done.last().copied().unwrap_or(begun) + time;
                if at <= now { Due::Now(step) } else { Due::At(at) }
            }
        }
    }

    /// The step that was due has been done.
    pub(crate) fn done(&mut self, now: Instant) {
        self.done.push(now);
    }

    /// The last phase that is known to have come.
    pub(crate) fn reached(&self) -> Option<Phase> {
        self.seen.reached
    }

    /// The longest time between an event and the next one.
    pub(crate) fn quiet(&self) -> Duration {
        self.quiet
    }

    /// The steps that were not done.
    pub(crate) fn left(&self) -> &'a [Step] {
        &self.steps[self.done.len()..]
    }

    /// The steps that were done after the moment that they had to precede.
    pub(crate) fn too_late(&self) -> impl Iterator<Item = TooLate<'a>> {
        let steps = self.steps.iter().zip(&self.deadlines).zip(&self.done);
        steps.filter_map(|((step, deadline), done)| {
            let before = done.checked_duration_since((*deadline)?)?;
            Some(TooLate { step, by: step.by?, before })
        })
    }
}

/// The moments that have come.
#[derive(Debug, Default)]
struct ObservedMoments {
    /// The last phase that is known to have come.
    reached: Option<Phase>,
    /// All others.
    moments: BTreeSet<Moment>,
}

impl ObservedMoments {
    fn observe(&mut self, event: &Event) {
        self.reached = event.reached().max(self.reached);
        let moment = match *event {
            Event::GatheringEnded { .. } => Moment::Gathered,
            Event::Joined { process } => Moment::Joined(process),
            Event::Accepted { process, number, .. } => Moment::Accepted(process, number),
            Event::Answered { process, number, .. } => Moment::Answered(process, number),
            Event::Decided { process, .. } => Moment::Decided(process),
            _ => return,
        };
        self.moments.insert(moment);
    }

    fn has(&self, moment: Moment) -> bool {
        match moment {
            Moment::Phase(phase) => self.reached.is_some_and(|reached| reached >= phase),
            _ => self.moments.contains(&moment),
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::access::Op;
    use stickycas_model::types::{AccessNumber, Position, ProcessId, WarpId};

    use super::*;
    use crate::plan::Plan;

    const PLAN: &str = r#"
        name = "three"
        expect = "valid"
        [[steps]]
        when = { accepted = 7, access = 2 }
        do = "disconnect"
        services = ["process-7"]
        by = { phase = 5 }
        [[steps]]
        when = { phase = 9 }
        do = "reconnect"
        services = ["process-7"]
        [[steps]]
        when = { after = "3s" }
        do = "restart"
        services = ["server"]
    "#;

    fn plan() -> Plan {
        Plan::parse("three.toml", PLAN).unwrap()
    }

    fn accepted(process: u32, number: u64) -> Event {
        Event::Accepted {
            process: ProcessId::new(process).unwrap(),
            number: AccessNumber::new(number).unwrap(),
            session: None,
            op: Op::Read { start: Position::new(0) },
        }
    }

    fn stepped(phase: u64) -> Event {
        Event::Stepped { phase: Phase::new(phase).unwrap(), warp: WarpId::FIRST, length: 0 }
    }

    /// A schedule of the plan's steps, driven by seconds since its beginning.
    struct Played<'a> {
        schedule: Schedule<'a>,
        begun: Instant,
    }

    impl<'a> Played<'a> {
        fn new(plan: &'a Plan) -> Self {
            Self { schedule: Schedule::new(&plan.steps), begun: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begun + Duration::from_secs(seconds)
        }

        fn see(&mut self, seconds: u64, event: &Event) {
            self.schedule.observe(self.at(seconds), event);
        }

        fn done(&mut self, seconds: u64) {
            self.schedule.done(self.at(seconds));
        }

        fn due(&self, seconds: u64) -> Due<'a> {
            self.schedule.due(self.begun, self.at(seconds))
        }
    }

    #[test]
    fn steps_are_due_in_order_each_at_its_moment() {
        let plan = plan();
        let mut played = Played::new(&plan);
        assert!(matches!(played.due(0), Due::WhenObserved(Moment::Accepted(..))));
        for other in [accepted(7, 1), accepted(6, 2), stepped(2)] {
            played.see(1, &other);
            assert!(matches!(played.due(1), Due::WhenObserved(Moment::Accepted(..))), "{other:?}");
        }
        played.see(2, &accepted(7, 2));
        assert_eq!(played.due(2), Due::Now(&plan.steps[0]));
        played.done(3);
        assert!(matches!(played.due(3), Due::WhenObserved(Moment::Phase(_))));
        played.see(4, &stepped(10));
        assert_eq!(played.due(4), Due::Now(&plan.steps[1]));
        played.done(5);
        assert_eq!(played.due(7), Due::At(played.at(8)));
        assert_eq!(played.due(8), Due::Now(&plan.steps[2]));
        assert_eq!(played.schedule.left().len(), 1);
        played.done(9);
        assert_eq!(played.due(9), Due::Nothing);
        assert_eq!(played.schedule.too_late().count(), 0);
    }

    #[test]
    fn what_was_seen_before_its_turn_counts() {
        let plan = plan();
        let mut played = Played::new(&plan);
        played.see(1, &stepped(9));
        assert!(matches!(played.due(1), Due::WhenObserved(Moment::Accepted(..))));
        played.see(2, &accepted(7, 2));
        played.done(3);
        assert_eq!(played.due(3), Due::Now(&plan.steps[1]));
    }

    #[test]
    fn a_step_is_late_if_its_deadline_was_observed_first() {
        let plan = plan();
        for (phase, seen, late) in [(4, 4, false), (5, 6, false), (5, 4, true), (6, 4, true)] {
            let mut played = Played::new(&plan);
            played.see(1, &accepted(7, 2));
            played.see(seen, &stepped(phase));
            played.done(5);
            let too_late: Vec<Duration> = played.schedule.too_late().map(|late| late.before).collect();
            assert_eq!(
                too_late,
                if late { vec![Duration::from_secs(1)] } else { Vec::new() },
                "{phase} {seen}"
            );
        }
    }
}
