//! What a process does when its connection breaks or its client restarts (SPEC F8).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::sync::Arc;

use stickycas_model::access::{Access, Answer, AppendAnswer, Op, ReadAnswer, Refusal};
use stickycas_model::history::Event;
use stickycas_model::machine::{Admission, Machine, Welcome};
use stickycas_model::params::{AppendWindow, Params, ParamsSpec};
use stickycas_model::player::{Player, REFUSALS_IN_A_ROW, Step};
use stickycas_model::process::{Correct, ProcessEnd, RawOp, SendTime};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time, Value};

const ME: ProcessId = ProcessId::FIRST;

fn params() -> Arc<Params> {
    Arc::new(Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap())
}

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

fn number(number: u64) -> AccessNumber {
    AccessNumber::new(number).unwrap()
}

fn correct() -> Player {
    Player::new(ME, params(), Box::new(Correct::new(value("mine"))))
}

fn welcome(next: u64) -> Welcome {
    Welcome { next: number(next), ..Welcome::first() }
}

fn append(n: u64) -> Step {
    Step::Access { number: number(n), op: RawOp::Append(b"mine".to_vec().into()), when: SendTime::Ready }
}

fn read(n: u64, start: u32) -> Step {
    Step::Access { number: number(n), op: RawOp::Read(Position::new(start)), when: SendTime::Ready }
}

/// The answer to a read that returns one entry of a sealed list of two.
fn one_of_two(start: u32) -> Answer {
    Answer::Read(ReadAnswer { start: Position::new(start), count: 1, length: 2, sealed: true })
}

