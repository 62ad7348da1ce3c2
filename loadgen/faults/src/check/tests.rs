//! Records made by hand that must be rejected, each beside the one that must not.

use std::collections::BTreeSet;
use std::time::Duration;

use stickycas_model::ground_truth::{Assignment, GroundTruth};
use stickycas_model::history::Event;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::sim::{self, SimPlan};
use stickycas_model::types::{Phase, Position, Time};

use super::*;

/// An instance of three correct processes that came to its end in the simulator, and what its clients were
/// told of it.
struct Story {
    plan: InstancePlan,
    facts: Vec<Fact>,
    reports: Vec<Report>,
    history: Vec<Recorded>,
    restarts: u32,
    elapsed: Duration,
    lateness: Duration,
}

fn story() -> Story {
    let params = Params::try_new(ParamsSpec::new(3, 1, 2)).unwrap();
    let proposal = |text: &str| Value::new(text.as_bytes()).unwrap();
    let assignment = |text| Assignment { role: Role::Correct, proposal: proposal(text) };
    let truth = GroundTruth::new(vec![assignment("a"), assignment("b"), assignment("b")]);
    let plan = InstancePlan::new(0, params, truth, 1);
    let outcome =
        sim::run(&SimPlan { params: plan.params.clone(), truth: plan.truth.clone(), seed: plan.seed });
    let mut facts = vec![Fact::Created];
    let list: Vec<Value> = outcome.history.iter().filter_map(added).collect();
    for Recorded { event, .. } in &outcome.history {
        match event {
            Event::Answered { process, number, phase, answer } => {
                let (op, entries) = match answer {
                    Answer::Append(_) => (
                        RawOp::Append((&plan.truth.assignment(*process).unwrap().proposal).into()),
                        Vec::new(),
                    ),
                    Answer::Read(ReadAnswer { start, count, .. }) => {
                        let read = list[start.index()..start.index() + *count as usize].to_vec();
                        (RawOp::Read(*start), read)
                    }
                };
                let (number, phase, op) = (*number, Some(*phase), Some(op));
                let told = Told::Answered { number, op, phase, answer: *answer, entries };
                facts.push(Fact::Told(*process, told));
            }
            Event::Decided { process, value } => {
                facts.push(Fact::Told(*process, Told::Decided(value.clone())));
            }
            _ => {}
        }
    }
    facts.push(Fact::Watched(outcome.history.clone()));
    let (reports, history) = (outcome.reports, outcome.history);
    Story {
        plan,
        facts,
        reports,
        history,
        restarts: 0,
        elapsed: Duration::from_secs(60),
        lateness: Duration::ZERO,
    }
}

fn added(recorded: &Recorded) -> Option<Value> {
    match &recorded.event {
        Event::Added { value, .. } => Some(value.clone()),
        _ => None,
    }
}

impl Story {
    fn checked(&self) -> Checked {
        let Self { plan, facts, reports, history, restarts, elapsed, lateness } = self;
        let (restarts, elapsed, lateness) = (*restarts, *elapsed, *lateness);
        let expected = Expected::Decisions { plan, reports, lateness };
        check(&Evidence { params: &plan.params, facts, history, restarts, elapsed, expected })
    }

    /// What is found, each kind once.
    fn found(&self) -> BTreeSet<ViolationKind> {
        self.checked().violations.into_iter().map(|(kind, _)| kind).collect()
    }

    /// What is found contains this, in these words.
    #[track_caller]
    fn must_be(&self, kind: ViolationKind, words: &str) {
        let violations = self.checked().violations;
        let found = violations.iter().any(|(found, what)| *found == kind && what.contains(words));
        assert!(found, "{kind} with {words:?} is not among {violations:#?}");
    }

    fn answer_of(&mut self, process: u32, number: u64) -> &mut Told {
        let matches = |fact: &&mut Fact| match fact {
            Fact::Told(of, Told::Answered { number: found, .. }) => {
                of.get() == process && found.get() == number
            }
            _ => false,
        };
        match self.facts.iter_mut().find(matches) {
            Some(Fact::Told(_, told)) => told,
            _ => panic!("process {process} has no access {number}"),
        }
    }

    /// The history without what comes from this event on, which the server has forgotten.
    fn cut(&mut self, at: impl Fn(&Event) -> bool) {
        let index = self.history.iter().position(|recorded| at(&recorded.event)).unwrap();
        self.history.truncate(index);
    }

