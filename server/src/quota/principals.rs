//! The accounts of all principals.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{self, RefusalReason};

use super::account::Account;
use super::admission::{AdmissionCounts, Bound};
use super::context::{AccountContext, Totals};
use super::counts::Counts;
use super::known::KnownPrincipals;
use super::resources::{Buffer, Quota};
use crate::auth::Principal;
use crate::config::Admission;
use crate::limits::Limits;

/// The time after a search for idle accounts that did not make room, until the next one may begin.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);
/// The number of accounts that a search looks at before others have their turn at the table: less than a
/// millisecond. It takes up to 2.3 us for each when many have become known since, so all of 131,072 would
/// take 300 ms.
const AT_ONCE: usize = 256;
/// The number of such pieces of a search for one principal that wants an account.
const PIECES: usize = 8;

/// All principals that have an account. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Principals(Arc<PrincipalsInner>);

#[derive(Debug)]
struct PrincipalsInner {
    context: Arc<AccountContext>,
    anonymous: Arc<Account>,
    table: Mutex<AccountTable>,
}

#[derive(Debug, Default)]
struct AccountTable {
    accounts: HashMap<Principal, OpenAccount>,
    /// All of them, those first that a search has looked at least lately.
    search_order: VecDeque<Principal>,
    /// The number of them that the search that is under way has still to look at.
    to_search: usize,
    /// Those of principals that were not known when they were looked at last.
    unknown: usize,
    /// The number of accounts that were closed to make room for others.
    forgotten: u32,
    last_search: Option<Instant>,
}

#[derive(Debug)]
struct OpenAccount {
    account: Arc<Account>,
    /// Whether the principal was known when it was looked at last.
    is_known: bool,
}

impl Principals {
    /// Without an account; nobody is known, and every bound is enforced.
    #[cfg(test)]
    pub(crate) fn new(limits: &Limits) -> Self {
        Self::with(limits, Admission::default(), KnownPrincipals::default())
    }

    /// Without an account.
    pub(crate) fn with(limits: &Limits, admission: Admission, known: KnownPrincipals) -> Self {
        let context = Arc::new(AccountContext::new(limits, admission, known));
        let anonymous = Arc::new(Account::new(None, context.clone()));
        Self(Arc::new(PrincipalsInner { context, anonymous, table: Mutex::default() }))
    }

    /// The counts of all clients, identified or not.
    pub(crate) fn all(&self) -> &Counts {
        &self.0.context.all
    }

    /// The account of all clients without identity, however many they are and wherever they come from.
    pub(crate) fn anonymous(&self) -> &Arc<Account> {
        &self.0.anonymous
    }

    /// The account of a principal, opened if there is none.
    ///
    /// # Errors
    /// If there are as many accounts as there may be, and none is idle.
    pub(crate) fn account(&self, principal: &Principal) -> Result<Arc<Account>, RpcRefusal> {
        let mut table = self.table();
        if let Some(open) = table.accounts.get(principal) {
            return Ok(open.account.clone());
        }
        let account = Arc::new(Account::new(Some(principal.clone()), self.0.context.clone()));
        let (is_known, has_role) = {
            let reserves = account.reserves();
            (reserves.is_known(), reserves.has_role())
        };
        // Names that nobody has heard of take half of the places at most: the others are for those who are
        // known. Those with a role always have one, since there are no more of them than the configuration
        // names.
        let limit = self.0.context.limits.principals;
        let is_full = |table: &AccountTable| {
            !has_role && (table.accounts.len() >= limit || (!is_known && table.unknown >= limit.div_ceil(2)))
        };
        for _ in 0..PIECES {
            if !is_full(&table) || !table.forget_idle() {
                break;
            }
            drop(table);
            table = self.table();
            if let Some(open) = table.accounts.get(principal) {
                return Ok(open.account.clone());
            }
        }
        if is_full(&table) {
            self.0.context.admission.count_refused(Bound::Principals);
            let why = format!(
                "the server serves {} principals of {limit}, as many of your kind as it may",
                table.accounts.len()
            );
            let next_search = || table.last_search.map(|last| SEARCH_AGAIN.saturating_sub(last.elapsed()));
            let search = if table.to_search > 0 { Duration::ZERO } else { next_search().unwrap_or_default() };
            return Err(RpcRefusal::new(RefusalReason::TooManyConnections, why)
                .with_retry_after(search.max(self.0.context.limits.retry_after)));
        }
        table.unknown += usize::from(!is_known);
        table.accounts.insert(principal.clone(), OpenAccount { account: account.clone(), is_known });
        table.search_order.push_back(principal.clone());
        Ok(account)
    }

    /// The use and the counts of all clients together.
    pub(crate) fn totals(&self) -> &Totals {
        &self.0.context.totals
    }

