//! The account of one principal: its quotas and rates, its counts, and the instances where it was active
//! last.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stickycas_model::history::OffenceKind;
use stickycas_model::types::ProcessId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tonic::Status;

use super::admission::Bound;
use super::allowance::Allowance;
use super::context::AccountContext;
use super::counts::{Counter, Counts};
use super::frames::{ConnectionFrames, FrameBuckets, FramesRead, Overdrawn};
use super::offences::{OffenceSink, RecentInstances};
use super::processor::{ProcessorTime, Rounds};
use super::rate::{Bucket, CALL_COST, VERIFICATION_COST};
use super::reserve_cache::ReserveCache;
use super::resources::{BUFFERS, Buffer, QUOTAS, Quota};
use super::share::{Allocation, Share, Threshold, Usage};
use crate::auth::Principal;
use crate::config::Admission;

/// The shortest wait that RetryInfo advises after a rate was exceeded.
const MIN_RETRY_AFTER: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Account {
    /// `None`: the account of all clients without identity.
    principal: Option<Principal>,
    pub(super) context: Arc<AccountContext>,
    allowance: Allowance,
    requests: Bucket,
    frames: FrameBuckets,
    processor: ProcessorTime,
    /// By kind, the offences that may still be filed.
    offences: [Bucket; OffenceKind::ALL.len()],
    /// By quota, the permits that are out.
    permits: [AtomicU32; QUOTAS],
    /// By quota, and by buffer: its use of the share of all principals.
    permit_shares: [Usage; QUOTAS],
    buffer_shares: [Usage; BUFFERS],
    /// The bytes that wait for the log.
    pub(super) log_bytes: AtomicUsize,
    reserves: Mutex<ReserveCache>,
    counts: Counts,
    recent: RecentInstances,
}

/// The use of one of a quota; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    account: Arc<Account>,
    quota: Quota,
    taken: Allocation,
}

/// The charge for the verification of a token, in frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargedVerification(u64);

/// The refusal for want of a permit, or above a rate.
#[derive(Debug)]
pub(crate) struct NoPermit {
    pub(crate) refused: RpcRefusal,
    /// Whether the principal has as many as it may, which is an offence. Else others have what it would need.
    is_own: bool,
}

impl NoPermit {
    /// The principal has as many as it may.
    pub(crate) fn own(refused: RpcRefusal) -> Self {
        Self { refused, is_own: true }
    }

    /// The offence that it is, if it is one (B2).
    pub(crate) fn offence(&self) -> Option<OffenceKind> {
        self.is_own.then_some(OffenceKind::QuotaExceeded)
    }
}

impl From<NoPermit> for RpcRefusal {
    fn from(none: NoPermit) -> Self {
        none.refused
    }
}

impl From<NoPermit> for Status {
    fn from(none: NoPermit) -> Self {
        none.refused.into()
    }
}

