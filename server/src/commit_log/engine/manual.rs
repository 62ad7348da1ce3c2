//! An engine for tests: it tells the outcome of a write when the test says so.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex};

use super::{Done, Engine, EngineError, Outcome, StoreUsage, Stored, WriteBatch};

/// See the module. It keeps nothing.
#[derive(Default)]
pub(crate) struct ManualEngine {
    depth: usize,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    written: VecDeque<(WriteBatch, Done)>,
    /// Whether writes are committed at once.
    commits: bool,
}

impl fmt::Debug for ManualEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualEngine").finish_non_exhaustive()
    }
}

impl Engine for ManualEngine {
    fn depth(&self) -> usize {
        self.depth
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        let mut state = self.state.lock().unwrap();
        if state.commits {
            drop(state);
            return done(Outcome::Committed);
        }
        state.written.push_back((batch, done));
        drop(state);
        self.arrived.notify_all();
    }

    fn read(&self, _: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        Ok(())
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        Ok(Vec::new())
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }
}

impl ManualEngine {
    /// An engine that commits nothing by itself.
    pub(crate) fn new(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Commits waiting writes and all later ones at once; or does not.
    pub(crate) fn set_commits(&self, commits: bool) {
        self.state.lock().unwrap().commits = commits;
        while commits && let Some((_, done)) = self.take() {
            done(Outcome::Committed);
        }
    }

    /// The write that came first and is not resolved. Waits for one.
    pub(crate) fn next(&self) -> (WriteBatch, Done) {
        self.wait();
        self.take().expect("it is there, and only tests take it")
    }

    /// Waits until a write has come that is not resolved.
    pub(crate) fn wait(&self) {
        let state = self.state.lock().unwrap();
        drop(self.arrived.wait_while(state, |state| state.written.is_empty()).unwrap());
    }

    /// The write that came first and is not resolved, if there is one.
    pub(crate) fn take(&self) -> Option<(WriteBatch, Done)> {
        self.state.lock().unwrap().written.pop_front()
    }

    /// Whether every write that came is resolved.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().unwrap().written.is_empty()
    }
}
