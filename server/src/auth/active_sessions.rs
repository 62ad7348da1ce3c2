//! The connections and streams that stand on credentials which may cease to count.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use slab::Slab;
use stickycas_certificates::Certificate;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio_util::sync::CancellationToken;

use super::credentials::Credentials;
use super::principal::Principal;
use super::token_cache::VerifiedToken;
use super::tokens::TokenError;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ActiveSessions {
    entries: Slab<Entry>,
    /// The moments at which something of a proof ends, in seconds since 1970, and the keys of the entries.
    /// These moments are compared with the clock of the calendar: that of timers stands still while a machine
    /// sleeps, and knows no steps.
    expiries: BTreeSet<(u64, usize)>,
}

#[derive(Debug)]
struct Entry {
    proof: Proof,
    end: CancellationToken,
    /// The moments at which something of the proof ends that are still to come, the next one last.
    ends: Vec<u64>,
    /// The reason for which it has ended.
    why: Option<RevocationReason>,
}

/// The proof on which a connection or a stream depends.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    /// Of a connection: the certificates that its client has shown.
    Connection {
        principal: Principal,
        certificates: Arc<[CertificateDer<'static>]>,
    },
    Stream(StreamProof),
}

/// The proof of a stream, beside that of its connection.
#[derive(Clone, Debug)]
pub(crate) struct StreamProof {
    /// The token of its call.
    pub(crate) token: Option<Arc<VerifiedToken>>,
    /// The principal that must be an observer.
    pub(crate) observer: Option<Principal>,
}

/// The reason for which a connection or a stream is not allowed any more.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum RevocationReason {
    #[error("the token of the stream has expired: open another one with a new token")]
    Expired,
    #[error("the token of the stream is not valid any more: {0}")]
    Token(TokenError),
    #[error("tokens are not taken any more")]
    NoTokens,
    #[error("you are no observer any more")]
    NoObserver,
    #[error("the certificate is not valid any more: {0}")]
    Certificate(rustls::Error),
}

impl RevocationReason {
    /// The refusal for the client of a stream.
    pub(crate) fn refusal(&self) -> RpcRefusal {
        let reason = match self {
            Self::NoObserver => RefusalReason::NotObserver,
            Self::Expired | Self::Token(_) | Self::NoTokens | Self::Certificate(_) => {
                RefusalReason::NoIdentity
            }
        };
        RpcRefusal::new(reason, self.to_string())
    }
}

impl Proof {
    /// Checks the parts that need no signature: whether the principal of a connection is denied, and all of
    /// the proof of a stream.
    pub(super) fn check_names(&self, credentials: &Credentials, now: u64) -> Result<(), RevocationReason> {
        match self {
            Self::Connection { principal, .. } => {
                credentials.verifier.check_denied(principal).map_err(RevocationReason::Certificate)
            }
            Self::Stream(proof) => proof.check(credentials, now),
        }
    }

    /// Checks the rest of it: the chain of a connection.
    pub(super) fn check_chain(&self, credentials: &Credentials, now: u64) -> Result<(), RevocationReason> {
        match self {
            Self::Connection { certificates, .. } => {
                let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
                credentials.identify(certificates, now).map(drop).map_err(RevocationReason::Certificate)
            }
            Self::Stream(_) => Ok(()),
        }
    }

    /// A word for its owner, a connection or a stream.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Connection { .. } => "connection",
            Self::Stream(_) => "stream",
        }
    }

    pub(super) fn principal(&self) -> &str {
        let principal = match self {
            Self::Connection { principal, .. } => Some(principal),
            Self::Stream(StreamProof { token: Some(token), .. }) => Some(&token.principal),
            Self::Stream(StreamProof { observer, .. }) => observer.as_ref(),
        };
        principal.map_or("", Principal::as_str)
    }

    /// The moments at which something of it ends, the first one last.
    pub(super) fn ends(&self) -> Vec<u64> {
        let mut ends: Vec<u64> = match self {
            Self::Connection { certificates, .. } => {
                let ends = certificates.iter().filter_map(|der| Some(Certificate::read(der).ok()?.not_after));
                ends.map(|end| end.saturating_add(1)).collect()
            }
            Self::Stream(proof) => proof.token.iter().map(|token| token.expires).collect(),
        };
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends
    }
}

impl StreamProof {
    /// Whether it could not cease to count before its connection ends.
    pub(super) fn is_empty(&self) -> bool {
        self.token.is_none() && self.observer.is_none()
    }

    pub(super) fn check(&self, credentials: &Credentials, now: u64) -> Result<(), RevocationReason> {
        if let Some(token) = &self.token {
            if token.expires <= now {
                return Err(RevocationReason::Expired);
            }
            let tokens = credentials.tokens.as_ref().ok_or(RevocationReason::NoTokens)?;
            tokens.check(token).map_err(RevocationReason::Token)?;
        }
        match &self.observer {
            Some(principal) if !credentials.roles.rights(principal).observer => {
                Err(RevocationReason::NoObserver)
            }
            _ => Ok(()),
        }
    }
}

impl ActiveSessions {
    /// `ends`: those of the proof, which take some time to find. Returns the key of the entry.
    pub(super) fn insert(&mut self, proof: Proof, ends: Vec<u64>, end: CancellationToken) -> usize {
        // Whatever has ended already shows when it is looked at.
        let next = ends.last().copied();
        let key = self.entries.insert(Entry { proof, end, ends, why: None });
        self.expiries.extend(next.map(|next| (next, key)));
        key
    }

    pub(super) fn remove(&mut self, key: usize) {
        let entry = self.entries.remove(key);
        if let Some(next) = entry.ends.last() {
            self.expiries.remove(&(*next, key));
        }
    }

    /// The entries that have not been ended among so many keys from this one on, and the key after them.
    /// `None`: there is none.
    pub(super) fn some(
        &self,
        from: usize,
        keys: usize,
    ) -> (Vec<(usize, Proof, CancellationToken)>, Option<usize>) {
        // Keys are places of the slab, which are filled from the first one on.
        let end = from.saturating_add(keys).min(self.entries.capacity());
        let found = (from..end).filter_map(|key| Some((key, self.entries.get(key)?)));
        let open = found.filter(|(_, entry)| entry.why.is_none());
        let open = open.map(|(key, entry)| (key, entry.proof.clone(), entry.end.clone())).collect();
        (open, (end < self.entries.capacity()).then_some(end))
    }

    /// Notes the reason for which an entry ends, unless it is gone, or another one has its key.
    pub(super) fn end(&mut self, key: usize, end: &CancellationToken, why: RevocationReason) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.end == *end) {
            entry.why.get_or_insert(why);
        }
    }

    /// That of which something has ended by now, so many at most. It comes again when the next thing of it
    /// ends.
    pub(super) fn take_expired(
        &mut self,
        now: u64,
        at_most: usize,
    ) -> Vec<(usize, Proof, CancellationToken)> {
        let mut expired = Vec::new();
        while expired.len() < at_most
            && let Some((_, key)) = self.expiries.first().filter(|(end, _)| *end <= now).copied()
        {
            self.expiries.pop_first();
            let Entry { proof, end, ends, .. } = &mut self.entries[key];
            while ends.pop_if(|end| *end <= now).is_some() {}
            self.expiries.extend(ends.last().map(|next| (*next, key)));
            expired.push((key, proof.clone(), end.clone()));
        }
        expired
    }

    pub(super) fn why(&self, key: usize) -> Option<RevocationReason> {
        self.entries.get(key).and_then(|entry| entry.why.clone())
    }
}
