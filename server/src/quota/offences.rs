//! The instances where offences of a principal are filed that name no instance.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::types::ProcessId;

/// The number of instances of a principal that are remembered.
const MAX_RECENT: usize = 4;

/// An instance, as an account knows it: the record of the instance takes the offence (B2).
pub(crate) trait OffenceSink: Debug + Send + Sync {
    /// Files an offence of a process of the instance.
    fn file_offence(&self, offence: Offence);
}

/// The instances where a principal was active last, the latest at the end, each with its process there.
#[derive(Debug, Default)]
pub(super) struct RecentInstances(Mutex<VecDeque<RecentInstance>>);

type RecentInstance = (Weak<dyn OffenceSink>, ProcessId);

impl RecentInstances {
    /// Remembers that the principal is active at this instance, as this process.
    pub(super) fn remember<I: OffenceSink + 'static>(&self, instance: &Arc<I>, process: ProcessId) {
        let mut recent = self.lock();
        let is_same = |(known, _): &RecentInstance| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(instance));
        match recent.iter().position(is_same) {
            Some(last) if last + 1 == recent.len() => return,
            Some(earlier) => drop(recent.remove(earlier)),
            None if recent.len() >= MAX_RECENT => drop(recent.pop_front()),
            None => {}
        }
        let instance: Weak<I> = Arc::downgrade(instance);
        recent.push_back((instance, process));
    }

    /// Files an offence at all of them (B2).
    pub(super) fn file_offence(&self, kind: OffenceKind, detail: &str) {
        // The lock is not held while an instance takes its own.
        let recent: Vec<_> = self.lock().iter().cloned().collect();
        for (instance, process) in recent {
            if let Some(instance) = instance.upgrade() {
                let detail = detail.to_owned();
                instance.file_offence(Offence { process, kind, number: None, phase: None, detail });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RecentInstance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
