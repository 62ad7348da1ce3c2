//! The report of a process at its end, and the verdict that answers it.

use stickycas_model::judge::Outcome;
use stickycas_model::params::Params;
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::{AccessNumber, Phase, ProcessId, Value};

use super::WireError;
use super::access::value_from_wire;
use crate::names::InstanceId;
use crate::v1;
use crate::v1::RefusalReason;

/// The most characters of a failure that are kept.
const MAX_FAILURE_CHARS: usize = 1000;

/// The report of a process at its end. The process itself is known from the channel, not from the message
/// (SPEC section 10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessReport {
    /// Its decision.
    pub decision: Option<Value>,
    /// The phase of its last answer.
    pub phase: Option<Phase>,
    /// The entries from which it decided, in the order of their positions.
    pub from: Vec<Value>,
    /// How it ended.
    pub ended: ProcessEnd,
    /// The reason of the refusal that ended it.
    pub refusal: Option<RefusalReason>,
    /// The access that it waited for when the instance was closed, its session standing.
    pub unanswered: Option<AccessNumber>,
    /// Its proposal, if known.
    pub proposal: Option<Value>,
    /// Sessions after the first one.
    pub reconnections: u64,
}

impl ProcessReport {
    /// From the wire; `params` are those of the instance.
    ///
    /// # Errors
    /// When a field is missing or does not fit the parameters of the instance.
    pub fn from_wire(wire: &v1::ReportRequest, params: &Params) -> Result<Self, WireError> {
        let value = |field| move |bytes: &bytes::Bytes| value_from_wire(field, bytes, params);
        if wire.entries.len() > params.processes() as usize {
            return Err(WireError::Contradiction { field: "entries", why: "are more than a list can hold" });
        }
        let ended = match v1::ReportedEnd::try_from(wire.end) {
            Ok(v1::ReportedEnd::Decided) if wire.decision.is_none() => {
                return Err(WireError::Missing("decision"));
            }
            Ok(v1::ReportedEnd::Decided) => ProcessEnd::Decided,
            Ok(v1::ReportedEnd::NothingToDecide) => ProcessEnd::NothingToDecide,
            Ok(v1::ReportedEnd::Failed) => {
                ProcessEnd::Failed(wire.failure.chars().take(MAX_FAILURE_CHARS).collect())
            }
            Ok(v1::ReportedEnd::Unspecified) | Err(_) => {
                return Err(WireError::UnknownEnum { field: "end", value: wire.end });
            }
        };
        let refusal = wire.refusal();
        Ok(Self {
            decision: wire.decision.as_ref().map(value("decision")).transpose()?,
            phase: Phase::new(wire.phase),
            from: wire.entries.iter().map(value("entries")).collect::<Result<_, _>>()?,
            ended,
            refusal: (refusal != RefusalReason::Unspecified).then_some(refusal),
            unanswered: wire.unanswered.and_then(AccessNumber::new),
            proposal: wire.proposal.as_ref().map(value("proposal")).transpose()?,
            reconnections: wire.reconnections,
        })
    }

    /// The request that reports this at an instance.
    #[must_use]
    pub fn to_wire(&self, instance: InstanceId) -> v1::ReportRequest {
        let (end, failure) = match &self.ended {
            ProcessEnd::Decided => (v1::ReportedEnd::Decided, ""),
            ProcessEnd::NothingToDecide => (v1::ReportedEnd::NothingToDecide, ""),
            ProcessEnd::Failed(why) => (v1::ReportedEnd::Failed, why.as_str()),
        };
        v1::ReportRequest {
            instance_id: instance.to_string(),
            end: end.into(),
            decision: self.decision.as_ref().map(Value::to_bytes),
            phase: self.phase.map_or(0, Phase::get),
            entries: self.from.iter().map(Value::to_bytes).collect(),
            failure: failure.chars().take(MAX_FAILURE_CHARS).collect(),
            refusal: self.refusal.unwrap_or(RefusalReason::Unspecified).into(),
            proposal: self.proposal.as_ref().map(Value::to_bytes),
            reconnections: self.reconnections,
            unanswered: self.unanswered.map(AccessNumber::get),
        }
    }

