//! Whether correct processes follow Algorithm 1 is judged by the record, never by what they report (SPEC D1,
//! V4).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use stickycas_model::history::{Event, Offence, OffenceKind};
use stickycas_model::judge::Outcome;
use stickycas_model::params::AppendWindow;

use crate::story::{Story, id, value, values};

/// Process 3 differs so, which is a bug of ours, or shows that the assignment of roles is false where others
/// started the process.
#[track_caller]
fn deviates(mut story: Story, says: &str) {
    story.is(Outcome::Violation, says);
    story.expected.started_elsewhere = true;
    let verdict = story.is(Outcome::Unknown, says);
    assert_eq!(verdict.deviated, [id(3)]);
}

/// Three processes, a warp each, of which the third acts in this way after its append; the others follow
/// Algorithm 1.
fn third(open: bool, first: impl FnOnce(&mut Story), then: impl FnOnce(&mut Story)) -> Story {
    let mut story = Story::new("a a b", 1, 3, |spec| {
        spec.append_window = if open { AppendWindow::Open } else { AppendWindow::FirstAccess };
    });
    story.all_join();
    for process in 1..=2 {
        story.append(process, "a");
        story.step();
    }
    first(&mut story);
    story.step();
    for process in 1..=2 {
        story.read(process, 0);
        story.step();
    }
    for process in 1..=2 {
        story.decides(process);
    }
    then(&mut story);
    story.record(Event::Finished);
    story
}

fn appends(story: &mut Story) {
    story.append(3, "b");
}

#[test]
fn a_decision_is_compared_with_the_entries_on_record() {
    let decides_otherwise = |open| {
        third(open, appends, |story| {
            story.read(3, 0);
            story.step();
            story.decides_from(3, &values("b"));
        })
    };
    for open in [false, true] {
        deviates(
            decides_otherwise(open),
            "D1: process 3 decided b; the mode of the 3 entries that it read is a",
        );
    }
}

#[test]
fn each_read_starts_where_the_entries_on_record_end() {
    let reads_from_1 = |story: &mut Story| {
        story.read(3, 1);
        story.step();
        story.decides(3);
    };
    let says = "D1: process 3 is correct and read from 1, where its next read was to start at 0";
    deviates(third(false, appends, reads_from_1), says);
    deviates(third(true, appends, reads_from_1), says);
}

#[test]
fn the_first_access_appends_the_proposal_and_no_other_appends() {
    let reads_and_decides = |story: &mut Story| {
        story.read(3, 0);
        story.step();
        story.decides(3);
    };
    deviates(
        third(false, |story| story.read(3, 0), reads_and_decides),
        "D1: process 3 is correct and did not append in its first access",
    );
    deviates(
        third(false, |story| story.append(3, "z"), reads_and_decides),
        "D1: process 3 is correct and proposed z, where the scenario has b",
    );
    deviates(
        third(true, appends, |story| {
            story.append(3, "b");
            story.step();
            story.phase += 2;
            reads_and_decides(story);
        }),
        "D1: process 3 is correct and appended again, in its access 2",
    );
}

#[test]
fn a_process_decides_when_it_has_read_enough_and_not_before() {
    for open in [false, true] {
        let story = third(open, appends, |story| story.decides_from(3, &values("b")));
        deviates(story, "D1: process 3 decided b; the mode of the 0 entries that it read is nothing");
        let reads_again = third(open, appends, |story| {
            story.read(3, 0);
            story.step();
            story.phase += 2;
            story.read(3, 3);
            story.step();
            story.decides(3);
        });
        deviates(
            reads_again,
            "D1: process 3 is correct and read from 3, where it had read all that it takes to decide",
        );
    }
}

#[test]
fn as_printed_a_read_starts_at_a_multiple_of_its_size() {
    // The list has one entry when the first read comes, and the second starts at 2 all the same.
    let second_from = |start| {
        let mut story = Story::new("a", 1, 1, |spec| spec.append_window = AppendWindow::Open);
        story.params = Story::new("a a a a", 1, 2, |spec| spec.append_window = AppendWindow::Open).params;
        story.truth = Story::new("a !a !a !a", 1, 2, |_| {}).truth;
        story.all_join();
        story.append(1, "a");
        story.step();
        for start in [0, start] {
            story.phase = story.phase.next_multiple_of(4) + 1;
            story.read(1, start);
            story.step();
        }
        story.decides_from(1, &values("a"));
        story.verdict().deviated
    };
    assert_eq!(second_from(2), []);
    assert_eq!(second_from(1), [id(1)]);
}

