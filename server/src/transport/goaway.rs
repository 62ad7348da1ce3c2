//! The reason for which HTTP/2 closed a connection, from the connection's error.

use std::error::Error;
use std::iter::successors;

use h2::Reason;

/// Whether the connection ended because its client did too much of something: h2 then sends a GOAWAY with
/// ENHANCE_YOUR_CALM (RFC 9113, section 7) and fails with it. h2 does so for streams that the client resets before
/// they are accepted, for streams that it has the server reset, for CONTINUATION frames and for empty DATA frames
/// without end. [`super::connection_io`] paces all of them, so clients seldom come to this, and a correct one can: that is no
/// offence.
///
/// The error does not show this, and the connection is not counted, if the client has sent a GOAWAY with an error
/// before (h2 then reports the client's error) or has closed the socket before our GOAWAY was written (the error is
/// then one of I/O).
pub(super) fn is_flood(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |error| Error::source(*error))
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(|error| {
            error.is_go_away() && error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
        })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const CONTINUATION: u8 = 9;
    const END_STREAM_AND_HEADERS: u8 = 5;
    /// GET http://a/, as HPACK has it.
    const REQUEST: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// Whether a connection counts as flooded on which the client has sent these frames.
    async fn is_flooded(frames: impl IntoIterator<Item = Vec<u8>>) -> bool {
        let (mut client, io) = tokio::io::duplex(1 << 20);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        client.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        client.write_all(&frames.into_iter().flatten().collect::<Vec<_>>()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut builder = h2::server::Builder::new();
        builder.max_pending_accept_reset_streams(20).max_local_error_reset_streams(Some(20));
        let mut connection = builder.handshake::<_, bytes::Bytes>(io).await.unwrap();
        while let Some(accepted) = connection.accept().await {
            if let Err(error) = accepted {
                return is_flood(&error);
            }
        }
        false
    }

    fn streams(count: u32) -> impl Iterator<Item = u32> {
        (0..count).map(|index| 2 * index + 1)
    }

    #[tokio::test]
    async fn a_flood_of_resets_is_told_by_the_error() {
        let reset = |stream| {
            let request = frame(HEADERS, END_STREAM_AND_HEADERS, stream, &REQUEST);
            [request, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        };
        assert!(is_flooded(streams(50).map(reset)).await);
        assert!(!is_flooded(streams(5).map(reset)).await);
    }

    #[tokio::test]
    async fn a_flood_of_malformed_requests_is_told_by_the_error() {
        // Without a path, so that the server resets the stream.
        let malformed = |stream| frame(HEADERS, END_STREAM_AND_HEADERS, stream, &REQUEST[..1]);
        assert!(is_flooded(streams(50).map(malformed)).await);
        assert!(!is_flooded(streams(5).map(malformed)).await);
    }

    #[tokio::test]
    async fn a_flood_of_continuations_is_told_by_the_error() {
        let begin = frame(HEADERS, 0, 1, &REQUEST);
        let more = (0..10_000).map(|_| frame(CONTINUATION, 0, 1, &[]));
        assert!(is_flooded([begin].into_iter().chain(more)).await);
    }

    #[tokio::test]
    async fn other_errors_are_no_flood() {
        let goaway =
            |reason: Reason| frame(GOAWAY, 0, 0, &[[0; 4], u32::from(reason).to_be_bytes()].concat());
        assert!(!is_flooded([goaway(Reason::ENHANCE_YOUR_CALM)]).await, "the client says so");
        assert!(!is_flooded([goaway(Reason::NO_ERROR)]).await);
        assert!(!is_flooded([frame(HEADERS, END_STREAM_AND_HEADERS, 0, &REQUEST)]).await, "PROTOCOL_ERROR");
    }
}
