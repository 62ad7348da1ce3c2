//! What the load generator has decoded, as the generated types have it: for these tests, and for `fuzz/`.

use bytes::Bytes;
use stickycas_load::attach_codec::{DecodedResponse, ResponseFrame};
use stickycas_proto::v1;

/// One frame of a response.
pub(crate) fn generated_frame(response: &DecodedResponse, frame: &ResponseFrame) -> v1::ServerFrame {
    match frame {
        ResponseFrame::Append { channel, number, phase, result } => {
            let result = Some(v1::answer::Result::Append(*result));
            v1::Answer { channel: *channel, number: *number, phase: *phase, result }.into()
        }
        ResponseFrame::Read { channel, number, phase, start, values, length, sealed } => {
            let values = response.values(values).map(Bytes::copy_from_slice).collect();
            let read = v1::ReadResult { start: *start, values, length: *length, sealed: *sealed };
            let result = Some(v1::answer::Result::Read(read));
            v1::Answer { channel: *channel, number: *number, phase: *phase, result }.into()
        }
        ResponseFrame::Decided { channel } => v1::Decided { channel: *channel }.into(),
        ResponseFrame::Other(frame) => v1::ServerFrame { frame: frame.as_deref().cloned() },
    }
}
