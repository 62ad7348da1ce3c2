//! Appends and reads of a log, checked by stateright's tester of linearizability.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};
use stickycas_log::{Delivered, Place, Reader};
use tokio::task::JoinSet;

use crate::kills::Server;
use crate::support::{attack, coordinate, member, read_to, series, spec};

/// A list that grows.
#[derive(Clone, Debug, Default)]
struct List(Vec<String>);

#[derive(Clone, Debug)]
enum Op {
    Append(String),
    Read,
}

#[derive(Clone, Debug, PartialEq)]
enum Ret {
    /// At this index.
    Appended(usize),
    Read(Vec<String>),
}

impl SequentialSpec for List {
    type Op = Op;
    type Ret = Ret;

    fn invoke(&mut self, op: &Op) -> Ret {
        match op {
            Op::Append(value) => {
                self.0.push(value.clone());
                Ret::Appended(self.0.len() - 1)
            }
            Op::Read => Ret::Read(self.0.clone()),
        }
    }
}

/// What a thread began, or what it was answered.
#[derive(Clone, Debug)]
enum Seen {
    Invoked(Op),
    Appended(Place),
    Read(Vec<String>),
}

/// In real-time order, with the number of the thread.
type History = Arc<Mutex<Vec<(u32, Seen)>>>;

fn is_linearizable(history: &[(u32, Seen)], log: &[Delivered]) -> bool {
    let places: BTreeMap<Place, usize> = correct(log).map(|it| it.place).zip(0..).collect();
    let mut tester = LinearizabilityTester::new(List::default());
    for (thread, seen) in history {
        match seen {
            Seen::Invoked(op) => tester.on_invoke(*thread, op.clone()),
            Seen::Appended(place) => tester.on_return(*thread, Ret::Appended(places[place])),
            Seen::Read(values) => tester.on_return(*thread, Ret::Read(values.clone())),
        }
        .unwrap();
    }
    tester.is_consistent()
}

/// What Byzantine members append is in the log, too; the object is the list of the rest.
fn correct(log: &[Delivered]) -> impl Iterator<Item = &Delivered> {
    log.iter().filter(|it| it.value.starts_with(b"value "))
}

fn texts(log: &[Delivered]) -> Vec<String> {
    correct(log).map(|it| String::from_utf8(it.value.clone()).unwrap()).collect()
}

/// After so many records of the history the server is killed, if it is.
const KILLS: [usize; 3] = [10, 30, 50];

#[tokio::test(flavor = "multi_thread")]
async fn appends_and_reads_are_linearizable() {
    for kills in [[].as_slice(), &KILLS] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(folder.path(), "127.0.0.1:0");
        let address = server.address.clone();
        let mut tasks = JoinSet::new();
        coordinate(&mut tasks, &address, spec(4, 2));
        attack(&mut tasks, &address, 4);
        let (history, mut threads) = (History::default(), JoinSet::new());
        let mut last = Vec::new();
        for number in 1..=3 {
            let (member, _) = member(&mut tasks, &address, number).await;
            for thread in [number, number + 3] {
                let (member, history, address) = (member.clone(), history.clone(), address.clone());
                threads.spawn(async move {
                    let mut place = None;
                    let mut reader = Reader::new(&series(&address, &format!("m{number}")), 1);
                    let mut values = Vec::new();
                    for step in 0..6 {
                        let see = |seen| history.lock().unwrap().push((thread, seen));
                        if step % 2 == 0 {
                            let text = format!("value {step} of {thread}");
                            see(Seen::Invoked(Op::Append(text.clone())));
                            let appended = member.append(text).await.unwrap();
                            see(Seen::Appended(appended));
                            place = Some(appended);
                        } else {
                            see(Seen::Invoked(Op::Read));
                            values.extend(reader.read().await.unwrap());
                            see(Seen::Read(texts(&values)));
                        }
                    }
                    place
                });
            }
        }
        for records in kills {
            while history.lock().unwrap().len() < *records {
                tasks.try_join_next().map(Result::unwrap);
                last.extend(threads.try_join_next().and_then(Result::unwrap));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            server.kill(folder.path());
        }
        last.extend(threads.join_all().await.into_iter().flatten());
        let last = *last.iter().max().unwrap();
        let log = read_to(&mut Reader::new(&series(&address, "m1"), 1), last).await.unwrap();
        let history = history.lock().unwrap().clone();
        assert!(is_linearizable(&history, &log), "{history:?}");
        // The checker sees a read that lacks what was answered before it.
        let stale = [
            (1, Seen::Invoked(Op::Append("value 0 of 1".to_owned()))),
            (1, Seen::Appended(correct(&log).next().unwrap().place)),
            (2, Seen::Invoked(Op::Read)),
            (2, Seen::Read(Vec::new())),
        ];
        assert!(!is_linearizable(&stale, &log));
    }
}
