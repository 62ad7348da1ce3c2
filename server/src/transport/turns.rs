//! Turns of tasks for which the server works too much.
//!
//! A runtime serves all tasks that are ready one after the other, and those of many greedy clients are always ready. A correct
//! client whose message has come waits then for a turn of each of them, again for each of its messages. So each poll of
//! a connection's task, and of its calls, is timed and charged to the account of its principal. A task of an account
//! that has taken more than its share waits in a queue before it is polled. From there a few are taken at a time, and the next
//! ones only when the runtime has come to other tasks that were ready, up to 61 of them, and the system to other programs.
//! Those of accounts that have taken far more come behind them, one at a time, and only when all others were served, with
//! what these sent meanwhile; or when they have waited for [`LONGEST_PAUSE`]. So a correct client that comes above its
//! share for a while is not among those that never have enough.
//! Accounts take turns, one task of each in a round, so that greedy clients share alike what is left, however many
//! connections and calls they have. Time that nobody else wants they get whole, and while nobody else is there, they do
//! not wait at all: a busy server without attackers pays for the measuring alone.
//!
//! Connections that belong to no principal yet, in their handshake or before their first call, are charged to the account of
//! all clients without identity. They take their turns by address: a flood of them waits for itself, and a newcomer from
//! elsewhere has its turn in the next round.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::ready;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use super::work_time;
use crate::quota::Rounds;

/// Turns that are given at a time while nobody else is there.
const MOST_AT_A_TIME: usize = 16;
/// How long a turn waits at most for others that are served one after the other: who is greedy goes on, slowly.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// Turns of tasks that are a little above their share, one after the other, before one of the others has its turn too.
const IN_A_ROW: usize = 8;
/// How long others count as being there after they were served.
const LATELY: Duration = Duration::from_millis(100);

/// See the module. Clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: Arc<Queue>,
    /// One for each thread of the runtime.
    _givers: Vec<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    came: Notify,
    began: Instant,
    /// When a client was served last that has not taken more than its share, see [`Self::millis`].
    others_at: AtomicU64,
    /// Whether one was served since a giver has looked.
    other_served: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The round under way.
    round: u64,
    /// The number of the next task.
    next: u64,
    /// Those of accounts that have taken more than their share.
    more: BinaryHeap<Reverse<Task>>,
    /// Those of accounts that have taken far more.
    far_more: BinaryHeap<Reverse<Task>>,
    /// How many of the first kind had their turn since one of the second had.
    in_a_row: usize,
}

/// A task that waits for its turn.
#[derive(Debug)]
struct Task {
    /// The round; in the order of their coming where that is alike.
    rank: (u64, u64),
    turn: oneshot::Sender<()>,
}

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Task {}

impl PartialOrd for Task {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Task {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl Queue {
    fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            came: Notify::new(),
            began: Instant::now(),
            others_at: AtomicU64::new(0),
            other_served: AtomicBool::new(false),
        }
    }

    /// Completes when it is the turn of a task of whoever has these rounds, and has taken more than its share or
    /// far more.
    fn wait(&self, rounds: &Rounds, far_more: bool) -> oneshot::Receiver<()> {
        let (turn, waiting) = oneshot::channel();
        let mut queue = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let rank = (rounds.take(queue.round), queue.next);
        queue.next += 1;
        let tasks = if far_more { &mut queue.far_more } else { &mut queue.more };
        tasks.push(Reverse(Task { rank, turn }));
        drop(queue);
        self.came.notify_one();
        waiting
    }

    /// A task had its turn at once, of a client that has not taken more than its share.
    fn other_came(&self) {
        let now = self.millis();
        if self.others_at.load(Relaxed) != now {
            self.others_at.store(now, Relaxed);
        }
        if !self.other_served.load(Relaxed) {
            self.other_served.store(true, Relaxed);
        }
    }

    /// Whether such a client was there a moment ago, who would wait for the tasks that are served now.
    fn others_came_lately(&self) -> bool {
        let since = self.millis().saturating_sub(self.others_at.load(Relaxed));
        u128::from(since) < LATELY.as_millis()
    }