/// One process in a warp of its own, which reads one of three entries at a time. Its lives have these
/// incarnations; the second begins when a read from 1 was accepted and not answered, and reads from these
/// positions.
fn second_life(incarnations: [u64; 2], starts: &[u32]) -> Story {
    let mut story = Story::new("a !a !a", 1, 1, |_| {});
    story.all_join();
    story.session(1, 1, incarnations[0]);
    for process in 1..=3 {
        story.append(process, "a");
        story.step();
    }
    let others_pass = |story: &mut Story| story.phase += 2;
    story.read(1, 0);
    story.step();
    others_pass(&mut story);
    story.read(1, 1);
    story.session(1, 2, incarnations[1]);
    story.step();
    for &start in starts {
        others_pass(&mut story);
        story.read(1, start);
        story.step();
    }
    story.decides(1);
    story
}

#[test]
fn a_later_life_begins_anew_and_takes_the_answers_that_come() {
    // The entry at 1 comes to the second life, so it reads those at 0 and at 2.
    let is_fine =
        |incarnations, starts: &[u32]| second_life(incarnations, starts).verdict().deviated.is_empty();
    assert!(is_fine([7, 8], &[0, 2]));
    assert!(!is_fine([7, 8], &[2]), "the second life was never given the entry at 0");
    assert!(!is_fine([7, 8], &[0, 1, 2]), "it was given the entry at 1 before");
    // A connection that was lost and opened again is the same life.
    assert!(is_fine([7, 7], &[2]));
    assert!(!is_fine([7, 7], &[0, 2]));
    // A client that does not name its life may be either.
    for unnamed in [[0, 0], [0, 7], [7, 0]] {
        assert!(is_fine(unnamed, &[0, 2]), "{unnamed:?}");
        assert!(is_fine(unnamed, &[2]), "{unnamed:?}");
        assert!(!is_fine(unnamed, &[1]), "{unnamed:?}");
        assert!(!is_fine(unnamed, &[2, 0]), "{unnamed:?}: one life cannot be both");
    }
}

fn accuse(story: &mut Story, process: u32, kind: OffenceKind) {
    let detail = "append with access number 2".to_owned();
    let offence = Offence { process: id(process), kind, number: None, phase: None, detail };
    let last = story.history.len() - 1;
    story.insert(last, Event::Offence(offence));
}

#[test]
fn a_false_cast_comes_before_all_but_a_rule_of_the_server() {
    let mut story = third(false, appends, |story| {
        story.read(3, 0);
        story.step();
        story.decides_from(3, &values("b"));
    });
    story.expected.started_elsewhere = true;
    accuse(&mut story, 3, OffenceKind::FalseDecision);
    let verdict = story.is(Outcome::Unknown, "agreement was promised and broke");
    assert!(verdict.reasons[0].starts_with("D1: process 3 decided b"), "{:?}", verdict.reasons);
    assert_eq!(verdict.accused_correct, [id(3)]);
    // To accuse a process that plays its part is a mistake of the server.
    accuse(&mut story, 1, OffenceKind::FalseDecision);
    story.is(Outcome::Violation, "B3: process 1 is correct and was accused of FalseDecision");
}

#[test]
fn of_an_outsider_only_the_record_counts() {
    let mut story = third(false, appends, |story| {
        story.read(3, 0);
        story.step();
        story.decides(3);
    });
    story.expected.started_elsewhere = true;
    story.is_valid();
    story.report(3).from = values("a").into();
    let says = "R2: process 3 reports that it read [a], and by the record it read [a a b]";
    story.is(Outcome::Unknown, says);
    story.report(3).from = values("a a b").into();
    story.report(3).decision = Some(value("b"));
    story.is(Outcome::Unknown, "D3: process 3 decided b, and a is on record as its report");
}