impl Account {
    /// The account of a principal, or (`None`) that of all clients without identity.
    pub(super) fn new(principal: Option<Principal>, context: Arc<AccountContext>) -> Self {
        let (allowance, reserves) = match &principal {
            None => (context.anonymous, ReserveCache::default()),
            Some(name) => (context.principal, ReserveCache::of(name.as_str(), &context.known, context.now())),
        };
        let processor = ProcessorTime::new(context.now(), reserves.has_role());
        Self {
            principal,
            context,
            allowance,
            requests: Bucket::default(),
            frames: FrameBuckets::default(),
            processor,
            offences: Default::default(),
            permits: Default::default(),
            permit_shares: Default::default(),
            buffer_shares: Default::default(),
            log_bytes: AtomicUsize::new(0),
            reserves: Mutex::new(reserves),
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
        self.requests.is_full(now) && self.frames.are_full(now) && !self.processor.is_overdrawn(now)
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
    /// If as many permits are out as there may be, of the principal or of all.
    pub(crate) fn take(self: &Arc<Self>, quota: Quota) -> Result<Permit, NoPermit> {
        let limit = self.allowance.permits[quota as usize];
        let permits = &self.permits[quota as usize];
        if permits.fetch_add(1, Ordering::Relaxed) >= limit
            && self.context.admission.refuses(quota.bound(), self.name())
        {
            permits.fetch_sub(1, Ordering::Relaxed);
            let refused =
                self.exhausted(quota, |what| format!("you have {limit} {what}, as many as you may"));
            return Err(NoPermit::own(refused));
        }
        let share = &self.context.permits[quota as usize];
        let Some(taken) =
            self.take_share(share, &self.permit_shares[quota as usize], 1, Allocation::default())
        else {
            permits.fetch_sub(1, Ordering::Relaxed);
            self.context.admission.count_refused(quota.bound());
            let refused = self.exhausted(quota, |what| {
                format!(
                    "the server has {} {what} of at most {}, and you may take no more of what is left",
                    share.used(),
                    share.total()
                )
            });
            return Err(NoPermit { refused, is_own: false });
        };
        Ok(Permit { account: self.clone(), quota, taken })
    }

    fn exhausted(&self, quota: Quota, why: impl FnOnce(&str) -> String) -> RpcRefusal {
        let (reason, what) = quota.refusal();
        RpcRefusal::new(reason, why(what)).with_retry_after(self.context.limits.retry_after)
    }

    /// Takes so much of a share of all principals, of which this account has what `usage` says; `held` was
    /// taken before for the same purpose.
    fn take_share(
        &self,
        share: &Share,
        usage: &Usage,
        amount: usize,
        held: Allocation,
    ) -> Option<Allocation> {
        let threshold = self.context.threshold();
        let take = |cache: &ReserveCache| {
            let reserves = cache.reserves().iter().filter(|reserve| held.same_part(**reserve));
            let reserves = reserves.copied().map(Some).chain([None]);
            reserves.into_iter().find_map(|reserve| share.take(usage, amount, reserve, threshold))
        };
        if self.principal.is_none() {
            return take(&ReserveCache::default());
        }
        let mut cache = self.reserves();
        // It may have become known a moment ago.
        take(&cache).or_else(|| self.refresh(&mut cache).then(|| take(&cache)).flatten())
    }

    /// The reserves of the principal, as they were a second ago at most.
    pub(super) fn reserves(&self) -> MutexGuard<'_, ReserveCache> {
        let mut cache = self.cached_reserves();
        if let Some(principal) = &self.principal {
            cache.refresh_if_old(principal.as_str(), &self.context.known, || self.context.now());
            self.processor.set_role(cache.has_role());
        }
        cache
    }

    /// The reserves of the principal now, if they may have changed since they were looked up.
    fn refresh(&self, cache: &mut ReserveCache) -> bool {
        let Some(principal) = &self.principal else { return false };
        cache.refresh(principal.as_str(), &self.context.known, || self.context.now())
    }

    fn cached_reserves(&self) -> MutexGuard<'_, ReserveCache> {
        self.reserves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds so many bytes more for the client, which has `held` already. `None`: there is no room for them.
    pub(super) fn take_bytes(&self, buffer: Buffer, bytes: usize, held: Allocation) -> Option<Allocation> {
        let (share, usage) = self.buffer(buffer);
        if buffer == Buffer::Windows && self.principal.is_none() {
            // See `part_of_free`.
            return share.take(usage, bytes, None, Threshold::Off);
        }
        self.take_share(share, usage, bytes, held)
    }

    /// The most that one of the clients without identity may take of a buffer at once. No bound for others:
    /// they have theirs by what they have already.
    pub(super) fn part_of_free(&self, buffer: Buffer) -> usize {
        /// As many clients find a third of what the first one has found.
        const CLIENTS: usize = 32;
        let (share, usage) = self.buffer(buffer);
        // All of them together take half of what is kept for nobody.
        let free = || (share.common() / 2).saturating_sub(usage.used()).min(share.free()) / CLIENTS;
        if self.principal.is_none() { free() } else { usize::MAX }
    }

    /// Counts that a client did not get as much as it would have otherwise.
    pub(super) fn count_too_few(&self, buffer: Buffer) {
        self.context.admission.count_refused(buffer.bound());
    }

    pub(super) fn give_back_bytes(&self, buffer: Buffer, taken: Allocation) {
        let (share, usage) = self.buffer(buffer);
        share.give_back(usage, taken);
    }

    fn buffer(&self, buffer: Buffer) -> (&Share, &Usage) {
        (&self.context.buffers[buffer as usize], &self.buffer_shares[buffer as usize])
    }

    /// Charges frames of Attach that came at this instant; how many of them are within the rate.
    pub(crate) fn charge_frames(&self, frames: usize, at: Instant) -> usize {
        let wanted = u64::try_from(frames).unwrap_or(u64::MAX);
        let granted = self.requests.take(self.context.nanos_at(at), wanted, 1, self.allowance.request_rate);
        if granted < wanted && !self.context.admission.refuses(Bound::RequestRate, self.name()) {
            return frames;
        }
        usize::try_from(granted).unwrap_or(usize::MAX)
    }

    /// Charges a call.
    ///
    /// # Errors
    /// If it is above the rate.
    pub(crate) fn charge_call(&self) -> Result<(), RpcRefusal> {
        self.charge(CALL_COST).map(drop)
    }

    /// Charges what a call costs beyond that, since the work grows with the instance: as many frames as would
    /// take the server as long, or half of what the rate allows in a second, if that is less.
    ///
    /// # Errors
    /// If it is above the rate.
    pub(crate) fn charge_work(&self, frames: usize) -> Result<(), RpcRefusal> {
        if frames == 0 {
            return Ok(());
        }
        self.charge(self.bounded_cost(u64::try_from(frames).unwrap_or(u64::MAX))).map(drop)
    }

    /// Charges a call and the verification of its token, whatever comes of it.
    ///
    /// # Errors
    /// If it is above the rate.
    pub(crate) fn charge_verification(&self) -> Result<ChargedVerification, RpcRefusal> {
        self.charge(self.bounded_cost(CALL_COST + VERIFICATION_COST)).map(ChargedVerification)
    }

    /// The token was good: the principal that it names pays for the verification, and what was charged here
    /// is given back.
    ///
    /// # Errors
    /// If that principal is above its rate. Nothing is given back then.
    pub(crate) fn pass_verification_to(
        &self,
        proven: &Self,
        ChargedVerification(charged): ChargedVerification,
    ) -> Result<(), RpcRefusal> {
        let mut given_back = charged;
        if ptr::eq(self, proven) {
            given_back = given_back.min(CALL_COST);
        } else {
            proven.charge_work(VERIFICATION_COST as usize)?;
        }
        self.requests.give_back(given_back, self.allowance.request_rate);
        Ok(())
    }

    /// Keeps the charge, but for the call, which is charged by itself.
    pub(crate) fn keep_verification(&self, ChargedVerification(charged): ChargedVerification) {
        self.requests.give_back(charged.min(CALL_COST), self.allowance.request_rate);
    }

    /// The cost of work that is above that of a call: half of what the rate allows in a second at most.
    fn bounded_cost(&self, frames: u64) -> u64 {
        frames.min(u64::from(self.allowance.requests_per_second / 2).max(1))
    }

    /// Returns what was taken: nothing, if the rate is exceeded and that is not enforced.
    fn charge(&self, cost: u64) -> Result<u64, RpcRefusal> {
        match self.requests.take(self.context.now(), 1, cost, self.allowance.request_rate) {
            0 if self.context.admission.refuses(Bound::RequestRate, self.name()) => {
                Err(self.rate_exceeded(cost))
            }
            taken => Ok(taken * cost),
        }
    }

    /// The refusal of calls and frames above the rate.
    pub(crate) fn rate_exceeded(&self, cost: u64) -> RpcRefusal {
        let limit = self.allowance.requests_per_second;
        let why = format!("you may send {limit} frames in a second, a unary call counting as {CALL_COST}");
        let wait = self.requests.wait(self.context.now(), cost, self.allowance.request_rate);
        RpcRefusal::new(RefusalReason::RateExceeded, why).with_retry_after(wait.max(MIN_RETRY_AFTER))
    }

    /// Charges frames of HTTP/2 that came on a connection: to the connection's own share first. Says what is
    /// overdrawn by them.
    pub(crate) fn charge_read(&self, connection: &mut ConnectionFrames, read: FramesRead) -> Overdrawn {
        self.frames.charge(connection, read, &self.allowance, self.context.now())
    }

    /// Charges processor time in which the server worked for the principal until this instant.
    pub(crate) fn charge_processor(&self, at: Instant, took: Duration) {
        self.processor.charge(self.context.nanos_at(at), took);
    }

    /// Whether the principal has taken more than its share of processor time.
    pub(crate) fn is_greedy(&self, at: Instant) -> bool {
        self.context.admission.mode() == Admission::Enforce
            && self.processor.is_overdrawn(self.context.nanos_at(at))
    }

    /// Whether it has taken far more for some time.
    pub(crate) fn is_far_above_its_share(&self, at: Instant) -> bool {
        self.processor.is_far_overdrawn(self.context.nanos_at(at))
    }

    /// The rounds in which its tasks have their turns.
    pub(crate) const fn rounds(&self) -> &Rounds {
        self.processor.rounds()
    }

    /// The time for which no frames may be read; `None`: they may.
    pub(crate) fn frames_overdrawn(&self) -> Option<Duration> {
        self.frames.overdrawn(&self.allowance, self.context.now())
    }

    /// Remembers that the principal is active at this instance, as this process.
    pub(crate) fn remember_instance<I: OffenceSink + 'static>(&self, instance: &Arc<I>, process: ProcessId) {
        self.recent.remember(instance, process);
    }

    /// Files an offence that names no instance at those where the principal was active last (B2). It is only
    /// counted if there is none, or if offences of the kind come too often.
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
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (account, quota) = (&self.account, self.quota as usize);
        account.permits[quota].fetch_sub(1, Ordering::Relaxed);
        account.context.permits[quota].give_back(&account.permit_shares[quota], self.taken);
    }
}
