//! The measurements: latencies, in histograms, each under a [`Label`]: quantity, party and outcome.
//!
//! Correct and Byzantine processes never share a histogram, and neither do answers and refusals. A task that
//! measures writes into one of several shards, so that tasks do not wait for each other; once a second they
//! are emptied.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use stickycas_model::printable::printable;
use stickycas_model::types::ProcessId;
use stickycas_proto::v1::RefusalReason;

/// Significant digits of a measured value.
const DIGITS: u8 = 3;
/// Nanoseconds that stand for everything longer: a year.
const LONGEST: u64 = 365 * 24 * 60 * 60 * 1_000_000_000;

/// The quantity of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// From the planned start of an instance to the last decision of a correct process.
    Instance,
    /// The same from its actual start: the duration of the instance, without the time that it waited before.
    Service,
    /// How late instances began after their plan, in an open loop.
    StartLag,
    /// Creating an instance.
    Create,
    /// An append, from its sending to its answer.
    Append,
    /// A read, likewise.
    Read,
    /// The report of a decision, likewise.
    Decide,
    /// From the moment at which a process was answered to that at which a watcher was told; 0 if the watcher
    /// was first.
    WatchLag,
}

impl Measure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Instance,
        Self::Service,
        Self::StartLag,
        Self::Create,
        Self::Append,
        Self::Read,
        Self::Decide,
        Self::WatchLag,
    ];

    /// As one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Service => "service",
            Self::StartLag => "start_lag",
            Self::Create => "create",
            Self::Append => "append",
            Self::Read => "read",
            Self::Decide => "decide",
            Self::WatchLag => "watch_lag",
        }
    }
}

/// By whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    /// A correct process, or the load generator itself.
    Correct,
    /// A Byzantine process.
    Byzantine,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationOutcome {
    /// As it should.
    Done,
    /// An append that won its phase.
    Won,
    /// An append that lost it.
    Lost,
    /// An append that came to a list that takes no more.
    Limit,
    /// Refused, for this reason.
    Refused(RefusalReason),
    /// No connection, or it broke, or the stream ended.
    Unreachable,
    /// The answer is none of this protocol's.
    Protocol,
    /// The process gave up: its part has it so, or it cannot go on.
    GaveUp,
    /// Nothing happened any more.
    Stalled,
    /// The load ended before it did.
    CutOff,
}

impl OperationOutcome {
    /// Whether the server answered it and did not refuse it.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Done | Self::Won | Self::Lost | Self::Limit)
    }
}

/// Outcomes by their names; a refusal is called by its reason.
const OUTCOMES: [(OperationOutcome, &str); 9] = [
    (OperationOutcome::Done, "done"),
    (OperationOutcome::Won, "won"),
    (OperationOutcome::Lost, "lost"),
    (OperationOutcome::Limit, "limit"),
    (OperationOutcome::Unreachable, "unreachable"),
    (OperationOutcome::Protocol, "protocol"),
    (OperationOutcome::GaveUp, "gave_up"),
    (OperationOutcome::Stalled, "stalled"),
    (OperationOutcome::CutOff, "cut_off"),
];

impl fmt::Display for OperationOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Refused(reason) = self {
            return f.pad(reason.name());
        }
        f.pad(OUTCOMES.iter().find(|(outcome, _)| outcome == self).expect("every other outcome has a name").1)
    }
}

impl FromStr for OperationOutcome {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let named = OUTCOMES.into_iter().find(|(_, name)| *name == text).map(|(outcome, _)| outcome);
        named.or_else(|| RefusalReason::from_name(text).map(Self::Refused)).ok_or(())
    }
}

impl Serialize for OperationOutcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OperationOutcome {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|()| serde::de::Error::custom(format!("{text:?} is no end of a measurement")))
    }
}

/// The content of a histogram. Its text is `measure.party.end`, such as `append.correct.won`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Of what.
    pub measure: Measure,
    /// By whom.
    pub party: Party,
    /// How it ended.
    pub ended: OperationOutcome,
}

impl Label {
    /// The label of a measurement of the load generator itself.
    #[must_use]
    pub const fn own(measure: Measure, ended: OperationOutcome) -> Self {
        Self { measure, party: Party::Correct, ended }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let party = match self.party {
            Party::Correct => "correct",
            Party::Byzantine => "byzantine",
        };
        write!(f, "{}.{party}.{}", self.measure.name(), self.ended)
    }
}

