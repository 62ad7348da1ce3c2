//! The data that all accounts share.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Instant, SystemTime};

use super::admission::{Admission, AdmissionCounts};
use super::buffers::{BUFFERS, Buffer};
use super::counts::Counts;
use super::ended_calls::EndedCalls;
use super::frames::FRAME_TYPES;
use super::known::KnownPrincipals;
use super::limited::{QUOTAS, Quota};
use super::log_bytes::LogUsage;
use super::method::Method;
use super::rate::Rate;
use super::share::{Share, Threshold};
use crate::limits::Limits;

/// See the module.
#[derive(Debug)]
pub(super) struct AccountContext {
    pub(super) limits: Limits,
    /// What each principal may use.
    pub(super) principal: Allowance,
    /// What all clients without identity together may use.
    pub(super) anonymous: Allowance,
    pub(super) offence_rate: Rate,
    /// The counts of all clients, identified or not.
    pub(super) all: Counts,
    pub(super) usage: Usage,
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

/// What all clients together use now, identified or not.
///
/// On cache lines of its own: what stands beside it is read for every message.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Usage {
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
    /// How they have ended; of streams, how they began.
    pub(crate) ended_calls: EndedCalls,
}

/// What one account may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) requests_per_second: u32,
    pub(super) request_rate: Rate,
    /// Of frames of HTTP/2 that carry no request.
    pub(super) control_frame_rate: Rate,
    /// Of resets among them.
    pub(super) reset_rate: Rate,
    /// Of frames that open a request.
    pub(super) header_rate: Rate,
    /// By quota.
    pub(super) permits: [u32; QUOTAS],
}

impl Allowance {
    fn of_principal(limits: &Limits) -> Self {
        Self {
            requests_per_second: limits.requests_per_second,
            request_rate: Rate::per_second(limits.requests_per_second),
            control_frame_rate: Rate::per_second(limits.control_frames_per_second),
            reset_rate: Rate::per_second(limits.resets_per_second),
            header_rate: Rate::per_second(limits.headers_per_second),
            permits: Quota::ALL.map(|quota| quota.limit(limits)),
        }
    }

    fn of_anonymous(limits: &Limits) -> Self {
        let permits = Quota::ALL.map(|quota| match quota {
            Quota::Calls => limits.anonymous_calls,
            // They are bounded before they belong to an account, and streams of ours need an identity.
            Quota::Connections | Quota::AttachStreams | Quota::WatchStreams => 0,
        });
        Self {
            requests_per_second: limits.anonymous_requests_per_second,
            request_rate: Rate::per_second(limits.anonymous_requests_per_second),
            control_frame_rate: Rate::per_second(limits.anonymous_control_frames_per_second),
            reset_rate: Rate::per_second(limits.resets_per_second),
            header_rate: Rate::per_second(limits.anonymous_headers_per_second),
            permits,
        }
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
            usage: Usage::default(),
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

    /// Nanoseconds since the server started.
    pub(super) fn now(&self) -> u64 {
        self.nanos_at(Instant::now())
    }

    /// The same at another instant.
    pub(super) fn nanos_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }
}
