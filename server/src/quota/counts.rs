//! Counters of events and of refusals, which only grow (SPEC B3: a wire attack is shown by a count).

use std::sync::atomic::{AtomicU64, Ordering};

use stickycas_proto::v1::{self, RefusalReason};

named_values! {
    /// The events that are counted beside refusals. The wire message `Counts` explains each.
    Counter {
        ConnectionRefused = "connection_refused",
        ConnectionSilent = "connection_silent",
        ConnectionResetFlooded = "connection_reset_flooded",
        ConnectionUnread = "connection_unread",
        MessageUndecodable = "message_undecodable",
        MessageOversized = "message_oversized",
        CallAbandoned = "call_abandoned",
        StreamAbandoned = "stream_abandoned",
        StreamStalled = "stream_stalled",
        SessionReplaced = "session_replaced",
        AccessRepeated = "access_repeated",
        HandshakeFailed = "handshake_failed",
        TokenRefused = "token_refused",
        ConnectionPaced = "connection_paced",
        ConnectionGivenUp = "connection_given_up",
        ConnectionClosedEarly = "connection_closed_early",
    }
}

/// Numbers of values of [`Counter`] and of [`RefusalReason`].
const COUNTERS: usize = Counter::ALL.len();
const REASONS: usize = RefusalReason::ReadTooLarge as usize + 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Counts {
    refusals: [AtomicU64; REASONS],
    counters: [AtomicU64; COUNTERS],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            refusals: [const { AtomicU64::new(0) }; REASONS],
            counters: [const { AtomicU64::new(0) }; COUNTERS],
        }
    }
}

impl Counts {
    /// Counts a refusal.
    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        self.refusals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds one to a counter.
    pub(crate) fn count(&self, counter: Counter) {
        self.counters[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all counts are 0.
    pub(super) fn is_empty(&self) -> bool {
        self.refusals.iter().chain(&self.counters).all(|count| count.load(Ordering::Relaxed) == 0)
    }

    /// Refusals for this reason.
    pub(crate) fn refusals(&self, reason: RefusalReason) -> u64 {
        self.refusals[reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }
}

impl From<&Counts> for v1::Counts {
    fn from(counts: &Counts) -> Self {
        let row = |reason: RefusalReason| {
            let count = counts.refusals(reason);
            (count > 0).then_some(v1::RefusalCount { reason: reason.into(), count })
        };
        Self {
            refusals: RefusalReason::all().filter_map(row).collect(),
            connections_refused: counts.get(Counter::ConnectionRefused),
            connections_silent: counts.get(Counter::ConnectionSilent),
            connections_reset_flooded: counts.get(Counter::ConnectionResetFlooded),
            connections_unread: counts.get(Counter::ConnectionUnread),
            messages_undecodable: counts.get(Counter::MessageUndecodable),
            messages_oversized: counts.get(Counter::MessageOversized),
            calls_abandoned: counts.get(Counter::CallAbandoned),
            streams_abandoned: counts.get(Counter::StreamAbandoned),
            streams_stalled: counts.get(Counter::StreamStalled),
            sessions_replaced: counts.get(Counter::SessionReplaced),
            accesses_repeated: counts.get(Counter::AccessRepeated),
            handshakes_failed: counts.get(Counter::HandshakeFailed),
            tokens_refused: counts.get(Counter::TokenRefused),
            connections_paced: counts.get(Counter::ConnectionPaced),
            connections_given_up: counts.get(Counter::ConnectionGivenUp),
            connections_closed_early: counts.get(Counter::ConnectionClosedEarly),
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
        RefusalReason::all().for_each(|reason| counts.count_refusal(reason));
        counts.count_refusal(RefusalReason::Malformed);
        let refusals = v1::Counts::from(&counts).refusals;
        assert_eq!(refusals.len(), RefusalReason::all().count());
        assert!(
            refusals.iter().all(|row| row.count == 1 + u64::from(row.reason() == RefusalReason::Malformed))
        );
    }
}
