//! One principal: its shares of what is bounded, its counts, and where it was seen at work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::types::ProcessId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tonic::Status;

use super::rate::Bucket;
use super::{AccountContext, Counter, Counts};
use crate::auth::Principal;
use crate::instances::Instance;

/// What a unary call costs, where a frame on Attach costs 1: about as many frames are handled in the time that
/// the server needs for one call, so that neither is the cheaper way to wear it out.
pub(crate) const CALL: u64 = 10;

/// Instances of a principal that are remembered, for what it does without naming any.
const REMEMBERED: usize = 4;

/// What each principal has a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    Connections,
    Calls,
    AttachStreams,
    WatchStreams,
}

const QUOTAS: usize = Quota::WatchStreams as usize + 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Account {
    principal: Principal,
    context: Arc<AccountContext>,
    bucket: Bucket,
    /// What of each kind of offence may still be filed.
    offences: [Bucket; OffenceKind::ALL.len()],
    taken: [AtomicU32; QUOTAS],
    counts: Counts,
    /// The instances that it acted at last, the latest last, and as which process.
    acted: Mutex<VecDeque<(Weak<Instance>, ProcessId)>>,
}

/// A place that a principal takes of its share; free again when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    account: Arc<Account>,
    share: Quota,
}

impl Account {
    pub(super) fn new(principal: Principal, context: Arc<AccountContext>) -> Self {
        Self {
            principal,
            context,
            bucket: Bucket::default(),
            offences: Default::default(),
            taken: Default::default(),
            counts: Counts::default(),
            acted: Mutex::default(),
        }
    }

    /// Whose it is.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether it could be opened anew and nobody would notice.
    pub(super) fn is_idle(&self) -> bool {
        self.bucket.is_full(self.context.now())
    }

    /// The principal was refused something.
    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        self.counts.count_refusal(reason);
        self.context.all.count_refusal(reason);
    }

    /// A stream of the principal was ended so.
    pub(crate) fn count_status(&self, status: &Status) {
        if let Some(refused) = RpcRefusal::from_status(status) {
            self.count_refusal(refused.reason);
        }
    }

    /// The principal brought something about.
    pub(crate) fn count(&self, counter: Counter) {
        self.counts.count(counter);
        self.context.all.count(counter);
    }

    /// A place of this share.
    pub(crate) fn take(self: &Arc<Self>, share: Quota) -> Result<Permit, RpcRefusal> {
        let limit = share.limit(&self.context);
        let taken = &self.taken[share as usize];
        let free = taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < limit).then_some(taken + 1));
        match free {
            Ok(_) => Ok(Permit { account: self.clone(), share }),
            Err(_) => {
                let (reason, what) = share.refusal();
                let why = format!("you have {limit} {what}, as many as you may");
                Err(RpcRefusal::new(reason, why).with_retry_after(self.context.limits.retry_after))
            }
        }
    }

    /// Charges frames of Attach that came at this moment; how many of them are within the rate.
    pub(crate) fn charge_frames(&self, frames: usize, at: Instant) -> usize {
        let frames = u64::try_from(frames).unwrap_or(u64::MAX);
        let granted = self.bucket.take(self.context.time(at), frames, 1, self.context.rate);
        usize::try_from(granted).unwrap_or(usize::MAX)
    }

    /// Charges a call.
    pub(crate) fn charge_call(&self) -> Result<(), RpcRefusal> {
        match self.bucket.take(self.context.now(), 1, CALL, self.context.rate) {
            0 => Err(self.rate_exceeded(CALL)),
            _ => Ok(()),
        }
    }

    /// The refusal of what is above the rate.
    pub(crate) fn rate_exceeded(&self, cost: u64) -> RpcRefusal {
        let limit = self.context.limits.requests_per_second;
        let why = format!("you may send {limit} frames in a second, a unary call counting as {CALL}");
        let wait = self.bucket.wait(self.context.now(), cost, self.context.rate);
        RpcRefusal::new(RefusalReason::RateExceeded, why).with_retry_after(wait.max(LEAST_WAIT))
    }

    /// The principal acts at this instance.
    pub(crate) fn remember_instance(&self, instance: &Arc<Instance>, process: ProcessId) {
        let mut acted = self.acted();
        let here = |(known, _): &(Weak<Instance>, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(instance));
        match acted.iter().position(here) {
            Some(last) if last + 1 == acted.len() => return,
            Some(earlier) => drop(acted.remove(earlier)),
            None if acted.len() >= REMEMBERED => drop(acted.pop_front()),
            None => {}
        }
        acted.push_back((Arc::downgrade(instance), process));
    }

    /// Files an offence that names no instance with those where the principal was seen at work last (B2). Who
    /// was seen at none has no name there: it is only counted. So is what comes too often.
    pub(crate) fn file_offence(&self, kind: OffenceKind, detail: &str) {
        if !self.may_file_offence(kind) {
            return;
        }
        let acted: Vec<_> = self.acted().iter().cloned().collect();
        for (instance, process) in acted {
            if let Some(instance) = instance.upgrade() {
                instance.file_offence(Offence {
                    process,
                    kind,
                    number: None,
                    phase: None,
                    detail: detail.to_owned(),
                });
            }
        }
    }

    /// Whether one more offence of this kind is to be filed, and not only counted.
    pub(crate) fn may_file_offence(&self, kind: OffenceKind) -> bool {
        self.offences[kind as usize].take(self.context.now(), 1, 1, self.context.offence_rate) > 0
    }

    fn acted(&self) -> MutexGuard<'_, VecDeque<(Weak<Instance>, ProcessId)>> {
        self.acted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No client is asked to come back sooner.
const LEAST_WAIT: Duration = Duration::from_millis(1);

impl Quota {
    fn limit(self, context: &AccountContext) -> u32 {
        let limits = &context.limits;
        match self {
            Self::Connections => limits.connections_per_principal,
            Self::Calls => limits.calls_per_principal,
            Self::AttachStreams => limits.attach_streams_per_principal,
            Self::WatchStreams => limits.watch_streams_per_principal,
        }
    }

    fn refusal(self) -> (RefusalReason, &'static str) {
        match self {
            Self::Connections => (RefusalReason::TooManyConnections, "connections"),
            Self::Calls => (RefusalReason::TooManyStreams, "unanswered calls"),
            Self::AttachStreams => (RefusalReason::TooManyStreams, "Attach streams"),
            Self::WatchStreams => (RefusalReason::TooManyStreams, "Watch streams"),
        }
    }
}

impl Permit {
    /// Whose it is.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.account.taken[self.share as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