    /// Milliseconds since the queue began, from a large number on: none has come yet.
    fn millis(&self) -> u64 {
        let since = self.began.elapsed().as_millis();
        u64::try_from(since).unwrap_or(u64::MAX / 2).saturating_add(1 << 20)
    }

    /// The next task.
    fn first(&self) -> Option<oneshot::Sender<()>> {
        let mut queue = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let comes_late = queue.in_a_row >= IN_A_ROW && !queue.far_more.is_empty();
        let Reverse(task) = if queue.more.is_empty() || comes_late {
            queue.in_a_row = 0;
            queue.far_more.pop()?
        } else {
            queue.in_a_row += 1;
            queue.more.pop()?
        };
        queue.round = queue.round.max(task.rank.0);
        Some(task.turn)
    }

    /// Whether one waits that is not of an account that has taken far more.
    fn more_waits(&self) -> bool {
        !self.waiting.lock().unwrap_or_else(PoisonError::into_inner).more.is_empty()
    }

    /// Gives turns, one after the other.
    async fn give(&self) {
        let mut given = 0;
        loop {
            let Some(turn) = self.first() else {
                given = 0;
                self.came.notified().await;
                continue;
            };
            // One that was dropped has no use for it.
            given += usize::from(turn.send(()).is_ok());
            let at_a_time = if !self.others_came_lately() {
                MOST_AT_A_TIME
            } else if self.more_waits() {
                IN_A_ROW
            } else {
                1
            };
            if given >= at_a_time {
                self.let_others_go_first().await;
                given = 0;
            }
        }
    }

    /// Completes when the runtime has come to other tasks, and if only those wait that have taken far more, when no others
    /// are served any more, or after the longest pause.
    async fn let_others_go_first(&self) {
        let began = Instant::now();
        loop {
            self.other_served.store(false, Relaxed);
            // Other programs of this machine too, the clients on it among them.
            std::thread::yield_now();
            // The runtime comes back here when it has come to the others that are ready, up to 61 of them.
            tokio::task::yield_now().await;
            if self.more_waits() || !self.other_served.load(Relaxed) || began.elapsed() >= LONGEST_PAUSE {
                return;
            }
        }
    }
}

impl Turns {
    /// Must be called inside the runtime whose tasks take turns.
    pub(super) fn new() -> Self {
        let queue = Arc::new(Queue::new());
        let give = |_| {
            let queue = queue.clone();
            AbortOnDropHandle::new(tokio::spawn(async move { queue.give().await }))
        };
        let givers = (0..Handle::current().metrics().num_workers()).map(give).collect();
        Self(Arc::new(Inner { queue, _givers: givers }))
    }

