//! The runtimes of a cluster, which take turns in one thread: one of the clients and of etcd, and one for
//! each server.
//!
//! Each has a paused clock of its own and is driven for a short while, then the next. So a server is stopped
//! as SIGSTOP stops a process: it is driven no more, while time goes on for the others, its connections
//! accept data, and etcd executes its requests; when it goes on, its clock has jumped and its timers are
//! late. A server is killed by the end of its runtime: all its tasks end where they wait.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep_until};

use crate::os;

/// How long each runtime is driven before the next one: whole milliseconds, which all clocks count.
const TURN: Duration = Duration::from_millis(4);
/// Tasks that are run between two looks at timers and at woken tasks. Few, so that a server can be stopped
/// anywhere among the tasks that follow one message.
const TASKS_BETWEEN: u32 = 3;

/// An order to a server.
enum Order {
    /// It begins to run this.
    Start(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// It is gone, after so many turns of its tasks; this is called then.
    Kill(u64, Box<dyn FnOnce() + Send>),
    /// It is stopped, after so many turns of its tasks.
    Pause(u64),
    GoOn,
}

/// The queue of orders from the clients' runtime to servers. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Orders(Arc<Mutex<Vec<Given>>>);

/// An order, its server, and the sender that reports its execution.
type Given = (usize, Order, oneshot::Sender<()>);

impl Orders {
    fn orders(&self) -> MutexGuard<'_, Vec<Given>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when it is done.
    fn give(&self, server: usize, order: Order) -> impl Future<Output = ()> + Send + use<> {
        let (done, is_done) = oneshot::channel();
        self.orders().push((server, order, done));
        // Without a sender the run is over.
        async { drop(is_done.await) }
    }

    /// Starts a server, which must not run: a runtime of its own runs this.
    pub(super) fn start(&self, server: usize, serve: impl Future<Output = ()> + Send + 'static) {
        drop(self.give(server, Order::Start(Box::pin(serve))));
    }

    /// Ends the runtime of a server, after so many turns of its tasks, and calls `then`.
    pub(super) async fn kill(&self, server: usize, turns: u64, then: impl FnOnce() + Send + 'static) {
        self.give(server, Order::Kill(turns, Box::new(then))).await;
    }

    /// Stops a server, after so many turns of its tasks.
    pub(super) async fn pause(&self, server: usize, turns: u64) {
        self.give(server, Order::Pause(turns)).await;
    }

    /// A server that was stopped goes on: all the time has passed for it at once.
    pub(super) async fn go_on(&self, server: usize) {
        self.give(server, Order::GoOn).await;
    }
}

/// A server, if it runs.
#[derive(Default)]
struct Host {
    runtime: Option<Runtime>,
    is_paused: bool,
}

/// Runs what the clients do to its end, with so many servers. Nothing else may run in this process.
pub(super) fn run<T>(servers: usize, orders: &Orders, clients: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let mut now = runtime.block_on(async { Instant::now() });
    let mut hosts: Vec<Host> = (0..servers).map(|_| Host::default()).collect();
    let mut clients = pin!(clients);
    loop {
        now += TURN;
        let played = runtime.block_on(async {
            os::follow_runtime();
            tokio::select! {
                biased;
                played = &mut clients => Some(played),
                () = sleep_until(now) => None,
            }
        });
        if let Some(played) = played {
            return Ok(played);
        }
        let due = std::mem::take(&mut *orders.orders());
        for (server, order, done) in due {
            hosts[server].carry_out(order, now)?;
            // The receiver may be gone.
            let _ = done.send(());
        }
        hosts.iter().for_each(|host| host.run_until(now));
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .event_interval(TASKS_BETWEEN)
        .on_thread_unpark(os::follow_runtime)
        .build()
}

impl Host {
    fn carry_out(&mut self, order: Order, now: Instant) -> anyhow::Result<()> {
        match order {
            Order::Start(serve) => {
                // Its clock shows the time of all clocks.
                os::set(now);
                let runtime = runtime()?;
                runtime.spawn(serve);
                *self = Self { runtime: Some(runtime), is_paused: false };
            }
            Order::Kill(turns, then) => {
                self.jump(now, turns);
                then();
                self.runtime = None;
            }
            Order::Pause(turns) => {
                self.jump(now, turns);
                self.is_paused = true;
            }
            Order::GoOn => {
                self.is_paused = false;
                self.jump(now, 0);
            }
        }
        Ok(())
    }

    fn run_until(&self, now: Instant) {
        if let Some(runtime) = self.runtime.as_ref().filter(|_| !self.is_paused) {
            runtime.block_on(async {
                os::follow_runtime();
                sleep_until(now).await;
            });
        }
    }

    /// Its clock jumps, and so many turns of its tasks pass.
    fn jump(&self, now: Instant, turns: u64) {
        if let Some(runtime) = self.runtime.as_ref().filter(|_| !self.is_paused) {
            os::set(now);
            runtime.block_on(async {
                advance(now.saturating_duration_since(Instant::now())).await;
                for _ in 0..turns {
                    yield_now().await;
                }
            });
        }
    }
}
