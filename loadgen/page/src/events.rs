//! The events of an instance as a stream of server-sent events: its setting, a snapshot if there is one,
//! frames, and how it ended.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::json;
use tokio_stream::{Stream, StreamExt as _, once};

use crate::source::{Events, Opened, Refused};

/// How long a browser waits before it connects again, in milliseconds.
const RETRY: u32 = 1_000;

/// A line that says nothing: it shows that the connection is alive.
pub const NOTHING: Bytes = Bytes::from_static(b":\n\n");

/// A frame as an event; `next`: the index behind its last event.
#[must_use]
pub fn frame(next: u64, json: &[u8]) -> Bytes {
    event("frame", Some(next), json)
}

/// One event. JSON has no line break in it, so the data is one line.
#[must_use]
pub fn event(name: &str, id: Option<u64>, data: &[u8]) -> Bytes {
    debug_assert!(!data.contains(&b'\n'), "an event is a line");
    let mut bytes = BytesMut::with_capacity(data.len() + 64);
    bytes.put_slice(b"event: ");
    bytes.put_slice(name.as_bytes());
    if let Some(id) = id {
        bytes.put_slice(format!("\nid: {id}").as_bytes());
    }
    bytes.put_slice(b"\ndata: ");
    bytes.put_slice(data);
    bytes.put_slice(b"\n\n");
    bytes.freeze()
}

/// The events of an instance.
pub(crate) fn of_instance(opened: Opened) -> impl Stream<Item = Bytes> + Send {
    let Opened { setting, snapshot, frames } = opened;
    let setting = serde_json::to_vec(&setting).expect("a setting is plain data");
    let mut first = BytesMut::new();
    first.put_slice(format!("retry: {RETRY}\n").as_bytes());
    first.put(event("setting", None, &setting));
    if let Some(snapshot) = snapshot {
        first.put(event("snapshot", None, &snapshot));
    }
    once(first.freeze()).chain(until_end(frames))
}

/// These events, and behind them why there are no more: `end` if nothing more can happen, else `refused`.
pub(crate) fn until_end(events: Events) -> impl Stream<Item = Bytes> + Send {
    let end = || event("end", None, json!({ "why": "nothing more can happen" }).to_string().as_bytes());
    let all = events.map(Some).chain(once(None));
    // Behind the first event that is the last one nothing is sent.
    let mut over = false;
    all.map_while(move |item| {
        if over {
            return None;
        }
        Some(match item {
            Some(Ok(event)) => event,
            Some(Err(refused)) => {
                over = true;
                refusal(&refused)
            }
            None => end(),
        })
    })
}

fn refusal(Refused { status, why }: &Refused) -> Bytes {
    event("refused", None, json!({ "status": status.as_u16(), "why": why }).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn names(events: Vec<Result<Bytes, Refused>>) -> Vec<String> {
        let waker = std::task::Waker::noop();
        let mut all = Box::pin(until_end(Box::pin(tokio_stream::iter(events))));
        let mut names = Vec::new();
        while let std::task::Poll::Ready(Some(event)) =
            all.as_mut().poll_next(&mut std::task::Context::from_waker(waker))
        {
            let text = String::from_utf8(event.to_vec()).unwrap();
            names.push(text.lines().next().unwrap().to_owned());
        }
        names
    }

    #[test]
    fn a_refused_stream_has_no_other_end() {
        let refused = Refused { status: StatusCode::TOO_MANY_REQUESTS, why: "too slow".to_owned() };
        let some = || Ok(frame(1, b"{}"));
        assert_eq!(names(vec![some(), Err(refused), some()]), ["event: frame", "event: refused"]);
        assert_eq!(names(vec![some()]), ["event: frame", "event: end"]);
    }
}
