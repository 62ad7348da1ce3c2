//! The data that all accounts share.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Instant, SystemTime};

use super::admission::AdmissionCounts;
use super::allowance::Allowance;
use super::counts::Counts;
use super::ended_calls::EndedCalls;
use super::frames::FRAME_TYPES;
use super::known::KnownPrincipals;
use super::method::Method;
use super::rate::Rate;
use super::resources::{BUFFERS, Buffer, QUOTAS, Quota};
use super::share::{Share, Threshold};
use crate::config::Admission;
use crate::limits::Limits;
use crate::poll_clock;

/// See the module.
#[derive(Debug)]
pub(super) struct AccountContext {
    pub(super) limits: Limits,
    /// The allowance of each principal.
    pub(super) principal: Allowance,
    /// The allowance of all clients without identity together.
    pub(super) anonymous: Allowance,
    pub(super) offence_rate: Rate,
    /// The counts of all clients, identified or not.
    pub(super) all: Counts,
    pub(super) totals: Totals,
    pub(super) admission: AdmissionCounts,
    pub(super) known: KnownPrincipals,
    /// By quota, the permits of all principals.
    pub(super) permits: [Share; QUOTAS],
    /// By buffer, the bytes that are held for all principals.
    pub(super) buffers: [Share; BUFFERS],
    pub(super) log: LogUsage,
    epoch: Instant,
    pub(super) start_time: SystemTime,
}

/// The use and the counts of all clients together, identified or not.
///
/// On cache lines of its own: the fields beside it are read for every message.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Totals {
    /// Open connections.
    pub(crate) connections: AtomicUsize,
    /// Connections that were accepted since the server started.
    pub(crate) accepted: AtomicU64,
    /// The most connections without a principal that one address has.
    pub(crate) unclaimed_of_one_address: AtomicUsize,
    /// Addresses that are remembered because principals were identified there.
    pub(crate) known_addresses: AtomicUsize,
    /// Frames of HTTP/2 that clients have sent, by type.
    pub(crate) frames: [AtomicU64; FRAME_TYPES],
    /// Calls by method.
    pub(crate) calls: [AtomicU64; Method::ALL.len()],
    /// The outcomes of calls; of streams, those of their beginning.
    pub(crate) ended_calls: EndedCalls,
}

/// The bytes of all principals that wait for the log, and those that they have sent.
#[derive(Debug, Default)]
pub(super) struct LogUsage {
    pub(super) waiting: AtomicUsize,
    /// Bytes that were admitted, by the kind of principal.
    pub(super) sent: [AtomicU64; KINDS.len()],
}

/// The kinds of principals, as metrics have them.
const KINDS: [&str; 3] = ["role", "process", "unknown"];

impl LogUsage {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Bytes that were admitted, by the kind of principal.
    pub(super) fn sent(&self) -> [(&'static str, u64); KINDS.len()] {
        std::array::from_fn(|kind| (KINDS[kind], self.sent[kind].load(Relaxed)))
    }
}

impl AccountContext {
    pub(super) fn new(limits: &Limits, admission: Admission, known: KnownPrincipals) -> Self {
        Self {
            admission: AdmissionCounts::new(admission),
            known,
            permits: Quota::ALL.map(|quota| Share::halved(quota.total(limits))),
            buffers: Buffer::ALL.map(|buffer| Share::halved(buffer.total(limits))),
            limits: limits.clone(),
            principal: Allowance::of_principal(limits),
            anonymous: Allowance::of_anonymous(limits),
            offence_rate: Rate::per_second(limits.offences_per_second),
            all: Counts::default(),
            totals: Totals::default(),
            log: LogUsage::default(),
            epoch: Instant::now(),
            start_time: SystemTime::now(),
        }
    }

    /// Whether one principal may have all that is free of a share.
    pub(super) fn threshold(&self) -> Threshold {
        match self.admission.mode() {
            Admission::Enforce => Threshold::Dynamic,
            Admission::Off | Admission::Observe => Threshold::Off,
        }
    }

    /// Nanoseconds since the server started, until the poll under way began.
    pub(super) fn now(&self) -> u64 {
        self.nanos_at(poll_clock::now())
    }

    /// The same at another instant.
    pub(super) fn nanos_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }
}
