//! How a play on the command line has ended: for people, for a judge, as an exit code, and as the line of
//! JSON by which `propose --json` reports to the program that started it.

use serde::{Deserialize, Serialize};
use stickycas_attacks::AttackReport;
use stickycas_client::{Error, InstanceId, Played, ProcessReport, RefusalReason};
use stickycas_model::process::ProcessEnd;
use stickycas_model::types::{AccessNumber, Phase, ProcessId, Value};

use super::output::{Exit, Failure};

/// The report of a process and how it fared on the network. Field names are stable; absent means unknown or
/// none. Values are written as text, or as `0x` and hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayRecord {
    /// The instance: 32 hex digits.
    pub instance: String,
    /// Its principal.
    pub principal: String,
    /// `correct`, or the strategy or wire attack with its arguments.
    pub strategy: String,
    /// Which process it was. Absent if it never opened a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// Its decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
    /// The phase of the last answer it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The entries it decided from, in the order of their positions. Empty if an earlier life had decided.
    pub from: Vec<Value>,
    /// `decided`, `nothing_to_decide`, or `{"failed": why}`.
    pub ended: ProcessEnd,
    /// The access whose answer it still waited for when the run was given up. Absent if it waited for none,
    /// or its session was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<AccessNumber>,
    /// Accesses sent in this life, each counted once.
    pub accesses: u64,
    /// Sessions after the first one.
    pub reconnections: u64,
    /// The acts of a wire attack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attack: Option<AttackReport>,
    /// The error that stopped it, if it did not come to its own end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
}

/// An error, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorRecord {
    /// `refused`, `unreachable`, `gave_up`, `foreign`, `protocol`, `lost`, `usage` or `undecided`.
    pub kind: String,
    /// The reason of the server's refusal, for example `INSTANCE_UNKNOWN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In words.
    pub message: String,
}

impl From<&Error> for ErrorRecord {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind().to_owned(),
            reason: error.reason().map(|reason| reason.name().to_owned()),
            message: error.to_string(),
        }
    }
}

impl PlayRecord {
    /// The record of a play by this principal at this instance.
    #[must_use]
    pub fn new(instance: InstanceId, principal: &str, strategy: &str, played: &Played) -> Self {
        let report = played.report.as_ref();
        let without_report = || match &played.error {
            Some(error) => ProcessEnd::Failed(error.to_string()),
            None => ProcessEnd::NothingToDecide,
        };
        Self {
            instance: instance.to_string(),
            principal: principal.to_owned(),
            strategy: strategy.to_owned(),
            process: report.map(|report| report.process),
            decision: report.and_then(|report| report.decision.clone()),
            phase: report.and_then(|report| report.phase),
            from: report.map_or_else(Vec::new, |report| report.from.to_vec()),
            ended: report.map_or_else(without_report, |report| report.ended.clone()),
            unanswered: report.and_then(|report| report.unanswered),
            accesses: played.accesses,
            reconnections: played.reconnections,
            attack: None,
            error: played.error.as_ref().map(ErrorRecord::from),
        }
    }

    /// The report of the process to a judge; `proposal` is what it proposed.
    #[must_use]
    pub fn report(&self, proposal: Option<Value>) -> ProcessReport {
        let reason = self.error.as_ref().and_then(|error| error.reason.as_deref());
        ProcessReport {
            decision: self.decision.clone(),
            phase: self.phase,
            from: self.from.clone(),
            ended: self.ended.clone(),
            refusal: reason.and_then(RefusalReason::from_name),
            unanswered: self.unanswered,
            proposal,
            reconnections: self.reconnections,
        }
    }
}

/// The text for a correct process in the place of a strategy.
pub(super) const CORRECT: &str = "correct";

/// A play that has ended.
pub(super) struct EndedPlay {
    pub(super) record: PlayRecord,
    /// The value that the process was given to propose.
    pub(super) proposal: Option<Value>,
    pub(super) error: Option<Error>,
}

impl EndedPlay {
    /// The same, ended by this error unless by an earlier one.
    pub(super) fn failed(mut self, error: Error) -> Self {
        self.record.error.get_or_insert_with(|| ErrorRecord::from(&error));
        if self.record.ended != ProcessEnd::Decided {
            self.record.ended = ProcessEnd::Failed(error.to_string());
        }
        self.error.get_or_insert(error);
        self
    }