    /// A process was told this of itself, after everything else.
    fn welcomed(&mut self, change: impl FnOnce(&mut MemberState)) {
        let process = ProcessId::FIRST;
        let mut own = MemberState {
            process,
            next: AccessNumber::new(4).unwrap(),
            waiting: Vec::new(),
            append: Some((Phase::FIRST, AppendAnswer::Success(Position::new(0)))),
            decided: Some(Value::new(b"b").unwrap()),
        };
        change(&mut own);
        self.facts.push(Fact::Told(process, Told::Welcome(own)));
    }

    /// Get was answered, after everything else.
    fn got(&mut self, state: State, length: u32, sealed: bool) {
        let asked_after = self.facts.len();
        self.facts.push(Fact::Status(MemberStatus { asked_after, state, length, sealed, own: None }));
    }
}

#[test]
fn what_stands_is_no_violation() {
    let mut story = story();
    story.welcomed(|_| {});
    story.got(State::Finished, 3, true);
    let checked = story.checked();
    assert!(checked.violations.is_empty(), "{:#?}", checked.violations);
    let counts = checked.counts;
    assert_eq!((counts.accesses, counts.reads, counts.decisions), (9, 6, 3));
    assert_eq!(counts.verdicts, [("valid".to_owned(), 1)].into());
}

#[test]
fn an_instance_that_is_unknown_is_lost() {
    let mut story = story();
    story.facts.push(Fact::Unknown);
    story.must_be(ViolationKind::Lost, "no such instance");
    // Also when nothing else is there to compare.
    story.history.clear();
    assert_eq!(story.found(), [ViolationKind::Lost].into());
}

#[test]
fn an_acknowledged_append_that_is_gone_is_lost() {
    let mut story = story();
    story.cut(|event| matches!(event, Event::Added { position, .. } if position.get() == 2));
    story.must_be(ViolationKind::Lost, "access 1 of process 3 was answered in phase 3");
    story.must_be(ViolationKind::Lost, "at position 2; there stands None");
}

#[test]
fn another_value_at_an_acknowledged_position_is_a_change() {
    let mut story = story();
    let Told::Answered { op, .. } = story.answer_of(1, 1) else { panic!() };
    *op = Some(RawOp::Append((&Value::new(b"z").unwrap()).into()));
    story.must_be(ViolationKind::Changed, "at position 0; there stands");
    let mut story = self::story();
    let Told::Answered { answer, .. } = story.answer_of(1, 1) else { panic!() };
    *answer = Answer::Append(AppendAnswer::Failed);
    story.must_be(ViolationKind::Changed, "access 1 of process 1 was answered in phase 1: Append(Failed)");
}

#[test]
fn a_read_of_what_does_not_stand_is_found() {
    let mut story = story();
    let Told::Answered { entries, .. } = story.answer_of(2, 2) else { panic!() };
    entries[1] = Value::new(b"z").unwrap();
    story.must_be(ViolationKind::Changed, "the list is another one now");
    let mut story = self::story();
    story.cut(|event| matches!(event, Event::Added { position, .. } if position.get() == 1));
    story.must_be(ViolationKind::Lost, "the list is shorter now");
    story.must_be(ViolationKind::Lost, "saw 3 entries, and there are 1");
}

#[test]
fn a_sealed_list_stays_sealed_as_it_is() {
    let mut story = story();
    story.history.retain(|recorded| !matches!(recorded.event, Event::Sealed { .. }));
    story.must_be(ViolationKind::Changed, "saw the list sealed at 3, and it is None");
    let mut story = self::story();
    story.got(State::Finished, 3, false);
    story.must_be(ViolationKind::Lost, "an open list that was known to be sealed");
    let mut story = self::story();
    story.got(State::Finished, 2, true);
    story.must_be(ViolationKind::Changed, "a list sealed at 2");
}

#[test]
fn an_access_is_executed_once() {
    let mut story = story();
    let answered = |recorded: &&Recorded| matches!(recorded.event, Event::Answered { .. });
    let again = story.history.iter().find(answered).cloned().unwrap();
    let last = story.history.len() - 1;
    story.history.insert(last, again);
    story.must_be(ViolationKind::Twice, "access 1 of process 1 was executed 2 times");
}

#[test]
fn a_repeated_access_has_the_same_answer() {
    let mut story = story();
    let mut repeated = story.answer_of(3, 2).clone();
    let three = ProcessId::new(3).unwrap();
    story.facts.push(Fact::Told(three, repeated.clone()));
    assert_eq!(story.found(), BTreeSet::new());
    let Told::Answered { phase, .. } = &mut repeated else { panic!() };
    *phase = Phase::new(9);
    story.facts.push(Fact::Told(three, repeated));
    story.must_be(ViolationKind::Changed, "access 2 of process 3 was answered in phase 9");
}

