//! A process that can be stopped: its tasks are not polled meanwhile, and time goes on.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::task::AbortHandle;

#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: bool,
    wakers: Vec<Waker>,
    tasks: Vec<AbortHandle>,
}

struct Stoppable<F> {
    process: Process,
    future: Pin<Box<F>>,
}

impl Process {
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(Stoppable { process: self.clone(), future: Box::pin(future) });
        self.shared.lock().unwrap().tasks.push(task.abort_handle());
    }

    pub(super) fn stop(&self) {
        self.shared.lock().unwrap().stopped = true;
    }

    pub(super) fn go_on(&self) {
        let mut shared = self.shared.lock().unwrap();
        shared.stopped = false;
        shared.wakers.drain(..).for_each(Waker::wake);
    }

    pub(super) fn kill(&self) {
        let tasks = std::mem::take(&mut self.shared.lock().unwrap().tasks);
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl<F: Future<Output = ()>> Future for Stoppable<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.process.shared.lock().unwrap();
        if shared.stopped {
            shared.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        drop(shared);
        self.future.as_mut().poll(context)
    }
}
