//! Between the types of [`crate::store`] and the messages of etcd.

use std::time::Duration;

use bytes::Bytes;

use super::wire;
use super::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use super::wire::event::EventType;
use super::wire::request_op::Request;
use super::wire::response_op::Response;
use crate::store::{
    Change, Compare, KeyRange, KeyValue, LeaseId, Op, RangeAnswer, Revision, StoreError, Txn, TxnAnswer,
};

/// An answer that etcd never gives: a field is missing or out of its range.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer of etcd makes no sense: {0}")]
pub(super) struct Malformed(&'static str);

/// In `range_end`: all keys from the first one on.
const TO_THE_END: &[u8] = &[0];

/// `key` and `range_end` of a range.
///
/// # Errors
/// [`StoreError::Refused`]: etcd has no such range, or reads it otherwise: it takes an empty `range_end` for
/// a single key, and a zero byte for no end.
pub(super) fn range(range: KeyRange) -> Result<(Bytes, Bytes), StoreError> {
    let refuse = |reason: &str| Err(StoreError::Refused(reason.to_owned()));
    if range.from.is_empty() {
        return refuse("the first key of a range is empty");
    }
    match range.to {
        None => Ok((range.from, Bytes::new())),
        Some(to) if to.is_empty() || to == TO_THE_END => {
            refuse("no key is smaller than the end of the range")
        }
        Some(to) => Ok((range.from, to)),
    }
}

pub(super) fn range_request(keys: KeyRange, limit: usize) -> Result<wire::RangeRequest, StoreError> {
    let (key, range_end) = range(keys)?;
    // A limit that is too large for the message is none.
    let limit = i64::try_from(limit).unwrap_or(0);
    Ok(wire::RangeRequest { key, range_end, limit, ..wire::RangeRequest::default() })
}

pub(super) fn txn_request(txn: Txn) -> Result<wire::TxnRequest, StoreError> {
    Ok(wire::TxnRequest {
        compare: txn.compare.into_iter().map(compare).collect::<Result<_, _>>()?,
        success: txn.then.into_iter().map(op).collect::<Result<_, _>>()?,
        failure: txn.otherwise.into_iter().map(op).collect::<Result<_, _>>()?,
    })
}

fn compare(compare: Compare) -> Result<wire::Compare, StoreError> {
    let (target, key, union) = match compare {
        Compare::Created(key, revision) => {
            let revision = signed(revision)?;
            (CompareTarget::Create, key, TargetUnion::CreateRevision(revision))
        }
        Compare::Value(key, value) => (CompareTarget::Value, key, TargetUnion::Value(value)),
    };
    Ok(wire::Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key,
        target_union: Some(union),
    })
}

fn op(op: Op) -> Result<wire::RequestOp, StoreError> {
    let request = match op {
        Op::Put { key, value, lease } => {
            let lease = lease.map_or(0, |lease| lease.0);
            Request::RequestPut(wire::PutRequest { key, value, lease })
        }
        Op::Delete(keys) => {
            let (key, range_end) = range(keys)?;
            Request::RequestDeleteRange(wire::DeleteRangeRequest { key, range_end })
        }
        Op::Get(keys) => Request::RequestRange(range_request(keys, 0)?),
    };
    Ok(wire::RequestOp { request: Some(request) })
}

/// A revision as etcd takes it.
///
/// # Errors
/// [`StoreError::Refused`]: it is larger than any revision of etcd.
pub(super) fn signed(revision: Revision) -> Result<i64, StoreError> {
    i64::try_from(revision.0).map_err(|_| StoreError::Refused(format!("there is no revision {}", revision.0)))
}

/// Seconds for a lease, rounded up.
pub(super) fn seconds(time: Duration) -> i64 {
    let up = u64::from(time.subsec_nanos() > 0);
    i64::try_from(time.as_secs().saturating_add(up)).unwrap_or(i64::MAX).max(1)
}

pub(super) fn txn_answer(answer: wire::TxnResponse) -> Result<TxnAnswer, Malformed> {
    let mut found = Vec::new();
    for response in answer.responses {
        match response.response {
            Some(Response::ResponseRange(range)) => found.push(key_values(range.kvs)?),
            Some(Response::ResponsePut(_) | Response::ResponseDeleteRange(_)) => {}
            None => return Err(Malformed("an operation without an answer")),
        }
    }
    Ok(TxnAnswer { revision: of_header(answer.header.as_ref())?, succeeded: answer.succeeded, found })
}

pub(super) fn range_answer(answer: wire::RangeResponse) -> Result<RangeAnswer, Malformed> {
    Ok(RangeAnswer {
        revision: of_header(answer.header.as_ref())?,
        found: key_values(answer.kvs)?,
        more: answer.more,
    })
}

pub(super) fn change(event: wire::Event) -> Result<(Revision, Change), Malformed> {
    let kind = EventType::try_from(event.r#type).map_err(|_| Malformed("an event of no kind"))?;
    let kv = event.kv.ok_or(Malformed("an event without a key"))?;
    let at = revision(kv.mod_revision)?;
    let change = match kind {
        EventType::Put => Change::Put(key_value(kv)?),
        EventType::Delete => Change::Deleted(kv.key, at),
    };
    Ok((at, change))
}

pub(super) fn revision(number: i64) -> Result<Revision, Malformed> {
    u64::try_from(number).map(Revision).map_err(|_| Malformed("a negative revision"))
}

fn of_header(header: Option<&wire::ResponseHeader>) -> Result<Revision, Malformed> {
    revision(header.ok_or(Malformed("there is no header"))?.revision)
}

fn key_values(kvs: Vec<wire::KeyValue>) -> Result<Vec<KeyValue>, Malformed> {
    kvs.into_iter().map(key_value).collect()
}

fn key_value(kv: wire::KeyValue) -> Result<KeyValue, Malformed> {
    Ok(KeyValue {
        created: revision(kv.create_revision)?,
        modified: revision(kv.mod_revision)?,
        lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
        key: kv.key,
        value: kv.value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_etcd_reads_otherwise_are_refused() {
        assert_eq!(range(KeyRange::prefix("a/")), Ok(("a/".into(), "a0".into())));
        assert_eq!(range(KeyRange::one("a")), Ok(("a".into(), Bytes::new())));
        let empty = KeyRange { from: "a".into(), to: Some(Bytes::new()) };
        let zero = KeyRange { from: "a".into(), to: Some(TO_THE_END.into()) };
        for refused in [KeyRange::one(""), KeyRange::prefix(vec![255]), empty, zero] {
            assert!(matches!(range(refused.clone()), Err(StoreError::Refused(_))), "{refused:?}");
        }
    }

    #[test]
    fn seconds_of_a_lease_are_rounded_up() {
        for (time, whole) in [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (5000, 5)] {
            assert_eq!(seconds(Duration::from_millis(time)), whole, "{time} ms");
        }
        assert_eq!(seconds(Duration::MAX), i64::MAX);
    }

    #[test]
    fn answers_that_make_no_sense_are_errors() {
        assert!(txn_answer(wire::TxnResponse::default()).is_err(), "without a header");
        let header = Some(wire::ResponseHeader { revision: -1, ..wire::ResponseHeader::default() });
        assert!(range_answer(wire::RangeResponse { header, ..wire::RangeResponse::default() }).is_err());
        assert!(change(wire::Event::default()).is_err(), "without a key");
    }
}