#[test]
fn an_accepted_access_does_not_vanish() {
    let mut story = story();
    let (process, number) = (ProcessId::new(2).unwrap(), AccessNumber::new(9).unwrap());
    let op = stickycas_model::access::Op::Read { start: Position::new(0) };
    let event = Event::Accepted { process, number, session: None, op };
    story.history.insert(0, Recorded { at: Time::ZERO, event });
    story.must_be(ViolationKind::Vanished, "access 9 of process 2");
}

#[test]
fn what_was_finished_or_closed_stays_so() {
    let mut story = story();
    story.got(State::Finished, 3, true);
    story.got(State::Running, 3, true);
    story.must_be(ViolationKind::Reopened, "Get told Running");
    let mut story = self::story();
    story.facts.push(Fact::Closed);
    story.history.retain(|recorded| !matches!(recorded.event, Event::Finished));
    story.must_be(ViolationKind::Reopened, "its creator was told that it is closed");
}

#[test]
fn a_process_is_never_told_less_than_it_knew() {
    let next = |number| move |own: &mut MemberState| own.next = AccessNumber::new(number).unwrap();
    let mut story = story();
    story.welcomed(next(3));
    story.must_be(
        ViolationKind::Lost,
        "welcome told process 1 that its next access is 3, though access 3 was answered",
    );
    let mut story = self::story();
    story.welcomed(next(6));
    story.welcomed(next(5));
    story.must_be(ViolationKind::Lost, "its next access is 5, though it was 6 before");
    let mut story = self::story();
    story.welcomed(|own| own.append = None);
    story.must_be(ViolationKind::Lost, "its append is None, though it was Some");
    let mut story = self::story();
    story.welcomed(|own| own.decided = None);
    story.must_be(ViolationKind::Lost, "its decision is None, though it was Some");
    let mut story = self::story();
    let op = stickycas_model::access::Op::Read { start: Position::new(0) };
    story.welcomed(|own| own.waiting = vec![(AccessNumber::new(7).unwrap(), op)]);
    story.welcomed(|_| {});
    story.must_be(ViolationKind::Lost, "access 7, which waited, does not wait any more");
}

#[test]
fn get_never_tells_less_than_was_known_when_it_was_asked() {
    let mut story = story();
    story.got(State::Finished, 2, false);
    story.must_be(ViolationKind::Lost, "Get told a list of 2 entries, where 3 were known");
    // Asked before anything was known, and answered late: that is no loss.
    let mut story = self::story();
    let early = MemberStatus { asked_after: 1, state: State::Running, length: 0, sealed: false, own: None };
    story.facts.push(Fact::Status(early));
    assert_eq!(story.found(), BTreeSet::new());
    let mut story = self::story();
    let own = MemberState {
        process: ProcessId::FIRST,
        next: AccessNumber::new(2).unwrap(),
        waiting: Vec::new(),
        append: None,
        decided: None,
    };
    let asked_after = story.facts.len();
    let (state, own) = (State::Finished, Some(own));
    story.facts.push(Fact::Status(MemberStatus { asked_after, state, length: 3, sealed: true, own }));
    story.must_be(ViolationKind::Lost, "Get told process 1 that its next access is 2");
}

#[test]
fn a_decision_that_was_acknowledged_stands() {
    let mut story = story();
    story.cut(|event| matches!(event, Event::Decided { .. }));
    story.must_be(ViolationKind::Lost, "which was acknowledged; there is None");
}

#[test]
fn what_an_observer_was_told_is_how_the_history_begins() {
    let mut story = story();
    let last = story.history.pop().unwrap();
    story.must_be(ViolationKind::Lost, "an observer was told event");
    story.history.push(Recorded { event: Event::Closed, ..last });
    story.must_be(ViolationKind::Changed, "an observer was told event");
}

