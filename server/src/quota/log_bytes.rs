//! The bytes of a principal that wait for the disk of the log (SPEC B1).
//!
//! A record waits as long as the whole commit takes: a principal that sends much makes all others wait. So it
//! may have as many bytes waiting as are still free of `log_share_bytes`, and one request more (a dynamic
//! threshold, as in [`super::share`]): one alone has half, k of them have k/(k+1). No principal with less
//! than [`LEAST`] waiting is refused. A request above that is refused before it is accepted. There is no
//! fixed rate: the speed of a disk is not known.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::account::Account;
use super::admission::Bound;

/// The bytes that each principal may have waiting before anything is refused: the longest value twice. A
/// longer request counts as much.
const LEAST: usize = 128 * 1024;
/// A request with less is not counted, for speed: as many as the rate of requests allows take a disk a
/// fraction of a second.
const SMALL: usize = 64;
/// After how long a retry helps where the log is busy: about as long as a commit takes.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Bytes of one request that wait for the log; given back when dropped.
#[derive(Debug)]
pub(crate) struct LogBytes {
    account: Arc<Account>,
    bytes: usize,
}

impl Account {
    /// Admits a request that brings so many bytes to the log. `None`: they are too few to be counted.
    ///
    /// # Errors
    /// If the principal has its share of what waits for the log. That depends on what others have, so it is
    /// no offence.
    pub(crate) fn charge_log(self: &Arc<Self>, bytes: usize) -> Result<Option<LogBytes>, RpcRefusal> {
        if bytes <= SMALL {
            return Ok(None);
        }
        let (usage, limit) = (&self.context.log, self.context.limits.log_share_bytes);
        let bytes = bytes.min(LEAST);
        // Counted first: of two that come at once neither overlooks the other.
        let own = self.log_bytes.fetch_add(bytes, Relaxed);
        let waiting = usage.waiting.fetch_add(bytes, Relaxed);
        let charged = LogBytes { account: self.clone(), bytes };
        if own >= LEAST.max(limit.saturating_sub(waiting))
            && self.context.admission.refuses(Bound::LogShare, self.name())
        {
            let why = format!(
                "{waiting} bytes wait for the log, and you have your share of them: {own} (log_share_bytes)"
            );
            return Err(RpcRefusal::new(RefusalReason::RateExceeded, why).with_retry_after(RETRY_AFTER));
        }
        let reserves = self.reserves();
        let kind = if reserves.has_role() { 0 } else { 1 + usize::from(!reserves.is_known()) };
        usage.sent[kind].fetch_add(bytes as u64, Relaxed);
        Ok(Some(charged))
    }
}

impl Drop for LogBytes {
    fn drop(&mut self) {
        self.account.log_bytes.fetch_sub(self.bytes, Relaxed);
        self.account.context.log.waiting.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Principal;
    use crate::config::Admission;
    use crate::limits::Limits;
    use crate::quota::{KnownPrincipals, Principals};

    const SHARE: usize = 4 << 20;
    const VALUE: usize = 65_000;

    fn principals(admission: Admission) -> Principals {
        let limits = Limits { log_share_bytes: SHARE, ..Limits::default() };
        let known = KnownPrincipals::default();
        known.set_roles(["boss"], []);
        known.add_roster("boss", ["p"].into_iter());
        Principals::with(&limits, admission, known)
    }

    fn account(principals: &Principals, name: &str) -> Arc<Account> {
        principals.account(&Principal::new(name)).unwrap()
    }

    /// What an account may have waiting, in requests of this many bytes.
    fn fill(account: &Arc<Account>, bytes: usize) -> (Vec<LogBytes>, RpcRefusal) {
        let mut waiting = Vec::new();
        loop {
            match account.charge_log(bytes) {
                Ok(charged) => waiting.extend(charged),
                Err(refused) => return (waiting, refused),
            }
        }
    }

    #[test]
    fn one_alone_has_half_and_more_of_them_leave_some() {
        let principals = principals(Admission::Enforce);
        let (one, refused) = fill(&account(&principals, "a"), VALUE);
        assert!((SHARE / 2..=SHARE / 2 + VALUE).contains(&(one.len() * VALUE)), "{}", one.len());
        assert_eq!(refused.reason, RefusalReason::RateExceeded);
        assert_eq!(refused.retry_after, Some(RETRY_AFTER));
        assert_eq!(principals.admission().refused(Bound::LogShare), 1);

        let others: Vec<_> =
            (0..30).map(|n| fill(&account(&principals, &format!("o{n}")), VALUE).0).collect();
        assert!(others.iter().all(|it| it.len() >= LEAST / VALUE), "each has the least");
        assert!(principals.log_usage().0 <= SHARE + 31 * (LEAST + VALUE));
        drop((one, others));
        assert_eq!(principals.log_usage().0, 0);
        assert!(fill(&account(&principals, "a"), VALUE).0.len() > 30, "what was committed is free again");
    }

    #[test]
    fn who_sends_little_is_never_refused() {
        let principals = principals(Admission::Enforce);
        let greedy: Vec<_> =
            (0..40).map(|n| fill(&account(&principals, &format!("g{n}")), VALUE).0).collect();
        for modest in ["p", "boss", "stranger"] {
            let account = account(&principals, modest);
            assert!(account.charge_log(SMALL).unwrap().is_none());
            // The last of them comes while less than the least waits.
            let (had, _) = fill(&account, VALUE);
            assert_eq!(had.len(), 3);
        }
        let sent = principals.log_usage().1;
        assert_eq!(sent[..2], [("role", 3 * VALUE as u64), ("process", 3 * VALUE as u64)]);
        assert!(sent[2].1 > 2 * VALUE as u64, "{sent:?}");
        drop(greedy);
    }

    #[test]
    fn a_request_of_any_length_has_room_when_nothing_waits() {
        let principals = principals(Admission::Enforce);
        let _greedy: Vec<_> =
            (0..40).map(|n| fill(&account(&principals, &format!("g{n}")), VALUE).0).collect();
        assert!(account(&principals, "boss").charge_log(usize::MAX).unwrap().is_some());
    }

    #[test]
    fn what_is_only_observed_is_served() {
        let principals = principals(Admission::Observe);
        let account = account(&principals, "a");
        let all: Vec<_> = (0..200).map(|_| account.charge_log(VALUE).unwrap()).collect();
        assert!(principals.admission().would_refuse(Bound::LogShare) > 100);
        drop(all);
        assert_eq!(principals.log_usage().0, 0);
    }
}
