//! The events of an instance as a stream of server-sent events: its setting, a snapshot if there is one, frames, and how it
//! ended.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::json;
use tokio_stream::{Stream, StreamExt as _, once};

use crate::recorded::EncodedFrame;
use crate::source::{Opened, Refused};

/// How long a browser waits before it connects again, in milliseconds.
const RETRY: u32 = 1_000;

/// The body of the response.
pub(crate) fn stream(opened: Opened) -> impl Stream<Item = Bytes> + Send {
    let Opened { setting, snapshot, frames } = opened;
    let setting = serde_json::to_vec(&setting).expect("a setting is plain data");
    let mut first = BytesMut::new();
    first.put_slice(format!("retry: {RETRY}\n").as_bytes());
    first.put(event("setting", None, &setting));
    if let Some(snapshot) = snapshot {
        first.put(event("snapshot", None, &snapshot));
    }
    let frames = frames.map(|frame| match frame {
        Ok(EncodedFrame { next, json }) => event("frame", Some(next), &json),
        Err(Refused { status, why }) => {
            let told = json!({ "status": status.as_u16(), "why": why }).to_string();
            event("refused", None, told.as_bytes())
        }
    });
    once(first.freeze()).chain(frames).chain(once(event("end", None, b"{}")))
}

/// One event. JSON has no line break in it, so the data is one line.
fn event(name: &str, id: Option<u64>, data: &[u8]) -> Bytes {
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
