//! The headers of the HTTP/2 frames in the byte stream of a client (RFC 9113, section 4.1), without their
//! content.

use crate::quota::{FRAME_TYPES, FrameType};

/// Bytes with which every client opens a connection (RFC 9113, section 3.4).
pub(super) const PREFACE: usize = 24;
/// Bytes of the header of a frame: length, type, flags, stream.
const HEADER: usize = 9;
/// The flag of the last frame of a request.
const END_STREAM: u8 = 1;

/// The frames whose headers were in some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameTally {
    pub(super) by_type: [u32; FRAME_TYPES],
    /// Those that neither open a request nor carry content. Not among them: as many empty last frames of
    /// requests as requests were opened, since some clients end each request with one.
    pub(super) control: u32,
    /// Resets of streams that were opened in the same bytes: nobody can have waited for an answer.
    pub(super) early_resets: u32,
    /// The first stream that was opened in these bytes.
    pub(super) first_opened: Option<u32>,
}

impl FrameTally {
    pub(super) fn of(&self, frame: FrameType) -> u32 {
        self.by_type[frame as usize]
    }

    fn add(&mut self, frame: FrameType) {
        self.by_type[frame as usize] += 1;
    }
}

/// The position in a client's byte stream.
#[derive(Debug)]
pub(super) struct FrameHeaders {
    /// Bytes of the preface that have not come.
    preface: usize,
    header: [u8; HEADER],
    /// Bytes of the header that have come.
    begun: usize,
    /// Bytes of the frame's content that have not come.
    content: usize,
    /// Requests that were opened and not ended by an empty frame.
    open: u32,
}

impl FrameHeaders {
    /// At the beginning of a connection.
    pub(super) const fn new() -> Self {
        Self { preface: PREFACE, header: [0; HEADER], begun: 0, content: 0, open: 0 }
    }

    /// Counts the frames whose headers end in the next bytes of the stream.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> FrameTally {
        let mut tally = FrameTally::default();
        skip(&mut bytes, &mut self.preface);
        loop {
            skip(&mut bytes, &mut self.content);
            if bytes.is_empty() {
                return tally;
            }
            let part = bytes.len().min(HEADER - self.begun);
            self.header[self.begun..self.begun + part].copy_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            self.begun += part;
            if self.begun == HEADER {
                self.begun = 0;
                self.add_to(&mut tally);
            }
        }
    }

    /// Adds the frame whose header is complete.
    fn add_to(&mut self, tally: &mut FrameTally) {
        let [high, middle, low, code, flags, stream @ ..] = self.header;
        // Without the reserved bit, which may be set.
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        self.content = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let frame = FrameType::of(code);
        tally.add(frame);
        match frame {
            FrameType::Headers => _ = tally.first_opened.get_or_insert(stream),
            FrameType::RstStream => {
                tally.early_resets += u32::from(tally.first_opened.is_some_and(|first| stream >= first));
            }
            _ => {}
        }
        match frame {
            FrameType::Headers => self.open = self.open.saturating_add(1),
            FrameType::Data if self.content > 0 => {}
            FrameType::Data if flags & END_STREAM != 0 && self.open > 0 => self.open -= 1,
            _ => tally.control += 1,
        }
    }
}

/// Skips as many bytes as there are, at most `most`, which becomes less by as many.
fn skip(bytes: &mut &[u8], most: &mut usize) {
    let skipped = bytes.len().min(*most);
    *bytes = &bytes[skipped..];
    *most -= skipped;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(code: u8, flags: u8, content: usize) -> Vec<u8> {
        let length = u32::try_from(content).unwrap().to_be_bytes();
        // Content that would be a header of an unknown frame, if it were taken for one.
        [&length[1..], &[code, flags, 0, 0, 0, 1], &vec![0x77; content]].concat()
    }

    fn count(frames: &[(u8, u8, usize)], cut: usize) -> FrameTally {
        let mut bytes = vec![b'P'; PREFACE];
        frames.iter().for_each(|(code, flags, content)| bytes.extend(frame(*code, *flags, *content)));
        let mut headers = FrameHeaders::new();
        let mut all = FrameTally::default();
        for part in bytes.chunks(cut) {
            let tally = headers.count(part);
            all.control += tally.control;
            all.by_type.iter_mut().zip(tally.by_type).for_each(|(all, part)| *all += part);
        }
        all
    }

    #[test]
    fn frames_are_counted_by_type() {
        let frames: Vec<_> = (0..=255).map(|code| (code, 0, usize::from(code) * 9)).collect();
        let tally = count(&frames, usize::MAX);
        let unknown = FrameType::Unknown;
        for frame in FrameType::ALL {
            assert_eq!(tally.of(frame), if frame == unknown { 246 } else { 1 }, "{}", frame.name());
        }
        assert_eq!(tally.control, 255, "all but HEADERS; the DATA frame is empty");
    }

    #[test]
    fn what_carries_a_request_is_no_control_frame() {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        let requests = [(HEADERS, 4, 20), (DATA, 0, 40), (DATA, END_STREAM, 0)];
        assert_eq!(count(&requests, usize::MAX).control, 0);
        let more_ends = [&requests[..], &[(DATA, END_STREAM, 0); 3]].concat();
        assert_eq!(count(&more_ends, usize::MAX).control, 3, "ends of no request");
        assert_eq!(count(&[(DATA, 0, 0), (DATA, END_STREAM, 1)], usize::MAX).control, 1);
    }

    proptest! {
        #[test]
        fn where_reads_end_does_not_matter(
            frames in prop::collection::vec((0_u8..14, 0_u8..2, 0_usize..40), 0..20),
            cut in 1_usize..50,
        ) {
            prop_assert_eq!(count(&frames, cut), count(&frames, usize::MAX));
        }
    }
}