    /// Whether there is more to tell than the error that kept the process away.
    pub(super) fn has_joined_or_ended(&self) -> bool {
        self.error.is_none() || self.record.process.is_some()
    }

    /// Whether a newer client plays the process: that one will say how it ends.
    pub(super) fn was_replaced(&self) -> bool {
        self.error.as_ref().and_then(Error::reason) == Some(RefusalReason::SessionReplaced)
    }

    /// The error, if any, still has to be told; a Byzantine process ends well however it ends by itself.
    pub(super) fn exit(self) -> Result<Exit, Failure> {
        let Self { record, error, .. } = self;
        match (error, record.ended) {
            (Some(error), _) => Err(error.into()),
            (None, ProcessEnd::Decided) => Ok(Exit::Done),
            (None, _) => Ok(if record.strategy == CORRECT { Exit::Ended } else { Exit::Done }),
        }
    }

    /// The record in words.
    pub(super) fn text(&self) -> String {
        let Self { record, .. } = self;
        let who =
            record.process.map_or_else(|| record.principal.clone(), |process| format!("process {process}"));
        let phase = record.phase.map_or_else(String::new, |phase| format!(" in phase {phase}"));
        if let Some(done) = &record.attack {
            return format!("{who}, {}: {done}", record.strategy);
        }
        match (&record.ended, &record.decision) {
            (ProcessEnd::Decided, Some(decision)) => {
                let from: Vec<String> = record.from.iter().map(ToString::to_string).collect();
                let from = if from.is_empty() {
                    " before this program was started".to_owned()
                } else {
                    format!("{phase}, from: {}", from.join(" "))
                };
                format!("{decision}\n{who} decided{from}")
            }
            (ProcessEnd::Failed(why), _) => format!("{who} has no decision: {why}"),
            _ => format!("{who} ended without a decision{phase}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::process::Report;
    use stickycas_proto::status::RpcRefusal;

    use super::*;

    #[test]
    fn the_line_of_a_decision_reads_back() {
        let value = Value::parse("a").unwrap();
        let report = Report {
            process: ProcessId::FIRST,
            decision: Some(value.clone()),
            phase: Phase::new(4),
            from: vec![value].into(),
            ended: ProcessEnd::Decided,
            unanswered: None,
        };
        let played = Played { report: Some(report), accesses: 2, ..Played::unseen() };
        let record = PlayRecord::new(InstanceId::new(1), "p1", "correct", &played);
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(
            line,
            r#"{"instance":"00000000000000000000000000000001","principal":"p1","strategy":"correct","process":1,"decision":"a","phase":4,"from":["a"],"ended":"decided","accesses":2,"reconnections":0}"#
        );
        assert_eq!(serde_json::from_str::<PlayRecord>(&line).unwrap(), record);
    }

    #[test]
    fn the_record_of_a_process_that_never_joined_says_why() {
        let refused = RpcRefusal::new(RefusalReason::InstanceUnknown, "no such instance");
        let error = Some(Error::from(refused));
        let played = Played { error, ..Played::unseen() };
        let record = PlayRecord::new(InstanceId::new(1), "p1", "correct", &played);
        assert_eq!(record.process, None);
        let error = record.error.unwrap();
        assert_eq!((error.kind.as_str(), error.reason.as_deref()), ("refused", Some("INSTANCE_UNKNOWN")));
    }

    fn show(record: PlayRecord) -> String {
        EndedPlay { record, proposal: None, error: None }.text()
    }

    #[test]
    fn the_text_of_a_play_begins_with_the_decision() {
        let value = |text| Value::parse(text).unwrap();
        let record = PlayRecord {
            instance: String::new(),
            principal: "p2".to_owned(),
            strategy: "correct".to_owned(),
            process: ProcessId::new(2),
            decision: Some(value("a")),
            phase: Phase::new(4),
            from: vec![value("a"), value("b"), value("a")],
            ended: ProcessEnd::Decided,
            unanswered: None,
            accesses: 2,
            reconnections: 0,
            attack: None,
            error: None,
        };
        assert_eq!(show(record.clone()), "a\nprocess 2 decided in phase 4, from: a b a");
        let failed = PlayRecord { process: None, ended: ProcessEnd::Failed("lost".to_owned()), ..record };
        assert_eq!(show(failed), "p2 has no decision: lost");
    }
}