    /// This future, which works for the client of this connection.
    pub(super) async fn of<F: Future>(self, connection: Connection, future: F) -> F::Output {
        let mut future = pin!(future);
        let (mut turn, queue) = (None, &self.0.queue);
        poll_fn(move |cx| {
            if turn.is_none() {
                let account = connection.charged_account();
                if !account.is_greedy() {
                    queue.other_came();
                } else if queue.others_came_lately() {
                    turn = Some(queue.wait(connection.rounds(), account.is_far_above_its_share()));
                }
            }
            if let Some(waiting) = &mut turn {
                // Without a giver the server ends.
                let _ = ready!(Pin::new(waiting).poll(cx));
                turn = None;
            }
            let (polled, took) = work_time::timed(|| future.as_mut().poll(cx));
            connection.charged_account().charge_processor(took);
            polled
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::{LOCAL, UnclaimedConnections};
    use super::*;
    use crate::auth::Principal;
    use crate::limits::Limits;
    use crate::quota::Principals;

    const SECOND: Duration = Duration::from_secs(1);

    /// Polls of tasks, in order.
    type Polled = Arc<Mutex<Vec<&'static str>>>;

    /// A task of this principal that is always ready, so many times.
    async fn busy(turns: Turns, connection: Connection, name: &'static str, times: usize, polled: Polled) {
        let mut left = times;
        let work = poll_fn(move |cx| {
            polled.lock().unwrap().push(name);
            left -= 1;
            if left == 0 {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        });
        turns.of(connection, work).await;
    }

    /// A connection of this principal, which has taken this much time.
    fn connection(principals: &Principals, name: &str, took: Duration) -> Connection {
        let limits = Limits::default();
        let connection = UnclaimedConnections::new(&limits, principals.clone()).register(LOCAL);
        let account = principals.account(&Principal::new(name)).unwrap();
        connection.claim(&account).unwrap();
        account.charge_processor(took);
        connection
    }

    #[tokio::test]
    async fn greedy_tasks_have_one_turn_while_others_have_many() {
        let principals = Principals::new(&Limits::default());
        let (turns, polled) = (Turns::new(), Polled::default());
        let mut tasks = Vec::new();
        for number in 0..8 {
            let greedy = connection(&principals, &format!("greedy-{number}"), SECOND);
            tasks.push(tokio::spawn(busy(turns.clone(), greedy, "greedy", 100, polled.clone())));
        }
        let modest = connection(&principals, "modest", Duration::ZERO);
        let modest = tokio::spawn(busy(turns.clone(), modest, "modest", 100, polled.clone()));
        modest.await.unwrap();
        let before = polled.lock().unwrap().iter().filter(|name| **name == "greedy").count();
        assert!((1..=110).contains(&before), "one of eight in each round, and not all of them: {before}");
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(polled.lock().unwrap().len(), 900, "all come to their end");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn on_several_threads_every_task_comes_to_its_end() {
        let principals = Principals::new(&Limits::default());
        let (turns, polled) = (Turns::new(), Polled::default());
        let names = ["a", "b", "c", "modest"];
        let tasks = (0..64).map(|number| {
            let name = names[number % names.len()];
            let took = if name == "modest" { Duration::ZERO } else { SECOND };
            let connection = connection(&principals, name, took);
            tokio::spawn(busy(turns.clone(), connection, name, 500, polled.clone()))
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(polled.lock().unwrap().len(), 64 * 500);
    }

    #[tokio::test]
    async fn accounts_take_turns_however_many_tasks_they_have() {
        let [one, other] = [Rounds::default(), Rounds::default()];
        let queue = Queue::new();
        drop(queue.wait(&one, false));
        assert!(queue.first().unwrap().send(()).is_err(), "it is gone");
        let [mut first, mut third, mut fourth] = [(); 3].map(|()| queue.wait(&one, false));
        let mut second = queue.wait(&other, false);
        // The round of the task that is gone is over for its account only.
        for waiting in [&mut second, &mut first, &mut third, &mut fourth] {
            assert!(waiting.try_recv().is_err());
            queue.first().unwrap().send(()).unwrap();
            waiting.try_recv().unwrap();
        }
        assert!(queue.first().is_none());
    }

    #[tokio::test]
    async fn who_has_taken_far_more_comes_behind_and_comes() {
        let [far, little] = [Rounds::default(), Rounds::default()];
        let queue = Queue::new();
        let mut behind = queue.wait(&far, true);
        let mut before: Vec<_> = (0..2 * IN_A_ROW).map(|_| queue.wait(&little, false)).collect();
        assert!(queue.more_waits());
        for (given, task) in before.iter_mut().enumerate() {
            if given == IN_A_ROW {
                queue.first().unwrap().send(()).unwrap();
                behind.try_recv().unwrap();
            }
            queue.first().unwrap().send(()).unwrap();
            task.try_recv().unwrap();
        }
        assert!(queue.first().is_none() && !queue.more_waits());
    }

    #[tokio::test]
    async fn whoever_is_within_its_share_waits_for_no_turn() {
        let principals = Principals::new(&Limits::default());
        let modest = connection(&principals, "modest", Duration::from_micros(900));
        let turns = Turns::new();
        let mut task = pin!(turns.of(modest, std::future::ready(7)));
        let first = poll_fn(|cx| std::task::Poll::Ready(task.as_mut().poll(cx)));
        assert_eq!(first.await, std::task::Poll::Ready(7));
    }
}
