//! A watch over broken connections and restarted servers.

use stickycas_model::types::{ProcessId, Time, WarpId};
use stickycas_proto::convert::history::event_to_wire;

use super::*;

fn joined() -> Event {
    Event::Joined { process: ProcessId::FIRST }
}

fn stepped(phase: u64) -> Event {
    Event::Stepped { phase: Phase::new(phase).unwrap(), warp: WarpId::FIRST, length: 0 }
}

fn batch(events: &[(u64, Event)]) -> v1::WatchResponse {
    let wire = |(index, event): &(u64, Event)| {
        event_to_wire(*index, &Recorded { at: Time::ZERO, event: event.clone() })
    };
    let events = events.iter().map(wire).collect();
    v1::WatchResponse { content: Some(Content::Events(v1::EventBatch { events })) }
}

fn indices(ready: &VecDeque<Watched>) -> Vec<u64> {
    let index = |watched: &Watched| match watched {
        Watched::Event(index, _) => Some(*index),
        Watched::Snapshot(_) => None,
    };
    ready.iter().filter_map(index).collect()
}

#[test]
fn a_watch_resumes_at_its_phase_and_gives_each_event_once() {
    let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Start), VecDeque::new());
    cursor.take(batch(&[(0, joined()), (1, stepped(3)), (2, joined())]), &mut ready).unwrap();
    cursor.lost();
    assert_eq!(cursor.request(InstanceId::new(1)).from_phase, 3);
    cursor.take(batch(&[(1, stepped(3)), (2, joined()), (3, stepped(4))]), &mut ready).unwrap();
    assert_eq!(indices(&ready), [0, 1, 2, 3]);
    assert_eq!(cursor.request(InstanceId::new(1)).from_phase, 4);
}

#[tokio::test]
async fn a_watch_of_no_instance_gives_one_error_and_ends() {
    let client = Client::builder("http://127.0.0.1:1").principal("ann").connect_lazy().unwrap();
    let mut watch = client.watch("no/name", WatchFrom::Start);
    assert!(matches!(watch.try_next().await, Err(Error::InvalidArgument(_))));
    assert!(matches!(watch.try_next().await, Ok(None)));
}

#[test]
fn a_history_that_was_put_back_is_lost() {
    let given = |again: &[(u64, Event)]| {
        let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Start), VecDeque::new());
        cursor.take(batch(&[(0, joined()), (1, stepped(3)), (2, joined())]), &mut ready).unwrap();
        cursor.lost();
        cursor.take(batch(again), &mut ready).and_then(|_| cursor.ended())
    };
    given(&[(1, stepped(3)), (2, joined())]).unwrap();
    given(&[(1, stepped(3)), (2, joined()), (3, stepped(4))]).unwrap();
    for less in [&[][..], &[(1, stepped(3))], &[(1, stepped(3)), (2, stepped(4))]] {
        let error = given(less).unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error}");
    }
}

#[test]
fn a_gap_is_an_error() {
    let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Start), VecDeque::new());
    let error = cursor.take(batch(&[(0, joined()), (2, joined())]), &mut ready).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
}

fn snapshot_of(next_index: u64, entries: &[&'static str]) -> v1::WatchResponse {
    let status = v1::Status { state: v1::State::Running.into(), phase: 5, warp: 1, ..v1::Status::default() };
    let entry = |value: &&'static str| v1::Entry { value: (*value).into(), process: 1, phase: 1 };
    let entries = entries.iter().map(entry).collect();
    let snapshot = v1::Snapshot { status: Some(status), next_index, first_position: 0, entries, last: true };
    v1::WatchResponse { content: Some(Content::Snapshot(snapshot)) }
}

#[test]
fn an_instance_that_is_less_than_its_snapshot_is_lost() {
    let resumed = || {
        let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Snapshot), VecDeque::new());
        cursor.take(snapshot_of(9, &["a"]), &mut ready).unwrap();
        ready.clear();
        cursor.lost();
        assert!(cursor.request(InstanceId::new(1)).snapshot_first, "no event says what was there");
        (cursor, ready)
    };
    for less in [snapshot_of(8, &["a"]), snapshot_of(9, &[]), snapshot_of(12, &["b", "a"])] {
        let (mut cursor, mut ready) = resumed();
        let error = cursor.take(less, &mut ready).unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error}");
    }
    let (mut cursor, mut ready) = resumed();
    assert_eq!(cursor.take(snapshot_of(9, &["a"]), &mut ready).unwrap(), Next::Message);
    cursor.take(batch(&[(9, joined())]), &mut ready).unwrap();
    assert_eq!((indices(&ready), ready.len()), (vec![9], 1), "the snapshot is given once");

    let (mut cursor, mut ready) = resumed();
    assert_eq!(cursor.take(snapshot_of(11, &["a", "b"]), &mut ready).unwrap(), Next::Request);
    let request = cursor.request(InstanceId::new(1));
    assert_eq!((request.from_phase, request.snapshot_first), (5, false));
    cursor.take(batch(&[(8, joined()), (9, joined()), (10, joined())]), &mut ready).unwrap();
    assert_eq!(indices(&ready), [9, 10]);
    cursor.lost();
    assert!(!cursor.request(InstanceId::new(1)).snapshot_first, "the last event says what was there");
}

