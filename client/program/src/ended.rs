//! How a play on the command line has ended: for people, for a judge, and as an exit code.

use stickycas_client::Error;
use stickycas_model::process::ProcessEnd;
use stickycas_model::types::Value;
use stickycas_proto::v1::RefusalReason;

use super::exit::Exit;
use super::failure::Failure;
use super::record::{ErrorRecord, PlayRecord};

/// What a correct process has in the place of a strategy.
pub(super) const CORRECT: &str = "correct";

/// A play that has ended.
pub(super) struct EndedPlay {
    pub(super) record: PlayRecord,
    /// What the process was given to propose.
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

    /// What people read.
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
                    " (an earlier life of it did)".to_owned()
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
    use stickycas_model::types::{Phase, ProcessId};

    use super::*;

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
