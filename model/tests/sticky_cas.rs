//! The StickyCAS object against its sequential specification, and under many real threads.
//!
//! What two and three threads can do to each other is explored exhaustively in `loom_sticky_cas.rs`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;
use stickycas_model::access::AppendAnswer::{self, Failed, LimitReached, Success};
use stickycas_model::sticky_cas::{StickyCas, Turn};
use stickycas_model::types::Position;

/// The specification: a list, and an append that names a position (A1, A3).
#[derive(Clone, Default)]
struct Sequential {
    limit: u32,
    entries: Vec<u32>,
}

impl Sequential {
    fn append(&mut self, position: Position, value: u32) -> AppendAnswer {
        if position.get() >= self.limit {
            LimitReached
        } else if position.index() < self.entries.len() {
            Failed
        } else {
            self.entries.push(value);
            Success(position)
        }
    }

    fn read(&self, start: u32, count: u32) -> Vec<u32> {
        self.entries.iter().skip(start as usize).take(count as usize).copied().collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A phase begins.
    Turn,
    /// An append with one of the turns so far, new or old.
    Append(prop::sample::Index, u32),
    Read(u32, u32),
    Get(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => Just(Op::Turn),
        6 => (any::<prop::sample::Index>(), any::<u32>()).prop_map(|(turn, value)| Op::Append(turn, value)),
        2 => (0_u32..8, prop_oneof![0_u32..8, Just(u32::MAX)])
            .prop_map(|(start, count)| Op::Read(start, count)),
        1 => prop_oneof![0_u32..8, Just(u32::MAX)].prop_map(Op::Get),
    ];
    prop::collection::vec(op, 0..60)
}

fn hash_of(list: &StickyCas<u32>) -> u64 {
    let mut hasher = DefaultHasher::new();
    list.hash(&mut hasher);
    hasher.finish()
}

proptest! {
    #[test]
    fn every_answer_is_that_of_the_sequential_specification(limit in 0_u32..6, ops in ops()) {
        let list = StickyCas::with_limit(limit);
        let mut specified = Sequential { limit, ..Sequential::default() };
        let mut turns: Vec<Turn<'_, u32>> = vec![list.turn()];
        for op in ops {
            match op {
                Op::Turn => {
                    turns.push(list.turn());
                    prop_assert_eq!(list.turn().position().index(), specified.entries.len());
                }
                Op::Append(turn, value) => {
                    let turn = turn.get(&turns);
                    prop_assert_eq!(turn.append(value), specified.append(turn.position(), value));
                }
                Op::Read(start, count) => {
                    let read: Vec<u32> = list.range(Position::new(start), count).copied().collect();
                    prop_assert_eq!(read, specified.read(start, count));
                }
                Op::Get(position) => {
                    let entry = specified.entries.get(position as usize);
                    prop_assert_eq!(list.get(Position::new(position)), entry);
                }
            }
            prop_assert!(list.iter().eq(&specified.entries));
            prop_assert_eq!(list.len() as usize, specified.entries.len());
            prop_assert_eq!(list.is_empty(), specified.entries.is_empty());
        }
        prop_assert_eq!(list.limit(), limit);
    }

    #[test]
    fn a_clone_is_equal_until_either_goes_on(
        limit in 1_u32..6,
        entries in prop::collection::vec(any::<u32>(), 0..5),
    ) {
        let list = StickyCas::with_limit(limit);
        for &entry in &entries {
            list.turn().append(entry);
        }
        let clone = list.clone();
        prop_assert_eq!(&clone, &list);
        prop_assert_eq!(hash_of(&clone), hash_of(&list));
        if let Success(_) = clone.turn().append(0) {
            prop_assert_ne!(&clone, &list);
            prop_assert!(list.iter().eq(entries.iter().take(limit as usize)));
        }
    }
}

#[test]
fn lists_with_other_limits_are_not_equal() {
    assert_ne!(StickyCas::<u32>::with_limit(1), StickyCas::with_limit(2));
}

#[test]
fn debug_shows_limit_and_entries() {
    let list = StickyCas::with_limit(3);
    list.turn().append("a");
    assert_eq!(format!("{list:?}"), r#"StickyCas { limit: 3, entries: ["a"] }"#);
    assert_eq!(format!("{:?}", list.turn()), "Turn { position: Position(1), .. }");
}

#[test]
fn a_list_without_room_takes_nothing() {
    let list = StickyCas::with_limit(0);
    assert_eq!(list.turn().append(1), LimitReached);
    assert!(list.is_empty());
}

#[test]
fn many_threads_leave_no_hole_and_overwrite_nothing() {
    const THREADS: u32 = 8;
    const LIMIT: u32 = 5_000;
    let list = StickyCas::with_limit(LIMIT);
    let appender = |thread: u32| {
        let mut won = Vec::new();
        for phase in 0.. {
            let value = (thread, phase);
            match list.turn().append(value) {
                Success(position) => won.push((position, value)),
                Failed => {}
                LimitReached => break,
            }
        }
        won
    };
    let reader = || {
        let mut seen: Vec<(u32, u32)> = Vec::new();
        while seen.len() < LIMIT as usize {
            let look: Vec<_> = list.iter().copied().collect();
            assert!(look.starts_with(&seen), "each look continues the one before");
            seen = look;
        }
        seen
    };
    let (won, seen) = thread::scope(|scope| {
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let appenders: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || appender(thread))).collect();
        let won: Vec<_> = appenders.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (won, readers.map(|thread| thread.join().unwrap()))
    });

