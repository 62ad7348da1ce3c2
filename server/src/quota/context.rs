//! The data that all accounts share.

use std::time::{Instant, SystemTime};

use super::counts::Counts;
use super::rate::Rate;
use crate::limits::Limits;

/// See the module.
#[derive(Debug)]
pub(super) struct AccountContext {
    pub(super) limits: Limits,
    pub(super) request_rate: Rate,
    pub(super) offence_rate: Rate,
    /// The counts of all clients, identified or not.
    pub(super) all: Counts,
    epoch: Instant,
    pub(super) start_time: SystemTime,
}

impl AccountContext {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            request_rate: Rate::per_second(limits.requests_per_second),
            offence_rate: Rate::per_second(limits.offences_per_second),
            all: Counts::default(),
            epoch: Instant::now(),
            start_time: SystemTime::now(),
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
