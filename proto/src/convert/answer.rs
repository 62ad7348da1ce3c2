//! Answers (SPEC A1, R1).
//!
//! The model keeps the answer of a read as numbers (F8b). On the wire it carries the entries as well, which
//! come from the list.

use bytes::Bytes;
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Phase, Position, Value};

use super::WireError;
use super::access::value_from_wire;
use crate::v1;

/// The fields of an `AppendResult`.
pub(crate) const fn outcome_and_position(answer: AppendAnswer) -> (v1::AppendOutcome, Option<u32>) {
    match answer {
        AppendAnswer::Success(position) => (v1::AppendOutcome::Success, Some(position.get())),
        AppendAnswer::Failed => (v1::AppendOutcome::Failed, None),
        AppendAnswer::LimitReached => (v1::AppendOutcome::LimitReached, None),
    }
}

impl From<AppendAnswer> for v1::AppendResult {
    fn from(answer: AppendAnswer) -> Self {
        let (outcome, position) = outcome_and_position(answer);
        Self { outcome: outcome.into(), position }
    }
}

impl TryFrom<&v1::AppendResult> for AppendAnswer {
    type Error = WireError;

    fn try_from(wire: &v1::AppendResult) -> Result<Self, WireError> {
        let unknown = WireError::UnknownEnum { field: "outcome", value: wire.outcome };
        let outcome = v1::AppendOutcome::try_from(wire.outcome).map_err(|_| unknown.clone())?;
        match (outcome, wire.position) {
            (v1::AppendOutcome::Unspecified, _) => Err(unknown),
            (v1::AppendOutcome::Success, Some(position)) => Ok(Self::Success(Position::new(position))),
            (v1::AppendOutcome::Success, None) => Err(WireError::Missing("position")),
            (_, Some(_)) => {
                Err(WireError::Contradiction { field: "position", why: "is for the outcome SUCCESS only" })
            }
            (v1::AppendOutcome::Failed, None) => Ok(Self::Failed),
            (v1::AppendOutcome::LimitReached, None) => Ok(Self::LimitReached),
        }
    }
}

/// The response of a unary append.
#[must_use]
pub fn append_response(phase: Option<Phase>, answer: AppendAnswer) -> v1::AppendResponse {
    v1::AppendResponse { phase: phase.map_or(0, Phase::get), result: Some(answer.into()) }
}

/// The response of a unary read, which returned these values.
pub fn read_response<'a>(
    phase: Option<Phase>,
    answer: ReadAnswer,
    values: impl Iterator<Item = &'a [u8]>,
) -> v1::ReadResponse {
    let result = v1::ReadResult {
        start: answer.start.get(),
        values: values.map(Bytes::copy_from_slice).collect(),
        length: answer.length,
        sealed: answer.sealed,
    };
    v1::ReadResponse { phase: phase.map_or(0, Phase::get), result: Some(result) }
}

/// An answer as a client receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerData {
    /// The phase in which the access was executed; `None`: a read answered outside phases (F10).
    pub phase: Option<Phase>,
    /// The answer.
    pub answer: Answer,
    /// The entries that a read returned, from its start on. Empty for an append.
    pub entries: Vec<Value>,
}

impl AnswerData {
    /// The answer of a frame on Attach, and the access that it answers.
    ///
    /// # Errors
    /// When a field is missing or does not fit the parameters of the instance.
    pub fn from_frame(frame: &v1::Answer, params: &Params) -> Result<(AccessNumber, Self), WireError> {
        let number = super::access_number("number", frame.number)?;
        let received = match frame.result.as_ref().ok_or(WireError::Missing("result"))? {
            v1::answer::Result::Append(append) => Self::from_append_result(frame.phase, append)?,
            v1::answer::Result::Read(read) => Self::from_read_result(frame.phase, read, params)?,
        };
        Ok((number, received))
    }

    /// The answer of a unary append.
    ///
    /// # Errors
    /// When a field is missing.
    pub fn from_append(response: &v1::AppendResponse) -> Result<Self, WireError> {
        Self::from_append_result(
            response.phase,
            response.result.as_ref().ok_or(WireError::Missing("result"))?,
        )
    }

    /// The answer of a unary read.
    ///
    /// # Errors
    /// When a field is missing or does not fit the parameters of the instance.
    pub fn from_read(response: &v1::ReadResponse, params: &Params) -> Result<Self, WireError> {
        Self::from_read_result(
            response.phase,
            response.result.as_ref().ok_or(WireError::Missing("result"))?,
            params,
        )
    }

