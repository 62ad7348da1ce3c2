//! Turns of tasks for which the server works too much.
//!
//! A runtime serves all tasks that are ready one after the other, and those of many greedy clients are always ready. A correct
//! client whose message has come waits then for a turn of each of them, again for each of its messages. So each poll of
//! a connection's task, and of its calls, is timed and charged to the account of its principal. A task of an account
//! that has taken more than its share waits in a queue before it is polled. From there one is taken at a time, and the next
//! one only when the runtime has come to other tasks that were ready, up to 61 of them. Accounts take turns, one task of
//! each in a round, so that greedy clients share alike what is left, however many connections and calls they have. Time that
//! nobody else wants they get whole, and while nobody else is there, they do not wait at all: a busy server without
//! attackers pays for the measuring alone.
//!
//! Connections that belong to no principal yet wait for no turn: one queue for all of them would be what a flood of them
//! fills before a newcomer.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::ready;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use crate::quota::Account;

/// What is charged of a turn at most. A longer one was more likely interrupted by the system, for other programs or for
/// the client itself, than used; and a greedy client has many turns.
const LONGEST: Duration = Duration::from_millis(1);

/// Turns that are given at a time while nobody else is there.
const MOST_AT_A_TIME: usize = 16;
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
}

#[derive(Debug, Default)]
struct Waiting {
    /// The round under way.
    round: u64,
    /// The number of the next task.
    next: u64,
    tasks: BinaryHeap<Reverse<Task>>,
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
        }
    }

    /// Completes when it is the turn of a task of this account.
    fn wait(&self, account: &Account) -> oneshot::Receiver<()> {
        let (turn, waiting) = oneshot::channel();
        let mut queue = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let rank = (account.take_round(queue.round), queue.next);
        queue.next += 1;
        queue.tasks.push(Reverse(Task { rank, turn }));
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

    fn first(&self) -> Option<oneshot::Sender<()>> {
        let mut queue = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Reverse(task) = queue.tasks.pop()?;
        queue.round = queue.round.max(task.rank.0);
        Some(task.turn)
    }

    /// Gives turns, one after the other.
    async fn give(&self) {
        let (mut given, mut at_a_time) = (0, 1);
        loop {
            let Some(turn) = self.first() else {
                self.came.notified().await;
                continue;
            };
            // One that was dropped has no use for it.
            given += usize::from(turn.send(()).is_ok());
            if given >= at_a_time {
                // The runtime comes back here when it has come to all others.
                tokio::task::yield_now().await;
                (given, at_a_time) = (0, if self.others_came_lately() { 1 } else { MOST_AT_A_TIME });
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
                match connection.proven_account().filter(|account| account.is_greedy()) {
                    // While nobody else is there, nobody has to wait.
                    Some(account) => turn = queue.others_came_lately().then(|| queue.wait(account)),
                    None => queue.other_came(),
                }
            }
            if let Some(waiting) = &mut turn {
                // Without a giver the server ends.
                let _ = ready!(Pin::new(waiting).poll(cx));
                turn = None;
            }
            let began = Instant::now();
            let polled = future.as_mut().poll(cx);
            if let Some(account) = connection.proven_account() {
                account.charge_processor(began.elapsed().min(LONGEST));
            }
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

    #[tokio::test]
    async fn accounts_take_turns_however_many_tasks_they_have() {
        let principals = Principals::new(&Limits::default());
        let [one, other] = ["p1", "p2"].map(|name| principals.account(&Principal::new(name)).unwrap());
        let queue = Queue::new();
        drop(queue.wait(&one));
        assert!(queue.first().unwrap().send(()).is_err(), "it is gone");
        let [mut first, mut third, mut fourth] = [(); 3].map(|()| queue.wait(&one));
        let mut second = queue.wait(&other);
        // The round of the task that is gone is over for its account only.
        for waiting in [&mut second, &mut first, &mut third, &mut fourth] {
            assert!(waiting.try_recv().is_err());
            queue.first().unwrap().send(()).unwrap();
            waiting.try_recv().unwrap();
        }
        assert!(queue.first().is_none());
    }

    #[tokio::test]
    async fn whoever_is_within_its_share_waits_for_no_turn() {
        let principals = Principals::new(&Limits::default());
        let modest = connection(&principals, "modest", Duration::from_millis(19));
        let turns = Turns::new();
        let mut task = pin!(turns.of(modest, std::future::ready(7)));
        let first = poll_fn(|cx| std::task::Poll::Ready(task.as_mut().poll(cx)));
        assert_eq!(first.await, std::task::Poll::Ready(7));
    }
}