/// Four processes in two warps with two append rounds. The third fails first; then it acts so in its second
/// phase, and reads from here in its third.
fn second_round(then: impl FnOnce(&mut Story), from: u32) -> Story {
    let mut story = Story::new("a b c a", 2, 4, |spec| spec.append_rounds = 2);
    story.all_join();
    for (first, second) in [((1, "a"), (2, "b")), ((4, "a"), (3, "c"))] {
        story.append(first.0, first.1);
        story.append(second.0, second.1);
        story.step();
    }
    story.append(2, "b");
    story.read(1, 0);
    story.step();
    then(&mut story);
    story.read(4, 0);
    story.step();
    for reads in [[(1, 2), (2, 0)], [(3, from), (4, 3)]] {
        reads.iter().for_each(|(process, start)| story.read(*process, *start));
        story.step();
    }
    story.all_decide();
    story
}

#[test]
fn with_append_rounds_a_process_appends_until_it_wins() {
    let verdict = second_round(|story| story.append(3, "c"), 0).is_valid();
    assert_eq!((verdict.list, verdict.late), (values("a a b c"), Vec::new()));
    deviates(
        second_round(|story| story.read(3, 0), 3),
        "D1: process 3 is correct and read in its access 2, where it was to append again",
    );
    deviates(
        second_round(|story| story.append(3, "z"), 0),
        "D1: process 3 is correct and appended another value in its access 2",
    );
}

#[test]
fn with_append_rounds_late_is_who_wins_nothing_and_missed_a_phase() {
    // Process 3 has nothing ready in its first phase, or in none of the first two.
    let absent = |rounds: u32| {
        let mut story = Story::new("a b c a", 2, 4, |spec| spec.append_rounds = 2);
        story.all_join();
        for round in 0..2 {
            let appends = if round == 0 { [(1, "a"), (2, "b")] } else { [(2, "b"), (1, "")] };
            for (process, text) in appends {
                if text.is_empty() { story.read(process, 0) } else { story.append(process, text) }
            }
            story.step();
            if round == 0 {
                story.append(4, "a");
                story.record(Event::PatienceSpent { process: id(3) });
            } else {
                story.read(4, 0);
            }
            if round >= rounds {
                story.append(3, "c");
            }
            story.step();
        }
        story
    };
    assert_eq!(absent(1).verdict().late, []);
    assert_eq!(absent(2).verdict().late, [id(3)]);
}

/// One missed phase of q is enough where nothing is won; and who missed none is not late.
#[test]
fn with_append_rounds_late_is_also_who_missed_only_one_phase_of_them() {
    let mut story = Story::new("a b c a b c", 3, 6, |spec| spec.append_rounds = 2);
    story.all_join();
    // Process 3 fails twice. Process 4 has nothing ready in its first phase, and fails in its second.
    for appends in [[Some(1), Some(2), Some(3)], [None, Some(5), Some(6)], [Some(2), Some(3), None]] {
        for process in appends.into_iter().flatten() {
            let values = ["a", "b", "c", "a", "b", "c"];
            story.append(process, values[process as usize - 1]);
        }
        match appends {
            [None, ..] => story.record(Event::PatienceSpent { process: id(4) }),
            [_, _, None] => story.read(1, 0),
            _ => {}
        }
        story.step();
    }
    story.append(6, "c");
    story.append(4, "a");
    story.read(5, 0);
    story.step();
    let verdict = story.verdict();
    assert_eq!((verdict.list, verdict.late), (values("a b b c"), vec![id(4)]));
}

#[test]
fn under_open_a_process_may_win_and_be_late() {
    let mut story = Story::new("a b", 1, 2, |spec| spec.append_window = AppendWindow::Open);
    story.all_join();
    story.append(1, "a");
    story.step();
    story.record(Event::PatienceSpent { process: id(2) });
    story.pass();
    story.append(2, "b");
    story.read(1, 0);
    story.step();
    story.step();
    let verdict = story.verdict();
    assert_eq!((verdict.list, verdict.late), (values("a b"), vec![id(2)]));
}
