//! Answers: what a process is told (SPEC A1, R1).
//!
//! The model keeps the answer of a read as numbers (F8b); on the wire it carries the entries, which whoever
//! encodes it takes from the list.

use bytes::Bytes;
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Phase, Position, Value};

use super::access::value_from_wire;
use super::{WireError, phase};
use crate::attach::{DecodedResponse, ResponseFrame};
use crate::v1;

impl From<AppendAnswer> for v1::AppendResult {
    fn from(answer: AppendAnswer) -> Self {
        let (outcome, position) = match answer {
            AppendAnswer::Success(position) => (v1::AppendOutcome::Success, Some(position.get())),
            AppendAnswer::Failed => (v1::AppendOutcome::Failed, None),
            AppendAnswer::LimitReached => (v1::AppendOutcome::LimitReached, None),
        };
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

/// The answer of a read; `entries` are the values from its start on, of which it takes as many as it counts.
#[must_use]
pub fn read_result(answer: &ReadAnswer, entries: impl IntoIterator<Item = Bytes>) -> v1::ReadResult {
    let mut values = Vec::with_capacity(answer.count as usize);
    values.extend(entries.into_iter().take(answer.count as usize));
    v1::ReadResult { start: answer.start.get(), values, length: answer.length, sealed: answer.sealed }
}

/// The frame that answers an access. `entries` gives the values of the list from a position on; it is asked
/// for a read only. No phase: answered outside phases (F10).
pub fn answer_frame<I: IntoIterator<Item = Bytes>>(
    channel: u32,
    number: AccessNumber,
    phase: Option<Phase>,
    answer: &Answer,
    entries: impl FnOnce(Position) -> I,
) -> v1::Answer {
    let result = match answer {
        Answer::Append(append) => v1::answer::Result::Append((*append).into()),
        Answer::Read(read) => v1::answer::Result::Read(read_result(read, entries(read.start))),
    };
    v1::Answer { channel, number: number.get(), phase: phase_to_wire(phase), result: Some(result) }
}

/// The response of a unary append.
#[must_use]
pub fn append_response(phase: Option<Phase>, answer: AppendAnswer) -> v1::AppendResponse {
    v1::AppendResponse { phase: phase_to_wire(phase), result: Some(answer.into()) }
}

/// The response of a unary read; `entries` as for [`read_result`].
#[must_use]
pub fn read_response(
    phase: Option<Phase>,
    answer: &ReadAnswer,
    entries: impl IntoIterator<Item = Bytes>,
) -> v1::ReadResponse {
    v1::ReadResponse { phase: phase_to_wire(phase), result: Some(read_result(answer, entries)) }
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
            v1::answer::Result::Append(append) => Self::append(frame.phase, append)?,
            v1::answer::Result::Read(read) => Self::read(frame.phase, read, params)?,
        };
        Ok((number, received))
    }

    /// The answer of a unary append.
    ///
    /// # Errors
    /// When a field is missing.
    pub fn from_append(response: &v1::AppendResponse) -> Result<Self, WireError> {
        Self::append(response.phase, response.result.as_ref().ok_or(WireError::Missing("result"))?)
    }

    /// The answer of a unary read.
    ///
    /// # Errors
    /// When a field is missing or does not fit the parameters of the instance.
    pub fn from_read(response: &v1::ReadResponse, params: &Params) -> Result<Self, WireError> {
        Self::read(response.phase, response.result.as_ref().ok_or(WireError::Missing("result"))?, params)
    }

    fn append(number: u64, wire: &v1::AppendResult) -> Result<Self, WireError> {
        let phase = phase("phase", number)?;
        Ok(Self { phase: Some(phase), answer: Answer::Append(wire.try_into()?), entries: Vec::new() })
    }

    /// The answer of a frame that was read by hand, and the access that it answers.
    ///
    /// # Errors
    /// When it is no answer, or does not fit the parameters of the instance.
    pub fn from_decoded(
        heard: &DecodedResponse,
        learnt: &ResponseFrame,
        params: &Params,
    ) -> Result<(AccessNumber, Self), WireError> {
        Ok(match learnt {
            ResponseFrame::Append { number, phase, result, .. } => {
                (super::access_number("number", *number)?, Self::append(*phase, result)?)
            }
            ResponseFrame::Read { number, phase, start, values, length, sealed, .. } => {
                let number = super::access_number("number", *number)?;
                let answer = (Position::new(*start), *length, *sealed);
                (number, Self::read_of(*phase, answer, heard.values(values), params)?)
            }
            ResponseFrame::Decided { .. } | ResponseFrame::Other(_) => {
                return Err(WireError::Missing("result"));
            }
        })
    }

    fn read(number: u64, wire: &v1::ReadResult, params: &Params) -> Result<Self, WireError> {
        let answer = (Position::new(wire.start), wire.length, wire.sealed);
        Self::read_of(number, answer, wire.values.iter().map(|value| &value[..]), params)
    }

    fn read_of<'a>(
        number: u64,
        (start, length, sealed): (Position, u32, bool),
        values: impl ExactSizeIterator<Item = &'a [u8]>,
        params: &Params,
    ) -> Result<Self, WireError> {
        let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let past_the_end = count > 0 && start.get().checked_add(count).is_none_or(|end| end > length);
        if count > params.read_size() || past_the_end {
            return Err(WireError::Contradiction { field: "values", why: "are more than can stand there" });
        }
        let entries =
            values.map(|bytes| value_from_wire("values", bytes, params)).collect::<Result<_, _>>()?;
        let answer = Answer::Read(ReadAnswer { start, count, length, sealed });
        Ok(Self { phase: Phase::new(number), answer, entries })
    }
}

fn phase_to_wire(phase: Option<Phase>) -> u64 {
    phase.map_or(0, Phase::get)
}

#[cfg(test)]
mod tests {
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
    fn a_read_frame_carries_as_many_entries_as_it_counts() {
        let list: Vec<Bytes> = [&b"a"[..], b"b", b"c"].into_iter().map(Bytes::from_static).collect();
        let numbers = ReadAnswer { start: Position::new(1), count: 1, length: 3, sealed: false };
        let entries = |start: Position| list[start.index()..].iter().cloned();
        let frame = answer_frame(9, AccessNumber::FIRST, None, &Answer::Read(numbers), entries);
        let (number, received) = AnswerData::from_frame(&frame, &params()).unwrap();
        assert_eq!((frame.channel, number), (9, AccessNumber::FIRST));
        let entries = vec![Value::new(b"b").unwrap()];
        assert_eq!(received, AnswerData { phase: None, answer: Answer::Read(numbers), entries });
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
    fn a_read_answer_that_cannot_be_is_refused() {
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