    /// The answer of an append that was executed in this phase.
    ///
    /// # Errors
    /// When a field is missing.
    pub fn from_append_result(phase: u64, result: &v1::AppendResult) -> Result<Self, WireError> {
        let phase = super::phase("phase", phase)?;
        Ok(Self { phase: Some(phase), answer: Answer::Append(result.try_into()?), entries: Vec::new() })
    }

    fn from_read_result(phase: u64, read: &v1::ReadResult, params: &Params) -> Result<Self, WireError> {
        let values = read.values.iter().map(|value| &value[..]);
        Self::from_read_values(phase, read.start, values, read.length, read.sealed, params)
    }

    /// The answer of a read, from the fields of its message. Phase 0: answered outside phases (F10).
    ///
    /// # Errors
    /// When the values do not fit the parameters of the instance.
    pub fn from_read_values<'a>(
        phase: u64,
        start: u32,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
        length: u32,
        sealed: bool,
        params: &Params,
    ) -> Result<Self, WireError> {
        let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let past_the_end = count > 0 && start.checked_add(count).is_none_or(|end| end > length);
        if count > params.read_size() || past_the_end {
            return Err(WireError::Contradiction { field: "values", why: "are more than can stand there" });
        }
        let entries =
            values.map(|bytes| value_from_wire("values", bytes, params)).collect::<Result<_, _>>()?;
        let answer = Answer::Read(ReadAnswer { start: Position::new(start), count, length, sealed });
        Ok(Self { phase: Phase::new(phase), answer, entries })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use stickycas_model::params::ParamsSpec;

    fn params() -> Params {
        Params::try_new(ParamsSpec::new(4, 2, 2)).unwrap()
    }

    fn read(start: u32, values: &[&'static [u8]], length: u32) -> v1::ReadResponse {
        let values = values.iter().map(|value| Bytes::from_static(value)).collect();
        v1::ReadResponse { phase: 3, result: Some(v1::ReadResult { start, values, length, sealed: true }) }
    }

    #[test]
    fn the_answer_of_a_frame_has_its_number_and_entries() {
        let values = vec![Bytes::from_static(b"b")];
        let read = v1::ReadResult { start: 1, values, length: 3, sealed: false };
        let result = Some(v1::answer::Result::Read(read));
        let frame = v1::Answer { channel: 9, number: 1, phase: 0, result };
        let (number, received) = AnswerData::from_frame(&frame, &params()).unwrap();
        assert_eq!(number, AccessNumber::FIRST);
        let answer = Answer::Read(ReadAnswer { start: Position::new(1), count: 1, length: 3, sealed: false });
        assert_eq!(received, AnswerData { phase: None, answer, entries: vec![Value::new(b"b").unwrap()] });
    }

    #[test]
    fn every_answer_to_an_append_reads_back() {
        for answer in
            [AppendAnswer::Success(Position::new(0)), AppendAnswer::Failed, AppendAnswer::LimitReached]
        {
            let received = AnswerData::from_append(&append_response(Some(Phase::FIRST), answer)).unwrap();
            assert_eq!((received.phase, received.answer), (Some(Phase::FIRST), Answer::Append(answer)));
        }
    }

    #[test]
    fn an_append_is_always_answered_in_a_phase() {
        let response = append_response(None, AppendAnswer::Failed);
        assert_eq!(AnswerData::from_append(&response), Err(WireError::Zero("phase")));
    }

    #[test]
    fn success_has_a_position_and_nothing_else_has_one() {
        let result = |outcome: v1::AppendOutcome, position| {
            AppendAnswer::try_from(&v1::AppendResult { outcome: outcome.into(), position })
        };
        assert_eq!(result(v1::AppendOutcome::Success, None), Err(WireError::Missing("position")));
        assert!(matches!(result(v1::AppendOutcome::Failed, Some(0)), Err(WireError::Contradiction { .. })));
        let unspecified = WireError::UnknownEnum { field: "outcome", value: 0 };
        assert_eq!(result(v1::AppendOutcome::Unspecified, Some(0)), Err(unspecified));
    }

    #[test]
    fn a_read_that_returns_more_than_it_may_is_refused() {
        let convert = |response| AnswerData::from_read(&response, &params());
        assert!(convert(read(1, &[b"a", b"b"], 3)).is_ok());
        assert!(convert(read(u32::MAX, &[], 3)).is_ok());
        let more = Err(WireError::Contradiction { field: "values", why: "are more than can stand there" });
        assert_eq!(convert(read(0, &[b"a", b"b", b"c"], 3)), more, "more than r");
        assert_eq!(convert(read(2, &[b"a", b"b"], 3)), more, "past the end");
        assert_eq!(convert(read(u32::MAX, &[b"a"], 3)), more, "past every end");
        assert!(matches!(convert(read(0, &[b""], 3)), Err(WireError::Value { .. })));
    }
}