impl FromStr for Label {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (measure, rest) = text.split_once('.').ok_or(())?;
        let (party, ended) = rest.split_once('.').ok_or(())?;
        let measure = Measure::ALL.into_iter().find(|known| known.name() == measure).ok_or(())?;
        let party = match party {
            "correct" => Party::Correct,
            "byzantine" => Party::Byzantine,
            _ => return Err(()),
        };
        Ok(Self { measure, party, ended: ended.parse()? })
    }
}

/// Histograms of nanoseconds, by label.
pub type Histograms = BTreeMap<Label, Histogram<u64>>;

/// The first message of each way to be refused or to fail.
pub type Messages = BTreeMap<OperationOutcome, String>;

/// So many characters of a message are kept.
const MESSAGE: usize = 300;

/// A message in one line: a server may write anything, and a terminal obeys some of it.
fn one_line(message: &str) -> String {
    let mut shown = printable(message).replace('\n', " ");
    if let Some((end, _)) = shown.char_indices().nth(MESSAGE) {
        shown.truncate(end);
        shown.push('\u{2026}');
    }
    shown
}

/// Adds one measured value to histograms.
pub fn record(histograms: &mut Histograms, label: Label, latency: Duration) {
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST);
    let histogram = histograms.entry(label).or_insert_with(empty);
    histogram.record(nanos.min(LONGEST)).expect("a histogram that grows takes every such number");
}

/// A histogram without a value, which grows as it must.
#[must_use]
pub fn empty() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("so many digits are allowed")
}