#[test]
fn a_restart_in_the_middle_shows_and_no_other_does() {
    let mut story = story();
    // Process 1 has come back after the restart, and was answered.
    story.facts.splice(1..1, [Fact::Killed, Fact::ServesAgain]);
    assert_eq!(story.found(), BTreeSet::new(), "nobody had to come back: it may have ended before");
    let own = MemberState {
        process: ProcessId::FIRST,
        next: AccessNumber::FIRST,
        waiting: Vec::new(),
        append: None,
        decided: None,
    };
    story.facts.insert(3, Fact::Told(ProcessId::FIRST, Told::Welcome(own)));
    story.restarts = 1;
    story.must_be(ViolationKind::History, "was restarted 1 times while it was played, and it shows 0");
    let mut story = self::story();
    let event = Event::Restarted { rejoin: Duration::from_secs(1) };
    story.history.insert(0, Recorded { at: Time::ZERO, event });
    story.must_be(ViolationKind::History, "it shows 1 restarts, and there were 0");
}

#[test]
fn accesses_that_wait_when_a_server_is_restarted_are_counted() {
    let mut story = story();
    assert_eq!(story.checked().counts.waited, 0);
    let accepted = |recorded: &Recorded| matches!(recorded.event, Event::Accepted { .. });
    let first = story.history.iter().position(accepted).unwrap();
    let event = Event::Restarted { rejoin: Duration::from_secs(1) };
    let at = story.history[first].at;
    story.history.insert(first + 1, Recorded { at, event });
    assert_eq!(story.checked().counts.waited, 1);
}

#[test]
fn a_history_that_does_not_follow_from_its_inputs_is_found() {
    let mut story = story();
    let length = |recorded: &mut Recorded| {
        if let Event::Stepped { length, .. } = &mut recorded.event {
            *length += 1;
        }
    };
    story.history.iter_mut().for_each(length);
    story.must_be(ViolationKind::History, "it does not follow from its inputs");
}

#[test]
fn time_of_an_instance_is_no_more_than_what_was_served() {
    let mut story = story();
    let last = story.history.last().unwrap().at;
    story.elapsed = Duration::from_nanos(last.as_nanos());
    assert_eq!(story.found(), BTreeSet::new());
    story.history.last_mut().unwrap().at = last.after(Duration::from_secs(2 * 24 * 3600));
    story.must_be(ViolationKind::Time, "of its time have passed");
}

#[test]
fn a_correct_process_keeps_its_patience() {
    let mut story = story();
    let event = Event::PatienceSpent { process: ProcessId::FIRST };
    let at = story.history.last().unwrap().at;
    let index = story.history.len() - 1;
    story.history.insert(index, Recorded { at, event });
    story.must_be(ViolationKind::Impatient, "process 1, which is correct");
    // The machine has given nobody a turn for as long as the patience lasts, or not nearly.
    let Patience::Finite(patience) = story.plan.params.spec().patience else { panic!("it has an end") };
    story.lateness = patience;
    assert!(!story.found().contains(&ViolationKind::Impatient) && story.checked().counts.starved == 1);
    story.lateness = patience / 4;
    story.must_be(ViolationKind::Impatient, "process 1, which is correct");
}

#[test]
fn an_instance_that_shows_nothing_is_not_passed_over() {
    let mut story = story();
    story.history.clear();
    story.must_be(ViolationKind::History, "nothing of it is there");
    story.facts.clear();
    assert_eq!(story.found(), BTreeSet::new(), "it was never created");
}

#[test]
fn a_correct_process_decides() {
    let mut story = story();
    story.reports[1].ended = ProcessEnd::Failed("it gave up".to_owned());
    story.must_be(ViolationKind::Undecided, "process 2: it gave up");
    story.must_be(ViolationKind::Verdict, "PROVES NOTHING: process 2 is correct and failed");
    story.reports.remove(1);
    story.must_be(ViolationKind::Undecided, "process 2 never said anything");
}

#[test]
fn the_verdict_is_the_judges() {
    let mut story = story();
    // Not what Algorithm 1 decides.
    story.reports[0].decision = Value::new(b"a");
    story.must_be(ViolationKind::Verdict, "VIOLATION: agreement was promised");
}

#[test]
fn an_append_that_failed_may_be_followed_by_another() {
    let at = |phase, answer| (Phase::new(phase).unwrap(), answer);
    let (failed, won) = (AppendAnswer::Failed, AppendAnswer::Success(Position::new(0)));
    for (before, now, rounds, follows) in [
        (at(1, failed), at(3, won), 2, true),
        (at(1, failed), at(3, failed), 2, true),
        (at(1, failed), at(3, won), 1, false),
        (at(3, failed), at(1, won), 2, false),
        (at(1, won), at(3, failed), 2, false),
    ] {
        assert_eq!(may_follow(before, now, rounds), follows, "{before:?} {now:?} {rounds}");
    }
}