#[test]
fn events_of_restarts_do_not_make_up_for_lost_ones() {
    let status = v1::Status {
        state: v1::State::Finished.into(),
        phase: 5,
        joined: 3,
        sealed: true,
        left: vec![1, 2],
        waiting: vec![v1::WaitingProcess { process: 3, append_numbers: vec![], read_numbers: vec![4] }],
        ..v1::Status::default()
    };
    let response = |next_index, change: fn(&mut v1::Status)| {
        let mut status = status.clone();
        change(&mut status);
        let status = Some(status);
        let snapshot = v1::Snapshot { status, next_index, first_position: 0, entries: vec![], last: true };
        v1::WatchResponse { content: Some(Content::Snapshot(snapshot)) }
    };
    let compared = |now| {
        let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Snapshot), VecDeque::new());
        cursor.take(response(9, |_| {}), &mut ready).unwrap();
        cursor.lost();
        cursor.take(now, &mut ready)
    };
    let less: [fn(&mut v1::Status); 5] = [
        |status| status.phase = 4,
        |status| status.joined = 2,
        |status| status.sealed = false,
        |status| status.left = vec![1],
        |status| status.state = v1::State::Running.into(),
    ];
    for change in less {
        for next_index in [9, 12] {
            let error = compared(response(next_index, change)).unwrap_err();
            assert!(matches!(error, Error::Lost(_)), "{error}");
        }
    }
    let error = compared(response(9, |status| status.waiting.clear())).unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");
    // Its end is an event, and so is each answer.
    compared(response(12, |status| status.waiting.clear())).unwrap();
    // More, without an event: phases without processes pass.
    compared(response(9, |status| (status.phase, status.phase_open) = (6, true))).unwrap();
}

#[test]
fn a_snapshot_in_parts_is_given_whole_and_then_what_follows_it() {
    let status = v1::Status { state: v1::State::Running.into(), phase: 5, warp: 1, ..v1::Status::default() };
    let entry = v1::Entry { value: "a".into(), process: 1, phase: 1 };
    let part = |status: Option<&v1::Status>, first_position, last| v1::WatchResponse {
        content: Some(Content::Snapshot(v1::Snapshot {
            status: status.cloned(),
            next_index: 9,
            first_position,
            entries: vec![entry.clone()],
            last,
        })),
    };
    let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Snapshot), VecDeque::new());
    assert!(cursor.request(InstanceId::new(1)).snapshot_first);
    cursor.take(part(Some(&status), 0, false), &mut ready).unwrap();
    assert!(ready.is_empty());
    cursor.take(part(None, 1, true), &mut ready).unwrap();
    let Some(Watched::Snapshot(snapshot)) = ready.pop_front() else { panic!("no snapshot") };
    let positions: Vec<u32> = snapshot.entries.iter().map(|entry| entry.position.get()).collect();
    assert_eq!(positions, [0, 1]);
    assert_eq!(cursor.request(InstanceId::new(1)).from_phase, 5);
    cursor.take(batch(&[(8, joined()), (9, joined())]), &mut ready).unwrap();
    assert_eq!(indices(&ready), [9]);
}
