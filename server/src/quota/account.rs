//! The account of one principal: its quotas and rates, its counts, and the instances where it was active last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use stickycas_model::history::OffenceKind;
use stickycas_model::types::ProcessId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tonic::Status;

use super::context::{AccountContext, Allowance};
use super::counts::{Counter, Counts};
use super::frames::{ConnectionFrames, FrameBuckets, Overdrawn};
use super::limited::{QUOTAS, Quota};
use super::offences::{OffenceSink, RecentInstances};
use super::rate::{Bucket, CALL_COST};
use crate::auth::Principal;

/// The shortest wait that RetryInfo advises after a rate was exceeded.
const MIN_RETRY_AFTER: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Account {
    /// `None`: the account of all clients without identity.
    principal: Option<Principal>,
    context: Arc<AccountContext>,
    allowance: Allowance,
    requests: Bucket,
    frames: FrameBuckets,
    /// By kind, the offences that may still be filed.
    offences: [Bucket; OffenceKind::ALL.len()],
    /// By quota, the permits that are out.
    permits: [AtomicU32; QUOTAS],
    counts: Counts,
    recent: RecentInstances,
}

/// The use of one of a quota; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    account: Arc<Account>,
    quota: Quota,
}

impl Account {
    pub(super) fn of_principal(principal: Principal, context: Arc<AccountContext>) -> Self {
        let allowance = context.principal;
        Self::new(Some(principal), allowance, context)
    }

    pub(super) fn of_anonymous(context: Arc<AccountContext>) -> Self {
        let allowance = context.anonymous;
        Self::new(None, allowance, context)
    }

    fn new(principal: Option<Principal>, allowance: Allowance, context: Arc<AccountContext>) -> Self {
        Self {
            principal,
            context,
            allowance,
            requests: Bucket::default(),
            frames: FrameBuckets::default(),
            offences: Default::default(),
            permits: Default::default(),
            counts: Counts::default(),
            recent: RecentInstances::default(),
        }
    }

    /// The principal whose account it is. `None`: it is that of all clients without identity.
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// Its name, for people.
    pub(crate) fn name(&self) -> &str {
        self.principal.as_ref().map_or("(clients without identity)", Principal::as_str)
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether a new account would allow the principal no more than this one.
    pub(super) fn is_idle(&self) -> bool {
        let now = self.context.now();
        self.requests.is_full(now) && self.frames.are_full(now)
    }

    /// Counts a refusal.
    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        self.counts.count_refusal(reason);
        self.context.all.count_refusal(reason);
    }

    /// Counts the refusal that a status stands for, if it is one.
    pub(crate) fn count_status(&self, status: &Status) {
        if let Some(refused) = RpcRefusal::from_status(status) {
            self.count_refusal(refused.reason);
        }
    }

    /// Adds one to a counter of the principal.
    pub(crate) fn count(&self, counter: Counter) {
        self.counts.count(counter);
        self.context.all.count(counter);
    }

    /// Permits of this quota that are out.
    pub(super) fn permits(&self, quota: Quota) -> u32 {
        self.permits[quota as usize].load(Ordering::Relaxed)
    }

    /// A permit of this quota.
    ///
    /// # Errors
    /// If as many permits are out as there may be.
    pub(crate) fn take(self: &Arc<Self>, quota: Quota) -> Result<Permit, RpcRefusal> {
        let limits = &self.context.limits;
        let limit = self.allowance.permits[quota as usize];
        let permits = &self.permits[quota as usize];
        let taken = permits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < limit).then_some(taken + 1));
        match taken {
            Ok(_) => {
                self.context.usage.permits[quota as usize].fetch_add(1, Ordering::Relaxed);
                Ok(Permit { account: self.clone(), quota })
            }
            Err(_) => {
                let (reason, what) = quota.refusal();
                let why = format!("you have {limit} {what}, as many as you may");
                Err(RpcRefusal::new(reason, why).with_retry_after(limits.retry_after))
            }
        }
    }

    /// Charges frames of Attach that came at this instant; how many of them are within the rate.
    pub(crate) fn charge_frames(&self, frames: usize, at: Instant) -> usize {
        let frames = u64::try_from(frames).unwrap_or(u64::MAX);
        let granted = self.requests.take(self.context.nanos_at(at), frames, 1, self.allowance.request_rate);
        usize::try_from(granted).unwrap_or(usize::MAX)
    }

    /// Charges a call.
    ///
    /// # Errors
    /// If it is above the rate.
    pub(crate) fn charge_call(&self) -> Result<(), RpcRefusal> {
        match self.requests.take(self.context.now(), 1, CALL_COST, self.allowance.request_rate) {
            0 => Err(self.rate_exceeded(CALL_COST)),
            _ => Ok(()),
        }
    }

    /// The refusal of calls and frames above the rate.
    pub(crate) fn rate_exceeded(&self, cost: u64) -> RpcRefusal {
        let limit = self.allowance.requests_per_second;
        let why = format!("you may send {limit} frames in a second, a unary call counting as {CALL_COST}");
        let wait = self.requests.wait(self.context.now(), cost, self.allowance.request_rate);
        RpcRefusal::new(RefusalReason::RateExceeded, why).with_retry_after(wait.max(MIN_RETRY_AFTER))
    }

    /// Charges control frames of HTTP/2 that came on a connection, so many of them resets: to the connection's own share
    /// first. Says what is overdrawn by them.
    pub(crate) fn charge_control_frames(
        &self,
        connection: &mut ConnectionFrames,
        control: u32,
        resets: u32,
    ) -> Overdrawn {
        self.frames.charge(connection, control, resets, &self.allowance, self.context.now())
    }

    /// How long no control frames may be read; `None`: they may.
    pub(crate) fn frames_overdrawn(&self) -> Option<Duration> {
        self.frames.overdrawn(&self.allowance, self.context.now())
    }

    /// Remembers that the principal is active at this instance, as this process.
    pub(crate) fn remember_instance<I: OffenceSink + 'static>(&self, instance: &Arc<I>, process: ProcessId) {
        self.recent.remember(instance, process);
    }

    /// Files an offence that names no instance at those where the principal was active last (B2). It is only counted
    /// if there is none, or if offences of the kind come too often.
    pub(crate) fn file_offence(&self, kind: OffenceKind, detail: &str) {
        if self.may_file_offence(kind) {
            self.recent.file_offence(kind, detail);
        }
    }

    /// Whether one more offence of this kind is to be filed, and not only counted.
    pub(crate) fn may_file_offence(&self, kind: OffenceKind) -> bool {
        self.offences[kind as usize].take(self.context.now(), 1, 1, self.context.offence_rate) > 0
    }
}

impl Permit {
    /// The account that the permit is of.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (account, quota) = (&self.account, self.quota as usize);
        account.permits[quota].fetch_sub(1, Ordering::Relaxed);
        account.context.usage.permits[quota].fetch_sub(1, Ordering::Relaxed);
    }
}