/// Adds histograms to others.
pub fn merge(into: &mut Histograms, from: &Histograms) {
    for (label, histogram) in from {
        let sum = into.entry(*label).or_insert_with(empty);
        sum.add(histogram).expect("a histogram that grows takes whatever another one holds");
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Principal {
    /// Its group, from 0.
    pub(super) group: usize,
    /// The process that it plays in every instance of that group.
    pub(super) process: ProcessId,
}

impl Principal {
    /// The shard that this principal writes to: always the same one.
    pub(super) fn shard(self) -> usize {
        self.process.index()
    }
}

/// The shards that all tasks record into. See the module.
#[derive(Debug)]
pub(super) struct Meter {
    shards: Vec<Mutex<Histograms>>,
    /// Whether it is neither warm-up nor drain.
    counting: AtomicBool,
    /// Instances that correct processes brought to their end meanwhile.
    instances: AtomicU64,
    /// Accesses answered meanwhile.
    accesses: AtomicU64,
    /// The phase of the last answer that came.
    phase: AtomicU64,
    /// The principals that the server has refused for sending more than they may.
    over_quota: Mutex<HashSet<Principal>>,
    /// Whether it counts in figures or not.
    messages: Mutex<Messages>,
}

impl Meter {
    /// With so many shards, 1 at least.
    pub(super) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards.max(1)).map(|_| Mutex::default()).collect(),
            counting: AtomicBool::new(false),
            instances: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            phase: AtomicU64::new(0),
            over_quota: Mutex::default(),
            messages: Mutex::default(),
        }
    }

    /// A shard to write to. `near`: the same number gets the same shard.
    pub(super) fn shard(&self, near: usize) -> MutexGuard<'_, Histograms> {
        self.shards[near % self.shards.len()].lock().expect("nobody panics while holding it")
    }

    /// Everything since the last call; it is then empty.
    pub(super) fn take(&self) -> Histograms {
        let mut all = Histograms::new();
        for shard in &self.shards {
            let taken = std::mem::take(&mut *shard.lock().expect("nobody panics while holding it"));
            if all.is_empty() { all = taken } else { merge(&mut all, &taken) }
        }
        all
    }

    /// From now on, rates count or do not.
    pub(super) fn count(&self, counting: bool) {
        self.counting.store(counting, Ordering::Relaxed);
    }

    /// An instance has come to its end.
    pub(super) fn instance(&self) {
        if self.counting.load(Ordering::Relaxed) {
            self.instances.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many accesses have been answered.
    pub(super) fn accesses(&self, answered: u64) {
        if answered > 0 && self.counting.load(Ordering::Relaxed) {
            self.accesses.fetch_add(answered, Ordering::Relaxed);
        }
    }

    /// An answer came from this phase.
    pub(super) fn phase(&self, phase: u64) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// The server has refused this principal for this reason, whether that counts in figures or not.
    pub(super) fn refused(&self, who: Principal, reason: RefusalReason) {
        use RefusalReason::{RateExceeded, TooManyConnections, TooManyStreams, TooManyWaiting};
        if matches!(reason, RateExceeded | TooManyConnections | TooManyStreams | TooManyWaiting) {
            self.over_quota.lock().expect("nobody panics while holding it").insert(who);
        }
    }

    /// Something ended so, with these words. Of each way to end, the first are kept.
    pub(super) fn said(&self, ended: OperationOutcome, message: &str) {
        let mut messages = self.messages.lock().expect("nobody panics while holding it");
        messages.entry(ended).or_insert_with(|| one_line(message));
    }

    /// The messages until now.
    pub(super) fn messages(&self) -> Messages {
        self.messages.lock().expect("nobody panics while holding it").clone()
    }

    /// The principals that the server has refused until now for sending more than they may, an offence (B2).
    pub(super) fn over_quota(&self) -> HashSet<Principal> {
        self.over_quota.lock().expect("nobody panics while holding it").clone()
    }

    /// The phase of the last answer that came; 0 for none.
    pub(super) fn last_phase(&self) -> u64 {
        self.phase.load(Ordering::Relaxed)
    }

    /// Instances and accesses that count in rates.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.instances.load(Ordering::Relaxed), self.accesses.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WON: Label =
        Label { measure: Measure::Append, party: Party::Byzantine, ended: OperationOutcome::Won };

    #[test]
    fn every_label_reads_back_as_it_is_written() {
        let refused = OperationOutcome::Refused(RefusalReason::RateExceeded);
        let ends = OUTCOMES.map(|(outcome, _)| outcome);
        for measure in Measure::ALL {
            for party in [Party::Correct, Party::Byzantine] {
                for ended in ends.into_iter().chain([refused]) {
                    let label = Label { measure, party, ended };
                    assert_eq!(label.to_string().parse(), Ok(label));
                }
            }
        }
        assert_eq!(WON.to_string(), "append.byzantine.won");
        assert_eq!("append.byzantine".parse::<Label>(), Err(()));
    }

    #[test]
    fn shards_come_together_and_are_empty_afterwards() {
        let meter = Meter::new(2);
        for (near, micros) in [(0, 10), (1, 20), (2, 30), (5, 40)] {
            record(&mut meter.shard(near), WON, Duration::from_micros(micros));
        }
        let taken = meter.take();
        assert_eq!(taken[&WON].len(), 4);
        assert!((20_000..20_020).contains(&taken[&WON].value_at_quantile(0.5)));
        assert!(meter.take().is_empty());
    }

    #[test]
    fn a_latency_of_any_length_is_kept_to_three_digits() {
        let mut histograms = Histograms::new();
        for latency in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(86_400), Duration::MAX] {
            record(&mut histograms, WON, latency);
        }
        assert_eq!(histograms[&WON].len(), 4);
        let day = histograms[&WON].value_at_quantile(0.75) as f64 / 86.4e12;
        assert!((day - 1.0).abs() < 1e-3, "{day}");
    }

    #[test]
    fn the_first_message_of_each_outcome_is_kept_escaped() {
        let meter = Meter::new(1);
        let refused = OperationOutcome::Refused(RefusalReason::RateExceeded);
        meter.said(refused, "no more than 10\u{1b}[2J\n");
        meter.said(refused, "another");
        meter.said(OperationOutcome::Unreachable, &"x".repeat(MESSAGE + 1));
        let messages = meter.messages();
        assert_eq!(messages[&refused], "no more than 10\\u{1b}[2J ");
        let long = &messages[&OperationOutcome::Unreachable];
        assert!(long.chars().count() == MESSAGE + 1 && long.ends_with('\u{2026}'), "{long}");
    }

    #[test]
    fn rates_count_only_while_they_are_told_to() {
        let meter = Meter::new(1);
        meter.instance();
        meter.count(true);
        meter.instance();
        meter.accesses(64);
        meter.count(false);
        meter.accesses(64);
        assert_eq!(meter.counted(), (1, 64));
    }
}
