//! Turns of tasks for which the server works too much.
//!
//! A runtime serves all tasks that are ready one after the other, and those of many greedy clients are always
//! ready. A correct client whose message has come waits then for a turn of each of them, again for each of
//! its messages. So each poll of a connection's task, and of its calls, is timed and charged to the account
//! of its principal. Between two passes of the runtime, in which it comes to other tasks that are ready, only
//! so many polls are for accounts that have taken more than their share. While there are such turns they cost
//! next to nothing; a task that comes later waits in a queue, and the next pass gives turns to the first of
//! it. While others are served beside accounts that have taken far more, the turns of a pass are few; those
//! of these accounts come behind, one at a time, and only when all others were served, with what these sent
//! meanwhile; or when they have waited for [`LONGEST_PAUSE`]. So correct clients that are as busy as each
//! other wait for nothing, though some are just above their share, and one that comes above it for a while is
//! not among those that never have enough. Accounts take turns, one task of each in a round, so that greedy
//! clients share alike what is left, however many connections and calls they have. They get all time that no
//! other task wants.
//!
//! Connections that belong to no principal yet, in their handshake or before their first call, are charged to
//! the account of all clients without identity. They take their turns by address: a flood of them waits for
//! itself, and a newcomer from elsewhere has its turn in the next round.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::connection::{Connection, OpenCall};
use super::work_time;
use crate::poll_clock;
use crate::quota::Rounds;

/// Turns of a pass while nobody has to be protected.
const TURNS_ALONE: usize = 128;
/// Turns of a pass while others are to be protected; and of tasks that are a little above their share, one
/// after the other, before one of those far above it has its turn too.
const IN_A_ROW: usize = 8;
/// The longest wait of a turn for others that are served one after the other: a greedy account goes on,
/// slowly.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// The time for which others are protected after they were served.
const LATELY: Duration = Duration::from_millis(100);

/// See the module. Clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct FairQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    queue: Arc<Queue>,
    /// One for each thread of the runtime.
    _givers: Vec<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    /// Turns that are left of this pass. 0 while a task waits.
    left: AtomicUsize,
    waiting: Mutex<Waiting>,
    /// Few turns are left, or a task waits for one.
    came: Notify,
    /// Whether a client that has not taken far more than its share has come since a giver has looked.
    other_came: AtomicBool,
    /// Whether a client that has taken far more has come since then.
    far_more_came: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The round under way.
    round: u64,
    /// The number of the next task.
    next: u64,
    /// Those of accounts that have taken more than their share.
    more: Tasks,
    /// Those of accounts that have taken far more.
    far_more: Tasks,
    /// The number of tasks of the first kind that had their turn since one of the second had.
    in_a_row: usize,
    /// The last moment at which a giver saw that others were served beside clients that have taken far more.
    others_at: Option<Instant>,
}

/// Tasks that wait, by round, and in the order of their coming where that is alike.
type Tasks = BTreeMap<(u64, u64), oneshot::Sender<()>>;

