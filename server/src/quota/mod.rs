//! What the server keeps of each principal: how much it may still ask for, and what it has done so far.
//!
//! Limits are per principal with shares of their own, so that none can use up another's (SPEC B1). Whatever
//! somebody does is written to its [`Account`]; a call or a connection holds on to that and never looks it up
//! again.

mod account;
mod counts;
mod rate;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{self, RefusalReason};

use crate::auth::Principal;
use crate::limits::Limits;

pub(crate) use account::{Account, Permit, Quota};
pub(crate) use counts::{Counter, Counts};

/// How long after the search for idle accounts has found too few of them the next one begins.
const SEARCH_AGAIN: Duration = Duration::from_secs(1);

/// All principals that the server has seen and not forgotten. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Principals(Arc<PrincipalsInner>);

#[derive(Debug)]
struct PrincipalsInner {
    context: Arc<AccountContext>,
    table: Mutex<AccountTable>,
}

/// What all accounts share.
#[derive(Debug)]
struct AccountContext {
    limits: Limits,
    rate: rate::Rate,
    offence_rate: rate::Rate,
    /// What anybody did, known or not.
    all: Counts,
    born: Instant,
    started: SystemTime,
}

#[derive(Debug, Default)]
struct AccountTable {
    accounts: HashMap<Principal, Arc<Account>>,
    /// How many accounts made room for others.
    forgotten: u32,
    searched: Option<Instant>,
}

impl Principals {
    /// Nobody is known yet.
    pub(crate) fn new(limits: &Limits) -> Self {
        let context = AccountContext {
            limits: limits.clone(),
            rate: rate::Rate::per_second(limits.requests_per_second),
            offence_rate: rate::Rate::per_second(limits.offences_per_second),
            all: Counts::default(),
            born: Instant::now(),
            started: SystemTime::now(),
        };
        Self(Arc::new(PrincipalsInner { context: Arc::new(context), table: Mutex::default() }))
    }

    /// What anybody did, whether or not it is known who.
    pub(crate) fn all(&self) -> &Counts {
        &self.0.context.all
    }

    /// The account of a principal, opened if there is none.
    pub(crate) fn account(&self, principal: &str) -> Result<Arc<Account>, RpcRefusal> {
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
        let principal = Principal::new(principal);
        let account = Arc::new(Account::new(principal.clone(), self.0.context.clone()));
        table.accounts.insert(principal, account.clone());
        Ok(account)
    }

    /// The counts of these principals, or of everybody if none is named; no more than `rows` of them.
    pub(crate) fn counts(&self, named: &[String], rows: usize) -> v1::GetCountsResponse {
        let table = self.table();
        let (mut found, forgotten): (Vec<_>, u32) = if named.is_empty() {
            (table.accounts.values().cloned().collect(), table.forgotten)
        } else {
            (named.iter().filter_map(|name| table.accounts.get(name.as_str())).cloned().collect(), 0)
        };
        drop(table);
        found.retain(|account| !account.counts().is_empty());
        found.sort_unstable_by(|one, other| one.principal().cmp(other.principal()));
        found.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let left_out = u32::try_from(found.len().saturating_sub(rows)).unwrap_or(u32::MAX);
        found.truncate(rows);
        let principals = found.iter().map(|account| v1::PrincipalCounts {
            principal: account.principal().as_str().to_owned(),
            counts: Some(account.counts().into()),
        });
        v1::GetCountsResponse {
            start_time: Some(self.0.context.started.into()),
            all: Some(self.all().into()),
            principals: principals.collect(),
            principals_left_out: left_out.saturating_add(forgotten),
            // Not known here.
            server: None,
        }
    }

    fn table(&self) -> MutexGuard<'_, AccountTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountTable {
    /// Closes the accounts that nobody uses and whose rate is fully theirs again: if they come back, nobody can
    /// tell the difference but by their counts.
    fn forget_idle(&mut self) {
        // Whoever sends one new name after the other must not have all of them looked through each time.
        if self.searched.is_some_and(|searched| searched.elapsed() < SEARCH_AGAIN) {
            return;
        }
        self.searched = Some(Instant::now());
        let before = self.accounts.len();
        self.accounts.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_idle());
        let gone = u32::try_from(before - self.accounts.len()).unwrap_or(u32::MAX);
        self.forgotten = self.forgotten.saturating_add(gone);
    }
}

impl AccountContext {
    /// Nanoseconds since the server started.
    fn now(&self) -> u64 {
        self.time(Instant::now())
    }

    /// The same at another moment.
    fn time(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.born).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_one_account() {
        let principals = Principals::new(&Limits::default());
        let first = principals.account("p1").unwrap();
        first.count(Counter::AccessRepeated);
        assert!(Arc::ptr_eq(&first, &principals.account("p1").unwrap()));
        assert!(!Arc::ptr_eq(&first, &principals.account("p2").unwrap()));
        let told = principals.counts(&[], 10);
        assert_eq!(told.principals.len(), 1, "of p2 there is nothing to tell");
        assert_eq!(told.all.unwrap().accesses_repeated, 1);
    }

    #[test]
    fn idle_accounts_make_room_and_those_in_use_stay() {
        let principals = Principals::new(&Limits { principals: 2, ..Limits::default() });
        let used = principals.account("used").unwrap();
        principals.account("idle").unwrap().count(Counter::MessageOversized);
        let next = principals.account("next").unwrap();
        assert!(Arc::ptr_eq(&used, &principals.account("used").unwrap()));
        assert_eq!(principals.account("last").unwrap_err().reason, RefusalReason::TooManyConnections);
        let told = principals.counts(&[], 10);
        assert_eq!((told.principals.len(), told.principals_left_out), (0, 1));
        assert_eq!(told.all.unwrap().messages_oversized, 1, "what was counted in all stays");
        drop(next);
    }

    #[test]
    fn an_answer_names_no_more_principals_than_it_may_and_those_asked_for() {
        let principals = Principals::new(&Limits::default());
        for name in ["a", "b", "c"] {
            principals.account(name).unwrap().count_refusal(RefusalReason::NotYourPhase);
        }
        let told = principals.counts(&[], 2);
        let names: Vec<_> = told.principals.iter().map(|row| row.principal.as_str()).collect();
        assert_eq!((names, told.principals_left_out), (vec!["a", "b"], 1));
        let told = principals.counts(&["c".to_owned(), "nobody".to_owned()], 2);
        assert_eq!((told.principals.len(), told.principals_left_out), (1, 0));
    }
}