    /// Permits of this quota that are out, of all principals.
    pub(crate) fn permits(&self, quota: Quota) -> usize {
        self.0.context.permits[quota as usize].used()
    }

    /// Bytes that are held for all principals, and how many may be.
    pub(crate) fn buffered(&self, buffer: Buffer) -> (usize, usize) {
        let share = &self.0.context.buffers[buffer as usize];
        (share.used(), share.total())
    }

    /// Bytes that wait for the log, and those that were admitted, by the kind of principal.
    pub(crate) fn log_usage(&self) -> (usize, [(&'static str, u64); 3]) {
        let usage = &self.0.context.log;
        (usage.waiting(), usage.sent())
    }

    /// The requests that each bound has refused, or would have.
    pub(crate) fn admission(&self) -> &AdmissionCounts {
        &self.0.context.admission
    }

    /// By quota, the permits of the principal that has the most of it.
    pub(crate) fn most_permits(&self) -> [u32; Quota::ALL.len()] {
        let table = self.table();
        Quota::ALL.map(|quota| table.open().map(|it| it.permits(quota)).max().unwrap_or(0))
    }

    /// Principals that have an account.
    pub(crate) fn accounts(&self) -> usize {
        self.table().accounts.len()
    }

    /// The time when the server started.
    pub(crate) fn start_time(&self) -> SystemTime {
        self.0.context.start_time
    }

    /// The counts of the principals with these names; `None`: of all. At most `rows` of them.
    pub(crate) fn counts<'a>(
        &self,
        names: Option<impl IntoIterator<Item = &'a str>>,
        rows: usize,
    ) -> v1::GetCountsResponse {
        let table = self.table();
        let (mut accounts, forgotten): (Vec<_>, u32) = match names {
            None => (table.open().cloned().collect(), table.forgotten),
            Some(names) => {
                let open = names.into_iter().filter_map(|name| table.accounts.get(name));
                (open.map(|open| open.account.clone()).collect(), 0)
            }
        };
        drop(table);
        accounts.retain(|account| !account.counts().is_empty());
        accounts.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        accounts.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let left_out = u32::try_from(accounts.len().saturating_sub(rows)).unwrap_or(u32::MAX);
        accounts.truncate(rows);
        let principals = accounts.iter().map(|account| v1::PrincipalCounts {
            principal: account.name().to_owned(),
            counts: Some(account.counts().into()),
        });
        v1::GetCountsResponse {
            start_time: Some(self.0.context.start_time.into()),
            uptime: Duration::from_nanos(self.0.context.now()).try_into().ok(),
            all: Some(self.all().into()),
            principals: principals.collect(),
            principals_left_out: left_out.saturating_add(forgotten),
            // The service fills these in.
            server: None,
            other_servers: Vec::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, AccountTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountTable {
    fn open(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values().map(|open| &open.account)
    }

    /// Looks at some accounts, and closes those of them that nothing holds and whose bucket is full: if their
    /// principals come back, only their counts are lost. Whether there are others that may be looked at now.
    fn forget_idle(&mut self) -> bool {
        if self.to_search == 0 {
            // A client that sends one new name after the other must not cause a search each time.
            if self.last_search.is_some_and(|last| last.elapsed() < SEARCH_AGAIN) {
                return false;
            }
            (self.last_search, self.to_search) = (Some(Instant::now()), self.search_order.len());
        }
        for _ in 0..self.to_search.min(AT_ONCE) {
            self.to_search -= 1;
            let Some(principal) = self.search_order.pop_front() else { break };
            let Some(open) = self.accounts.get_mut(&principal) else { continue };
            self.unknown -= usize::from(!open.is_known);
            if Arc::strong_count(&open.account) == 1 && open.account.is_idle() {
                self.accounts.remove(&principal);
                self.forgotten = self.forgotten.saturating_add(1);
                continue;
            }
            // Some have become known since, and some are not any more.
            open.is_known = open.account.reserves().is_known();
            self.unknown += usize::from(!open.is_known);
            self.search_order.push_back(principal);
        }
        self.to_search > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counter;
    use super::*;

    const EVERYONE: Option<[&str; 0]> = None;

    fn account(principals: &Principals, name: &str) -> Result<Arc<Account>, RpcRefusal> {
        principals.account(&Principal::new(name))
    }

    #[test]
    fn a_principal_has_one_account() {
        let principals = Principals::new(&Limits::default());
        let first = account(&principals, "p1").unwrap();
        first.count(Counter::AccessRepeated);
        assert!(Arc::ptr_eq(&first, &account(&principals, "p1").unwrap()));
        assert!(!Arc::ptr_eq(&first, &account(&principals, "p2").unwrap()));
        let counts = principals.counts(EVERYONE, 10);
        assert_eq!(counts.principals.len(), 1, "p2 has done nothing");
        assert_eq!(counts.all.unwrap().accesses_repeated, 1);
    }

    #[test]
    fn idle_accounts_make_room_and_used_ones_stay() {
        let principals = Principals::new(&Limits { principals: 4, ..Limits::default() });
        let used = account(&principals, "used").unwrap();
        account(&principals, "idle").unwrap().count(Counter::MessageOversized);
        let next = account(&principals, "next").unwrap();
        assert!(Arc::ptr_eq(&used, &account(&principals, "used").unwrap()));
        assert_eq!(account(&principals, "last").unwrap_err().reason, RefusalReason::TooManyConnections);
        let counts = principals.counts(EVERYONE, 10);
        assert_eq!((counts.principals.len(), counts.principals_left_out), (0, 1));
        assert_eq!(counts.all.unwrap().messages_oversized, 1, "the counts of all stay");
        drop(next);
    }

    #[test]
    fn a_search_for_idle_accounts_goes_on_in_pieces() {
        const USED: usize = 2 * AT_ONCE * PIECES - 1;
        const IDLE: usize = 3 * AT_ONCE;
        // Half of the places are for principals that nobody knows.
        let principals = Principals::new(&Limits { principals: 2 * (USED + IDLE), ..Limits::default() });
        let open = |number: usize| account(&principals, &format!("p{number}")).unwrap();
        let used: Vec<_> = (0..USED).map(open).collect();
        (USED..USED + IDLE).for_each(|number| drop(open(number)));
        // The used ones were opened first, so they are looked at first.
        let refused = account(&principals, "next").unwrap_err();
        assert_eq!(refused.retry_after, Some(Limits::default().retry_after));
        let next = account(&principals, "next").unwrap();
        assert_eq!(principals.accounts(), USED + IDLE, "one has made room for one");
        assert!(principals.table().forget_idle());
        assert_eq!(principals.accounts(), USED + IDLE - AT_ONCE, "so many are looked at at once");
        let unknown = principals.table().unknown;
        assert_eq!(unknown, principals.accounts());
        drop((used, next));
    }

    #[test]
    fn those_with_a_role_have_an_account_in_any_case() {
        let known = KnownPrincipals::default();
        known.set_roles(["boss"], ["watcher"]);
        known.add_roster("boss", ["p1", "p2", "p3"].into_iter());
        let limits = Limits { principals: 2, ..Limits::default() };
        let principals = Principals::with(&limits, Admission::default(), known);
        let _used = ["p1", "p2"].map(|name| account(&principals, name).unwrap());
        let refused = account(&principals, "p3").unwrap_err();
        assert_eq!(refused.reason, RefusalReason::TooManyConnections);
        assert!(refused.retry_after.is_some_and(|wait| wait >= limits.retry_after && wait <= SEARCH_AGAIN));
        for name in ["boss", "watcher"] {
            account(&principals, name).unwrap();
        }
    }

    #[test]
    fn a_long_roster_dilutes_no_reserve_of_others() {
        let known = KnownPrincipals::default();
        known.set_roles(["one", "two"], ["watcher"]);
        let many: Vec<String> = (0..65_536).map(|number| format!("m{number}")).collect();
        known.add_roster("one", many.iter().map(String::as_str));
        known.add_roster("two", ["p"].into_iter());
        let limits = Limits { calls: 1_024, calls_per_principal: 1_024, ..Limits::default() };
        let principals = Principals::with(&limits, Admission::default(), known);
        let take = |name: &str| {
            let account = account(&principals, name).unwrap();
            (0..).map_while(|_| account.take(Quota::Calls).ok()).collect::<Vec<_>>()
        };
        // Strangers and the processes of the long roster take what they get.
        let strangers: Vec<_> = (0..40).map(|number| take(&format!("stranger-{number}"))).collect();
        let members: Vec<_> = many[..1_000].iter().map(|name| take(name)).collect();
        assert!(principals.permits(Quota::Calls) > 512 + 192 - 24);
        // Half of the bound is kept: a quarter of that for the three with a role, the rest for two
        // coordinators.
        let (own, others) = (take("p"), take("watcher"));
        assert!((192..=204).contains(&own.len()), "{}", own.len());
        assert!((42..=54).contains(&others.len()), "{}", others.len());
        drop((strangers, members));
    }

    #[test]
    fn counts_name_the_principals_asked_for_up_to_a_limit() {
        let principals = Principals::new(&Limits::default());
        for name in ["a", "b", "c"] {
            account(&principals, name).unwrap().count_refusal(RefusalReason::NotYourPhase);
        }
        let counts = principals.counts(EVERYONE, 2);
        let names: Vec<_> = counts.principals.iter().map(|row| row.principal.as_str()).collect();
        assert_eq!((names, counts.principals_left_out), (vec!["a", "b"], 1));
        let counts = principals.counts(Some(["c", "nobody"]), 2);
        assert_eq!((counts.principals.len(), counts.principals_left_out), (1, 0));
    }
}
