//! The accounts of all principals.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{self, RefusalReason};

use super::account::Account;
use super::context::{AccountContext, Usage};
use super::counts::Counts;
use super::limited::Quota;
use crate::auth::Principal;
use crate::limits::Limits;

/// How long after a search for idle accounts that did not make room the next one may begin.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);

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
    accounts: HashMap<Principal, Arc<Account>>,
    /// How many accounts were closed to make room for others.
    forgotten: u32,
    last_search: Option<Instant>,
}

impl Principals {
    /// Without an account.
    pub(crate) fn new(limits: &Limits) -> Self {
        let context = Arc::new(AccountContext::new(limits));
        let anonymous = Arc::new(Account::of_anonymous(context.clone()));
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
        if let Some(account) = table.accounts.get(principal) {
            return Ok(account.clone());
        }
        let limit = self.0.context.limits.principals;
        if table.accounts.len() >= limit {
            table.forget_idle();
        }
        if table.accounts.len() >= limit {
            let why = format!("the server serves {limit} principals, as many as it may");
            return Err(RpcRefusal::new(RefusalReason::TooManyConnections, why));
        }
        let account = Arc::new(Account::of_principal(principal.clone(), self.0.context.clone()));
        table.accounts.insert(principal.clone(), account.clone());
        Ok(account)
    }

    /// What all clients together use now.
    pub(crate) fn usage(&self) -> &Usage {
        &self.0.context.usage
    }

    /// Permits of this quota that are out, of all principals.
    pub(crate) fn permits(&self, quota: Quota) -> usize {
        self.0.context.usage.permits[quota as usize].load(Ordering::Relaxed)
    }

    /// By quota, the permits of the principal that has the most of it.
    pub(crate) fn most_permits(&self) -> [u32; Quota::ALL.len()] {
        let table = self.table();
        Quota::ALL.map(|quota| table.accounts.values().map(|it| it.permits(quota)).max().unwrap_or(0))
    }

    /// Principals that have an account.
    pub(crate) fn accounts(&self) -> usize {
        self.table().accounts.len()
    }

    /// When the server started.
    pub(crate) fn start_time(&self) -> SystemTime {
        self.0.context.start_time
    }

    /// The counts of the principals with these names, or of all if there are no names, as far as they are `shown`; at most
    /// `rows` of them.
    pub(crate) fn counts(
        &self,
        names: &[String],
        rows: usize,
        shown: impl Fn(&Principal) -> bool,
    ) -> v1::GetCountsResponse {
        let table = self.table();
        let (mut accounts, forgotten): (Vec<_>, u32) = if names.is_empty() {
            (table.accounts.values().cloned().collect(), table.forgotten)
        } else {
            (names.iter().filter_map(|name| table.accounts.get(name.as_str())).cloned().collect(), 0)
        };
        drop(table);
        accounts.retain(|account| !account.counts().is_empty() && account.principal().is_some_and(&shown));
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
            all: Some(self.all().into()),
            principals: principals.collect(),
            principals_left_out: left_out.saturating_add(forgotten),
            // The service fills it in.
            server: None,
        }
    }

    fn table(&self) -> MutexGuard<'_, AccountTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountTable {
    /// Closes the accounts that nothing holds and whose bucket is full: if their principals come back, only their
    /// counts are lost.
    fn forget_idle(&mut self) {
        // A client that sends one new name after the other must not cause a search each time.
        if self.last_search.is_some_and(|last| last.elapsed() < SEARCH_AGAIN) {
            return;
        }
        self.last_search = Some(Instant::now());
        let before = self.accounts.len();
        self.accounts.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_idle());
        let closed = u32::try_from(before - self.accounts.len()).unwrap_or(u32::MAX);
        self.forgotten = self.forgotten.saturating_add(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counter;
    use super::*;

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
        let counts = principals.counts(&[], 10, |_| true);
        assert_eq!(counts.principals.len(), 1, "p2 has done nothing");
        assert_eq!(counts.all.unwrap().accesses_repeated, 1);
    }

    #[test]
    fn idle_accounts_make_room_and_used_ones_stay() {
        let principals = Principals::new(&Limits { principals: 2, ..Limits::default() });
        let used = account(&principals, "used").unwrap();
        account(&principals, "idle").unwrap().count(Counter::MessageOversized);
        let next = account(&principals, "next").unwrap();
        assert!(Arc::ptr_eq(&used, &account(&principals, "used").unwrap()));
        assert_eq!(account(&principals, "last").unwrap_err().reason, RefusalReason::TooManyConnections);
        let counts = principals.counts(&[], 10, |_| true);
        assert_eq!((counts.principals.len(), counts.principals_left_out), (0, 1));
        assert_eq!(counts.all.unwrap().messages_oversized, 1, "the counts of all stay");
        drop(next);
    }

    #[test]
    fn counts_name_the_principals_asked_for_up_to_a_limit() {
        let principals = Principals::new(&Limits::default());
        for name in ["a", "b", "c"] {
            account(&principals, name).unwrap().count_refusal(RefusalReason::NotYourPhase);
        }
        let counts = principals.counts(&[], 2, |_| true);
        let names: Vec<_> = counts.principals.iter().map(|row| row.principal.as_str()).collect();
        assert_eq!((names, counts.principals_left_out), (vec!["a", "b"], 1));
        let counts = principals.counts(&["c".to_owned(), "nobody".to_owned()], 2, |_| true);
        assert_eq!((counts.principals.len(), counts.principals_left_out), (1, 0));
    }
}
