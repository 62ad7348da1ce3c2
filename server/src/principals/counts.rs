//! How often what happened: numbers that only grow (SPEC B3: an attack counts if it was seen).

use std::sync::atomic::{AtomicU64, Ordering};

use stickycas_proto::v1::{self, RefusalReason};

/// What is counted beside refusals. Each is explained where the wire has it (`Counts`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    ConnectionRefused,
    ConnectionSilent,
    ConnectionResetFlooded,
    ConnectionUnread,
    MessageUndecodable,
    MessageOversized,
    CallAbandoned,
    StreamAbandoned,
    StreamStalled,
    SessionReplaced,
    AccessRepeated,
}

/// One more than the last of [`Incident`] and of [`RefusalReason`].
const INCIDENTS: usize = Incident::AccessRepeated as usize + 1;
const REASONS: usize = RefusalReason::NotObserver as usize + 1;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    refusals: [AtomicU64; REASONS],
    incidents: [AtomicU64; INCIDENTS],
}

impl Counts {
    /// Something was refused.
    pub(crate) fn refuse(&self, reason: RefusalReason) {
        self.refusals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Something happened.
    pub(crate) fn note(&self, incident: Incident) {
        self.incidents[incident as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether nothing was counted.
    pub(super) fn is_empty(&self) -> bool {
        self.refusals.iter().chain(&self.incidents).all(|count| count.load(Ordering::Relaxed) == 0)
    }

    fn incidents(&self, incident: Incident) -> u64 {
        self.incidents[incident as usize].load(Ordering::Relaxed)
    }
}

impl From<&Counts> for v1::Counts {
    fn from(counts: &Counts) -> Self {
        let row = |reason: RefusalReason| {
            let count = counts.refusals[reason as usize].load(Ordering::Relaxed);
            (count > 0).then_some(v1::RefusalCount { reason: reason.into(), count })
        };
        Self {
            refusals: RefusalReason::all().filter_map(row).collect(),
            connections_refused: counts.incidents(Incident::ConnectionRefused),
            connections_silent: counts.incidents(Incident::ConnectionSilent),
            connections_reset_flooded: counts.incidents(Incident::ConnectionResetFlooded),
            connections_unread: counts.incidents(Incident::ConnectionUnread),
            messages_undecodable: counts.incidents(Incident::MessageUndecodable),
            messages_oversized: counts.incidents(Incident::MessageOversized),
            calls_abandoned: counts.incidents(Incident::CallAbandoned),
            streams_abandoned: counts.incidents(Incident::StreamAbandoned),
            streams_stalled: counts.incidents(Incident::StreamStalled),
            sessions_replaced: counts.incidents(Incident::SessionReplaced),
            accesses_repeated: counts.incidents(Incident::AccessRepeated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_count() {
        let counts = Counts::default();
        assert!(counts.is_empty());
        RefusalReason::all().for_each(|reason| counts.refuse(reason));
        counts.refuse(RefusalReason::Malformed);
        let told = v1::Counts::from(&counts).refusals;
        assert_eq!(told.len(), RefusalReason::all().count());
        assert!(told.iter().all(|row| row.count == 1 + u64::from(row.reason() == RefusalReason::Malformed)));
    }
}