    let positions: BTreeSet<u32> = won.iter().map(|(position, _)| position.get()).collect();
    assert!(positions.into_iter().eq(0..LIMIT), "every position has a winner");
    assert_eq!(won.len(), LIMIT as usize, "and only one");
    assert!(won.iter().all(|(position, value)| list.get(*position) == Some(value)), "whose value stands");
    assert!(seen.iter().all(|seen| list.iter().eq(seen)), "all readers saw this list");
}

#[test]
fn threads_that_share_a_turn_have_one_winner_per_phase() {
    const PHASES: u32 = 300;
    let list = StickyCas::with_limit(PHASES);
    for phase in 0..PHASES {
        let turn = list.turn();
        let append = |process: u32| turn.append((phase, process));
        let answers = thread::scope(|scope| {
            let warp: Vec<_> = (0..4).map(|process| scope.spawn(move || append(process))).collect();
            warp.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let winner = answers.iter().position(|answer| *answer == Success(Position::new(phase))).unwrap();
        assert_eq!(answers.iter().filter(|answer| **answer == Failed).count(), 3);
        assert_eq!(list.get(Position::new(phase)), Some(&(phase, u32::try_from(winner).unwrap())));
    }
}

/// Counts how often it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn every_value_is_dropped_exactly_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let value = || Dropped(Arc::clone(&dropped));
    let list = StickyCas::with_limit(2);
    let old = list.turn();
    for turn in [old, list.turn(), old] {
        turn.append(value()); // one entry, two losers
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    list.turn().append(value());
    list.turn().append(value()); // beyond the limit
    assert_eq!(dropped.load(Ordering::Relaxed), 3);
    drop(list);
    assert_eq!(dropped.load(Ordering::Relaxed), 5);
}

#[test]
fn a_value_without_size_is_a_value() {
    let list = StickyCas::with_limit(2);
    assert_eq!(list.turn().append(()), Success(Position::new(0)));
    assert_eq!(list.turn().append(()), Success(Position::new(1)));
    assert_eq!(list.iter().len(), 2);
}

#[test]
fn it_is_shared_and_sent_like_its_values() {
    fn shared_and_sent<T: Send + Sync>() {}
    shared_and_sent::<StickyCas<Vec<u8>>>();
    shared_and_sent::<Turn<'_, Vec<u8>>>();
    fn sent<T: Send>() {}
    sent::<StickyCas<std::cell::Cell<u8>>>();
}
