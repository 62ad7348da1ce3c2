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
use super::{Counts, House, Incident};
use crate::identity::Principal;
use crate::instances::Instance;

/// What a unary call costs, where a frame on Attach costs 1: about as many frames are handled in the time that
/// the server needs for one call, so that neither is the cheaper way to wear it out.
pub(crate) const CALL: u64 = 10;

/// Instances of a principal that are remembered, for what it does without naming any.
const REMEMBERED: usize = 4;

/// What each principal has a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Connections,
    Calls,
    AttachStreams,
    WatchStreams,
}

const SHARES: usize = Share::WatchStreams as usize + 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Account {
    principal: Principal,
    house: Arc<House>,
    bucket: Bucket,
    /// What of each kind of offence may still be filed.
    offences: [Bucket; OffenceKind::ALL.len()],
    taken: [AtomicU32; SHARES],
    counts: Counts,
    /// The instances that it acted at last, the latest last, and as which process.
    acted: Mutex<VecDeque<(Weak<Instance>, ProcessId)>>,
}

/// A place that a principal takes of its share; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    account: Arc<Account>,
    share: Share,
}

impl Account {
    pub(super) fn new(principal: Principal, house: Arc<House>) -> Self {
        Self {
            principal,
            house,
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
        self.bucket.is_full(self.house.now())
    }

    /// The principal was refused something.
    pub(crate) fn refuse(&self, reason: RefusalReason) {
        self.counts.refuse(reason);
        self.house.all.refuse(reason);
    }

    /// A stream of the principal was ended so.
    pub(crate) fn refuse_with(&self, status: &Status) {
        if let Some(refused) = RpcRefusal::from_status(status) {
            self.refuse(refused.reason);
        }
    }

    /// The principal brought something about.
    pub(crate) fn note(&self, incident: Incident) {
        self.counts.note(incident);
        self.house.all.note(incident);
    }

    /// A place of this share.
    pub(crate) fn take(self: &Arc<Self>, share: Share) -> Result<Place, RpcRefusal> {
        let limit = share.limit(&self.house);
        let taken = &self.taken[share as usize];
        let free = taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < limit).then_some(taken + 1));
        match free {
            Ok(_) => Ok(Place { account: self.clone(), share }),
            Err(_) => {
                let (reason, what) = share.refusal();
                let why = format!("you have {limit} {what}, as many as you may");
                Err(RpcRefusal::new(reason, why).with_retry_after(self.house.limits.retry_after))
            }
        }
    }

    /// Charges frames of Attach that came at this moment; how many of them are within the rate.
    pub(crate) fn charge_frames(&self, frames: usize, at: Instant) -> usize {
        let frames = u64::try_from(frames).unwrap_or(u64::MAX);
        let granted = self.bucket.take(self.house.time(at), frames, 1, self.house.rate);
        usize::try_from(granted).unwrap_or(usize::MAX)
    }

    /// Charges a call.
    pub(crate) fn charge_call(&self) -> Result<(), RpcRefusal> {
        match self.bucket.take(self.house.now(), 1, CALL, self.house.rate) {
            0 => Err(self.too_fast(CALL)),
            _ => Ok(()),
        }
    }

    /// The refusal of what is above the rate.
    pub(crate) fn too_fast(&self, cost: u64) -> RpcRefusal {
        let limit = self.house.limits.requests_per_second;
        let why = format!("you may send {limit} frames in a second, a unary call counting as {CALL}");
        let wait = self.bucket.wait(self.house.now(), cost, self.house.rate);
        RpcRefusal::new(RefusalReason::RateExceeded, why).with_retry_after(wait.max(LEAST_WAIT))
    }

    /// The principal acts at this instance.
    pub(crate) fn acts_at(&self, instance: &Arc<Instance>, process: ProcessId) {
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
    pub(crate) fn blame(&self, kind: OffenceKind, detail: &str) {
        if !self.may_file(kind) {
            return;
        }
        let acted: Vec<_> = self.acted().iter().cloned().collect();
        for (instance, process) in acted {
            if let Some(instance) = instance.upgrade() {
                instance.accuse(Offence {
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
    pub(crate) fn may_file(&self, kind: OffenceKind) -> bool {
        self.offences[kind as usize].take(self.house.now(), 1, 1, self.house.offence_rate) > 0
    }

    fn acted(&self) -> MutexGuard<'_, VecDeque<(Weak<Instance>, ProcessId)>> {
        self.acted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No client is asked to come back sooner.
const LEAST_WAIT: Duration = Duration::from_millis(1);

impl Share {
    fn limit(self, house: &House) -> u32 {
        let limits = &house.limits;
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

impl Place {
    /// Whose it is.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.account.taken[self.share as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