impl Queue {
    fn new() -> Self {
        Self {
            left: AtomicUsize::new(IN_A_ROW),
            waiting: Mutex::default(),
            came: Notify::new(),
            other_came: AtomicBool::new(false),
            far_more_came: AtomicBool::new(false),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a turn of this pass, if one is left, for a task whose account has taken more than its share or
    /// far more.
    fn take(&self, far_more: bool) -> bool {
        if far_more {
            set(&self.far_more_came);
        }
        let left = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        // In time, so that where few tasks are ready the next pass is over before somebody would wait for it.
        if left.is_ok_and(|left| left <= IN_A_ROW / 2 || left == TURNS_ALONE / 2) {
            self.came.notify_one();
        }
        left.is_ok()
    }

    /// Completes when it is the turn of a task with these rounds, whose account has taken more than its share
    /// or far more.
    fn wait(&self, rounds: &Rounds, far_more: bool) -> oneshot::Receiver<()> {
        let (turn, receiver) = oneshot::channel();
        let mut waiting = self.waiting();
        let rank = (rounds.take(waiting.round), waiting.next);
        waiting.next += 1;
        let tasks = if far_more { &mut waiting.far_more } else { &mut waiting.more };
        tasks.insert(rank, turn);
        drop(waiting);
        self.came.notify_one();
        receiver
    }

    /// A task has come of a client that has not taken far more than its share.
    fn other_came(&self) {
        set(&self.other_came);
    }

    /// Begins passes when there is work for them, for ever.
    async fn give(&self) {
        loop {
            self.came.notified().await;
            let mut all_served = false;
            while !all_served {
                self.let_others_go_first().await;
                all_served = self.waiting().give(&self.left);
            }
        }
    }

    /// Completes when the runtime has come to other tasks, and if only those wait that have taken far more,
    /// when no others are served any more, or after the longest pause.
    async fn let_others_go_first(&self) {
        let began = Instant::now();
        loop {
            // The runtime comes back here when it has come to the others that are ready, up to 61 of them.
            tokio::task::yield_now().await;
            let others_came = self.other_came.swap(false, Relaxed);
            let far_more_came = self.far_more_came.swap(false, Relaxed);
            let mut waiting = self.waiting();
            if others_came && (far_more_came || !waiting.far_more.is_empty()) {
                waiting.others_at = Some(Instant::now());
            }
            let only_far_more = waiting.more.is_empty() && !waiting.far_more.is_empty();
            if !only_far_more || !others_came || began.elapsed() >= LONGEST_PAUSE {
                return;
            }
        }
    }
}

/// Sets a flag that is mostly set already, which then costs no more than to read it.
fn set(flag: &AtomicBool) {
    if !flag.load(Relaxed) {
        flag.store(true, Relaxed);
    }
}

impl Waiting {
    /// Gives the turns of a pass; those without a waiting task are left for tasks that come. False: there
    /// were too few of them.
    fn give(&mut self, left: &AtomicUsize) -> bool {
        let others_are_there = self.others_at.is_some_and(|at| at.elapsed() < LATELY);
        let mut turns = match (others_are_there, self.more.is_empty() && !self.far_more.is_empty()) {
            (false, _) => TURNS_ALONE,
            (true, false) => IN_A_ROW,
            (true, true) => 1,
        };
        while turns > 0 {
            let Some(turn) = self.first() else {
                left.store(turns, Relaxed);
                return true;
            };
            // One that was dropped has no use for it.
            turns -= usize::from(turn.send(()).is_ok());
        }
        left.store(0, Relaxed);
        false
    }

    /// The next task.
    fn first(&mut self) -> Option<oneshot::Sender<()>> {
        let comes_late = self.in_a_row >= IN_A_ROW && !self.far_more.is_empty();
        let ((round, _), turn) = if self.more.is_empty() || comes_late {
            self.in_a_row = 0;
            self.far_more.pop_first()?
        } else {
            self.in_a_row += 1;
            self.more.pop_first()?
        };
        self.round = self.round.max(round);
        Some(turn)
    }
}

impl FairQueue {
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

    /// Runs this future, which works for the client of this connection, in its turns.
    pub(super) fn run<F: Future>(self, connection: Connection, future: F) -> InTurns<F> {
        InTurns { future, connection, queue: self, turn: None, call: None }
    }

    /// The same of a request that is open until it ends.
    pub(super) fn run_call<F: Future>(self, connection: Connection, future: F) -> InTurns<F> {
        let call = Some(connection.open_call());
        InTurns { call, ..self.run(connection, future) }
    }
}

pin_project! {
    /// A future that works for the client of a connection, in its turns.
    pub(super) struct InTurns<F> {
        #[pin]
        future: F,
        connection: Connection,
        queue: FairQueue,
        turn: Option<oneshot::Receiver<()>>,
        // Told when it is dropped.
        call: Option<OpenCall>,
    }
}

impl<F: Future> Future for InTurns<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let (began, queue) = (Instant::now(), &this.queue.0.queue);
        if this.turn.is_none() {
            let account = this.connection.charged_account();
            let greedy = account.is_greedy(began);
            let far_more = greedy && account.is_far_above_its_share(began);
            if !far_more {
                queue.other_came();
            }
            if greedy && !queue.take(far_more) {
                *this.turn = Some(queue.wait(this.connection.rounds(), far_more));
            }
        }
        if let Some(waiting) = this.turn {
            // Without a giver the server ends.
            let _ = ready!(Pin::new(waiting).poll(cx));
            *this.turn = None;
        }
        let polled = poll_clock::run(began, || this.future.poll(cx));
        let ended = Instant::now();
        let took = work_time::worked(ended.saturating_duration_since(began));
        this.connection.charged_account().charge_processor(ended, took);
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::super::connection::{Connections, LOCAL};
    use super::*;
    use crate::auth::Principal;
    use crate::limits::Limits;
    use crate::quota::Principals;

    const SECOND: Duration = Duration::from_secs(1);

    /// Polls of tasks, in order.
    type Polled = Arc<Mutex<Vec<&'static str>>>;

    /// A task of this principal that is always ready, so many times.
    async fn busy(
        queue: FairQueue,
        connection: Connection,
        name: &'static str,
        times: usize,
        polled: Polled,
    ) {
        let mut left = times;
        let work = poll_fn(move |cx| {
            polled.lock().unwrap().push(name);
            left -= 1;
            if left == 0 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        queue.run(connection, work).await;
    }

    /// A connection of this principal, which has taken this much time.
    fn connection(principals: &Principals, name: &str, took: Duration) -> Connection {
        let limits = Limits::default();
        let connection = Connections::new(&limits, principals.clone()).register(LOCAL);
        let account = principals.account(&Principal::new(name)).unwrap();
        connection.claim(&account).unwrap();
        account.charge_processor(Instant::now(), took);
        connection
    }

    #[tokio::test]
    async fn greedy_tasks_have_one_turn_while_others_have_many() {
        let principals = Principals::new(&Limits::default());
        let (queue, polled) = (FairQueue::new(), Polled::default());
        let mut tasks = Vec::new();
        for number in 0..8 {
            let greedy = connection(&principals, &format!("greedy-{number}"), SECOND);
            tasks.push(tokio::spawn(busy(queue.clone(), greedy, "greedy", 100, polled.clone())));
        }
        let modest = connection(&principals, "modest", Duration::ZERO);
        let modest = tokio::spawn(busy(queue.clone(), modest, "modest", 100, polled.clone()));
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
        let (queue, polled) = (FairQueue::new(), Polled::default());
        let names = ["a", "b", "c", "modest"];
        let tasks = (0..64).map(|number| {
            let name = names[number % names.len()];
            let took = if name == "modest" { Duration::ZERO } else { SECOND };
            let connection = connection(&principals, name, took);
            tokio::spawn(busy(queue.clone(), connection, name, 500, polled.clone()))
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(polled.lock().unwrap().len(), 64 * 500);
    }

    #[tokio::test]
    async fn however_many_are_greedy_few_come_before_a_modest_task() {
        const GREEDY: usize = 500;
        let principals = Principals::new(&Limits::default());
        let (queue, polled) = (FairQueue::new(), Polled::default());
        let tasks: Vec<_> = (0..GREEDY)
            .map(|number| {
                let greedy = connection(&principals, &format!("greedy-{number}"), SECOND);
                tokio::spawn(busy(queue.clone(), greedy, "greedy", 20, polled.clone()))
            })
            .collect();
        // It comes when no other modest one was there for a while, and behind all of them.
        let modest = connection(&principals, "modest", Duration::ZERO);
        tokio::spawn(busy(queue.clone(), modest, "modest", 50, polled.clone())).await.unwrap();
        let polled = polled.lock().unwrap().clone();
        let between = polled.split(|name| *name == "modest").map(<[_]>::len);
        let most = between.max().unwrap();
        assert!((1..=TURNS_ALONE + 2 * IN_A_ROW).contains(&most), "{most}");
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn greedy_tasks_alone_are_served_at_once() {
        let principals = Principals::new(&Limits::default());
        let queue = FairQueue::new();
        for _ in 0..10 {
            for _ in 0..IN_A_ROW {
                let greedy = connection(&principals, "greedy", SECOND);
                let mut task = pin!(queue.clone().run(greedy, std::future::ready(7)));
                let first = poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx)));
                assert_eq!(first.await, Poll::Ready(7));
            }
            // The giver looks, and the runtime comes back to it.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn without_any_far_above_its_share_nobody_waits() {
        /// More than they may take at once, and little more.
        const LITTLE: Duration = Duration::from_millis(5);
        /// The number of them that are ready in a pass of the runtime, more than have turns beside others.
        const BUSY: usize = 2 * IN_A_ROW;
        for (took, waits) in [(LITTLE, false), (SECOND, true)] {
            let principals = Principals::new(&Limits::default());
            let queue = FairQueue::new();
            let mut waited = 0;
            for number in 0..5 * BUSY {
                let connection = connection(&principals, &format!("busy-{number}"), took);
                let modest = self::connection(&principals, "modest", Duration::ZERO);
                queue.clone().run(modest, std::future::ready(7)).await;
                let mut task = pin!(queue.clone().run(connection, std::future::ready(7)));
                let waits = poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx).is_pending())).await;
                // The first pass has few turns.
                waited += usize::from(waits && number > BUSY);
                if number % BUSY == 0 {
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                }
            }
            assert_eq!(waited > 0, waits, "{waited}");
        }
    }

    #[test]
    fn accounts_take_turns_however_many_tasks_they_have() {
        let [one, other] = [Rounds::default(), Rounds::default()];
        let queue = Queue::new();
        let first = || queue.waiting().first();
        drop(queue.wait(&one, false));
        assert!(first().unwrap().send(()).is_err(), "it is gone");
        let [mut one_first, mut third, mut fourth] = [(); 3].map(|()| queue.wait(&one, false));
        let mut second = queue.wait(&other, false);
        // The round of the task that is gone is over for its account only.
        for waiting in [&mut second, &mut one_first, &mut third, &mut fourth] {
            assert!(waiting.try_recv().is_err());
            first().unwrap().send(()).unwrap();
            waiting.try_recv().unwrap();
        }
        assert!(first().is_none());
    }

    #[test]
    fn who_has_taken_far_more_comes_behind_and_comes() {
        let [far, little] = [Rounds::default(), Rounds::default()];
        let queue = Queue::new();
        let first = || queue.waiting().first();
        let mut behind = queue.wait(&far, true);
        let mut before: Vec<_> = (0..2 * IN_A_ROW).map(|_| queue.wait(&little, false)).collect();
        for (given, task) in before.iter_mut().enumerate() {
            if given == IN_A_ROW {
                first().unwrap().send(()).unwrap();
                behind.try_recv().unwrap();
            }
            first().unwrap().send(()).unwrap();
            task.try_recv().unwrap();
        }
        assert!(first().is_none());
    }

    #[tokio::test]
    async fn a_poll_has_one_time() {
        let connection = connection(&Principals::new(&Limits::default()), "modest", Duration::ZERO);
        let times = FairQueue::new().run(connection, async {
            let first = poll_clock::now();
            std::thread::sleep(Duration::from_millis(1));
            (first, poll_clock::now())
        });
        let (first, later) = times.await;
        assert_eq!(first, later);
        assert_ne!(poll_clock::now(), later, "behind it time goes on");
    }

    #[tokio::test]
    async fn whoever_is_within_its_share_waits_for_no_turn() {
        let principals = Principals::new(&Limits::default());
        let modest = connection(&principals, "modest", Duration::from_micros(900));
        let queue = FairQueue::new();
        let mut task = pin!(queue.run(modest, std::future::ready(7)));
        let first = poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx)));
        assert_eq!(first.await, Poll::Ready(7));
    }
}