    /// The report that the judge takes, for this process.
    #[must_use]
    pub fn into_report(self, process: ProcessId) -> Report {
        let Self { decision, phase, from, ended, unanswered, .. } = self;
        Report { process, decision, phase, from: from.into(), ended, unanswered }
    }
}

impl From<Outcome> for v1::Verdict {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Valid => Self::Valid,
            Outcome::Outside => Self::Outside,
            Outcome::Unknown => Self::Unknown,
            Outcome::Violation => Self::Violation,
        }
    }
}

/// The verdict that answers a report.
///
/// # Errors
/// When there is none, or one that is not known here.
pub fn verdict_from_wire(wire: &v1::ReportResponse) -> Result<Outcome, WireError> {
    match v1::Verdict::try_from(wire.verdict) {
        Ok(v1::Verdict::Valid) => Ok(Outcome::Valid),
        Ok(v1::Verdict::Outside) => Ok(Outcome::Outside),
        Ok(v1::Verdict::Unknown) => Ok(Outcome::Unknown),
        Ok(v1::Verdict::Violation) => Ok(Outcome::Violation),
        Ok(v1::Verdict::Unspecified) | Err(_) => {
            Err(WireError::UnknownEnum { field: "verdict", value: wire.verdict })
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::params::ParamsSpec;

    use super::*;

    fn params() -> Params {
        Params::try_new(ParamsSpec::new(2, 1, 2)).expect("they are in range")
    }

    fn value(text: &str) -> Value {
        Value::parse(text).expect("it is not empty")
    }

    fn decided() -> ProcessReport {
        ProcessReport {
            decision: Some(value("tea")),
            phase: Phase::new(4),
            from: vec![value("tea"), value("milk")],
            ended: ProcessEnd::Decided,
            refusal: None,
            unanswered: None,
            proposal: Some(value("tea")),
            reconnections: 1,
        }
    }

    #[test]
    fn a_report_arrives_as_it_was() {
        let failed = ProcessReport {
            decision: None,
            phase: None,
            from: Vec::new(),
            ended: ProcessEnd::Failed("no such instance".to_owned()),
            refusal: Some(RefusalReason::InstanceUnknown),
            unanswered: AccessNumber::new(3),
            proposal: None,
            reconnections: 0,
        };
        for report in [decided(), failed] {
            let wire = report.to_wire(InstanceId::new(1));
            assert_eq!(ProcessReport::from_wire(&wire, &params()), Ok(report));
        }
    }

    #[test]
    fn a_report_that_does_not_fit_names_the_field() {
        let good = decided().to_wire(InstanceId::new(1));
        let wrong = |change: fn(&mut v1::ReportRequest)| {
            let mut wire = good.clone();
            change(&mut wire);
            ProcessReport::from_wire(&wire, &params()).expect_err("it does not fit").to_string()
        };
        assert_eq!(wrong(|wire| wire.end = 0), "end = 0 has no meaning");
        assert_eq!(wrong(|wire| wire.end = 77), "end = 77 has no meaning");
        assert_eq!(wrong(|wire| wire.decision = None), "decision is missing");
        assert_eq!(wrong(|wire| wire.entries.push("x".into())), "entries are more than a list can hold");
        assert!(wrong(|wire| wire.decision = Some("".into())).starts_with("decision:"));
        assert!(wrong(|wire| wire.entries[1] = vec![0; 5000].into()).starts_with("entries:"));
    }

    #[test]
    fn every_verdict_reads_back_and_an_unknown_one_fails() {
        for outcome in [Outcome::Valid, Outcome::Outside, Outcome::Unknown, Outcome::Violation] {
            let verdict = v1::Verdict::from(outcome).into();
            assert_eq!(verdict_from_wire(&v1::ReportResponse { verdict }), Ok(outcome));
        }
        assert!(verdict_from_wire(&v1::ReportResponse { verdict: 0 }).is_err());
    }
}