fn failure(player: &Player) -> String {
    match player.report().ended {
        ProcessEnd::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_first_life_appends_reads_and_decides() {
    let mut player = correct();
    player.welcome(&welcome(1));
    assert_eq!(player.next_step(), append(1));
    assert_eq!(player.next_step(), Step::Wait);
    player.answered(number(1), Phase::new(1), Answer::Append(AppendAnswer::Failed), []);
    assert_eq!(player.next_step(), read(2, 0));
    player.answered(number(2), Phase::new(3), one_of_two(0), [value("b")]);
    assert_eq!(player.next_step(), read(3, 1));
    player.answered(number(3), Phase::new(5), one_of_two(1), [value("a")]);
    assert_eq!(player.next_step(), Step::Decide(value("a")));
    assert_eq!(player.report().decision, None, "the server has not taken it yet");
    player.decided();
    assert_eq!(player.next_step(), Step::Leave);
    let report = player.report();
    assert_eq!((report.decision, report.ended), (Some(value("a")), ProcessEnd::Decided));
    assert_eq!((report.phase, report.from.to_vec()), (Phase::new(5), vec![value("b"), value("a")]));
}

#[test]
fn after_a_lost_connection_the_same_access_is_sent_again() {
    let mut player = correct();
    player.welcome(&welcome(1));
    assert_eq!(player.next_step(), append(1));
    // Whether it arrived (next = 2) or not (next = 1), it is the same access.
    for next in [1, 2] {
        player.welcome(&welcome(next));
        assert_eq!(player.next_step(), append(1));
        assert_eq!(player.next_step(), Step::Wait);
    }
    for _ in 0..2 {
        player.answered(number(1), Phase::new(1), Answer::Append(AppendAnswer::Failed), []);
    }
    assert_eq!(player.view().answered, 1);
    assert_eq!(player.next_step(), read(2, 0));
}

#[test]
fn the_first_read_may_be_sent_with_the_append() {
    let ahead = || correct().sending_ahead();
    let mut player = ahead();
    player.welcome(&Welcome::first());
    assert_eq!([player.next_step(), player.next_step()], [append(1), read(2, 0)]);
    assert_eq!(player.next_step(), Step::Wait);
    // Whichever of them arrived, they are the same accesses. If the first was answered before, the answer of
    // the second comes first, and is asked for again.
    for next in 1..=3 {
        player.welcome(&welcome(next));
        player.answered(number(2), Phase::new(3), one_of_two(0), [value("b")]);
        assert_eq!([player.next_step(), player.next_step()], [append(1), Step::Wait]);
    }
    player.answered(number(1), Phase::new(1), Answer::Append(AppendAnswer::Failed), []);
    assert_eq!([player.next_step(), player.next_step()], [read(2, 0), Step::Wait]);
    player.answered(number(2), Phase::new(3), one_of_two(0), [value("b")]);
    assert_eq!([player.next_step(), player.next_step()], [read(3, 1), Step::Wait]);

    // An access that a second one would exceed the bound with, and those of a new life, stand alone.
    let params = ParamsSpec { pipeline: 1, ..ParamsSpec::new(2, 1, 1) };
    let params = Arc::new(Params::try_new(params).unwrap());
    let mut single = Player::new(ME, params, Box::new(Correct::new(value("mine")))).sending_ahead();
    single.welcome(&Welcome::first());
    assert_eq!([single.next_step(), single.next_step()], [append(1), Step::Wait]);
    let mut later = ahead();
    later.welcome(&welcome(2));
    assert_eq!([later.next_step(), later.next_step()], [read(2, 0), Step::Wait]);
}

#[test]
fn after_a_broken_connection_a_decision_is_reported_again() {
    let mut player = correct();
    player.welcome(&Welcome { append: Some((Phase::FIRST, AppendAnswer::Failed)), ..welcome(2) });
    for (n, start) in [(2, 0), (3, 1)] {
        assert_eq!(player.next_step(), read(n, start));
        player.answered(number(n), Phase::new(n + 1), one_of_two(start), [value("a")]);
    }
    assert_eq!(player.next_step(), Step::Decide(value("a")));
    assert_eq!(player.next_step(), Step::Wait);
    player.welcome(&welcome(4));
    assert_eq!(player.next_step(), Step::Decide(value("a")));
}

#[test]
fn a_new_life_does_not_append_again_and_reads_from_the_start() {
    let mut player = correct();
    player.welcome(&Welcome { append: Some((Phase::FIRST, AppendAnswer::Failed)), ..welcome(3) });
    assert_eq!(player.next_step(), read(3, 0));
}

#[test]
fn a_new_life_waits_for_what_its_earlier_one_left() {
    let mut player = correct();
    let left = vec![(number(1), Op::Append(value("other")))];
    player.welcome(&Welcome { waiting: left, ..welcome(2) });
    let again = RawOp::Append(b"other".to_vec().into());
    assert_eq!(player.next_step(), Step::Access { number: number(1), op: again, when: SendTime::Ready });
    assert_eq!(player.next_step(), Step::Wait);
    player.answered(number(1), Phase::new(1), Answer::Append(AppendAnswer::Failed), []);
    assert_eq!(player.next_step(), read(2, 0));
}

#[test]
fn the_answer_of_a_read_that_waited_counts_for_the_new_life() {
    let mut player = correct();
    let left = vec![(number(2), Op::Read { start: Position::new(0) })];
    player.welcome(&Welcome { waiting: left, ..welcome(3) });
    assert_eq!(player.next_step(), read(2, 0));
    player.answered(number(2), Phase::new(3), one_of_two(0), [value("a")]);
    assert_eq!(player.next_step(), read(3, 1));
}

#[test]
fn a_read_of_an_earlier_life_from_further_on_leaves_no_gap() {
    let mut player = correct();
    let left = vec![(number(3), Op::Read { start: Position::new(1) })];
    player.welcome(&Welcome { waiting: left, ..welcome(4) });
    assert_eq!(player.next_step(), read(3, 1));
    player.answered(number(3), Phase::new(5), one_of_two(1), [value("b")]);
    assert_eq!(player.next_step(), read(4, 0), "the first entry is still unknown to this life");
    player.answered(number(4), Phase::new(7), one_of_two(0), [value("a")]);
    assert_eq!(player.next_step(), Step::Decide(value("a")), "the second is known already");
}

#[test]
fn in_an_open_window_a_read_of_an_earlier_life_does_not_count() {
    let spec = ParamsSpec { append_window: AppendWindow::Open, ..ParamsSpec::new(2, 1, 1) };
    let params = Arc::new(Params::try_new(spec).unwrap());
    let mut player = Player::new(ME, params, Box::new(Correct::new(value("mine"))));
    let left = vec![(number(3), Op::Read { start: Position::new(1) })];
    player.welcome(&Welcome { waiting: left, ..welcome(4) });
    for (n, start) in [(3, 1), (4, 0), (5, 1)] {
        assert_eq!(player.next_step(), read(n, start));
        player.answered(number(n), Phase::new(n + 2), one_of_two(start), [value(["b", "a"][start as usize])]);
    }
    assert_eq!(player.next_step(), Step::Decide(value("a")));
}

#[test]
fn a_new_life_of_a_process_that_decided_has_nothing_to_do() {
    let mut player = correct();
    player.welcome(&Welcome { decided: Some(value("a")), ..welcome(4) });
    assert_eq!(player.next_step(), Step::Leave);
    let report = player.report();
    assert_eq!((report.decision, report.ended), (Some(value("a")), ProcessEnd::Decided));
    assert!(report.from.is_empty());
}

#[test]
fn a_server_that_forgot_an_answered_access_is_noticed() {
    let mut player = correct();
    player.welcome(&welcome(1));
    player.next_step();
    player.answered(number(1), Phase::new(1), Answer::Append(AppendAnswer::Failed), []);
    player.next_step();
    player.welcome(&welcome(1));
    assert_eq!(player.next_step(), Step::Leave);
    assert_eq!(failure(&player), "the server expects access 1 again, though it was answered");
}

#[test]
fn refused_content_frees_its_number_and_is_given_up_at_last() {
    let mut player = correct();
    player.welcome(&welcome(1));
    for _ in 0..REFUSALS_IN_A_ROW {
        assert_eq!(player.next_step(), append(1));
        player.rejected(number(1), "too large");
    }
    assert_eq!(player.next_step(), Step::Leave);
    assert_eq!(failure(&player), "refused 8 times in a row, at last: too large");
}

#[test]
fn a_refusal_of_the_machine_ends_the_process() {
    let mut player = correct();
    player.welcome(&welcome(1));
    player.next_step();
    player.refused(&Refusal::Closed);
    assert_eq!((player.next_step(), failure(&player)), (Step::Leave, "the instance is closed".to_owned()));
}

#[test]
fn a_list_that_was_never_sealed_decides_nothing() {
    let mut player = correct();
    player.welcome(&welcome(2));
    assert_eq!(player.next_step(), read(2, 0));
    let open = Answer::Read(ReadAnswer { start: Position::new(0), count: 0, length: 0, sealed: false });
    player.answered(number(2), None, open, []);
    assert_eq!(player.next_step(), Step::Leave);
}

#[test]
fn a_sealed_list_without_entries_leaves_nothing_to_decide() {
    let mut player = correct();
    player.welcome(&welcome(2));
    player.next_step();
    let empty = Answer::Read(ReadAnswer { start: Position::new(0), count: 0, length: 0, sealed: true });
    player.answered(number(2), Phase::new(3), empty, []);
    assert_eq!(player.next_step(), Step::Stay);
    assert_eq!(player.report().ended, ProcessEnd::NothingToDecide);
}

/// Performs what the player asks for until it waits, and hands back what comes, as a client would.
fn perform(machine: &mut Machine, player: &mut Player, session: SessionId) -> Vec<Event> {
    let mut events = Vec::new();
    while let Step::Access { number, op, .. } = player.next_step() {
        let op = op.checked(machine.params()).unwrap();
        let access = Access { process: ME, session: Some(session), number, op, no_wait: false };
        if let Admission::AnsweredBefore { phase, answer } =
            machine.access(Time::ZERO, access, &mut events).unwrap()
        {
            player.answered(number, Some(phase), answer, []);
        }
    }
    events
}

#[test]
fn a_restart_between_append_and_answer_leaves_one_append() {
    let mut machine = Machine::new(params());
    let hello = |machine: &mut Machine, incarnation| {
        machine.hello(Time::ZERO, ME, incarnation, &mut Vec::new()).unwrap()
    };
    let mut history = Vec::new();
    for incarnation in 1..=3 {
        let mut player = correct();
        let welcome = hello(&mut machine, incarnation);
        player.welcome(&welcome);
        history.extend(perform(&mut machine, &mut player, welcome.session));
        assert_eq!(player.next_step(), Step::Wait);
    }
    let accepted = |event: &&Event| matches!(event, Event::Accepted { .. });
    assert_eq!(history.iter().filter(accepted).count(), 1);
    let offence = |event: &Event| matches!(event, Event::Offence(_) | Event::Refused { .. });
    assert!(!history.iter().any(offence), "{history:?}");
}
