//! The bounds of the messages of a request (the gRPC protocol over HTTP/2), without decoding them.

/// Bytes before each message: the compressed flag and the length.
pub(crate) const PREFIX: usize = 5;

/// The position in the messages after the bytes so far.
#[derive(Debug, Default)]
pub(super) struct MessageFraming {
    /// The part of a prefix that has come.
    prefix: [u8; PREFIX],
    /// Bytes of it; `PREFIX` while the message behind it comes.
    prefix_length: usize,
    /// Bytes of that message that have not come.
    missing: usize,
    /// Messages that are complete.
    complete: u64,
}

/// The result of the scan of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// So many of its bytes belong to messages that are complete now.
    Complete(usize),
    /// A message begins that is announced with so many bytes, more than may be, or that says that it is
    /// compressed.
    Refused(Announced),
}

/// The prefix of a message that will be refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Announced {
    TooLong,
    Compressed,
}

impl MessageFraming {
    /// The number of messages that have begun.
    pub(super) fn begun(&self) -> u64 {
        self.complete + u64::from(self.prefix_length > 0)
    }

    /// Follows the bytes of the next chunk. No message may have more than `longest` bytes, its prefix not
    /// counted.
    pub(super) fn scan(&mut self, chunk: &[u8], longest: usize) -> Scanned {
        let (mut at, mut complete) = (0, 0);
        while at < chunk.len() {
            if self.prefix_length < PREFIX {
                let rest = &chunk[at..];
                let count = rest.len().min(PREFIX - self.prefix_length);
                self.prefix[self.prefix_length..][..count].copy_from_slice(&rest[..count]);
                self.prefix_length += count;
                at += count;
                if self.prefix[0] != 0 {
                    return Scanned::Refused(Announced::Compressed);
                }
                if self.prefix_length < PREFIX {
                    break;
                }
                let [_, length @ ..] = self.prefix;
                self.missing = u32::from_be_bytes(length) as usize;
                if self.missing > longest {
                    return Scanned::Refused(Announced::TooLong);
                }
            }
            let count = self.missing.min(chunk.len() - at);
            self.missing -= count;
            at += count;
            if self.missing == 0 {
                self.prefix_length = 0;
                self.complete += 1;
                complete = at;
            }
        }
        Scanned::Complete(complete)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the bytes are cut, the ends of messages are found.
        #[test]
        fn ends_of_messages_are_found_however_they_are_cut(
            lengths in prop::collection::vec(0_usize..40, 1..10),
            cuts in prop::collection::vec(1_usize..30, 1..60),
        ) {
            let (mut bytes, mut ends) = (Vec::new(), vec![0]);
            for length in lengths {
                bytes.push(0);
                bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
                bytes.extend(std::iter::repeat_n(7, length));
                ends.push(bytes.len());
            }
            let (mut framing, mut at, mut complete) = (MessageFraming::default(), 0, 0);
            for cut in cuts {
                let to = (at + cut).min(bytes.len());
                match framing.scan(&bytes[at..to], 40) {
                    Scanned::Complete(0) => {}
                    Scanned::Complete(count) => complete = at + count,
                    Scanned::Refused(why) => prop_assert!(false, "{why:?}"),
                }
                at = to;
                prop_assert_eq!(complete, *ends.iter().rfind(|end| **end <= at).unwrap());
            }
        }
    }

    #[test]
    fn what_will_be_refused_is_known_by_its_prefix() {
        assert_eq!(MessageFraming::default().scan(&[0, 0, 0, 0, 9], 8), Scanned::Refused(Announced::TooLong));
        assert_eq!(MessageFraming::default().scan(&[1], 8), Scanned::Refused(Announced::Compressed));
        let mut cut = MessageFraming::default();
        assert_eq!(cut.scan(&[0, 0, 0], 8), Scanned::Complete(0));
        assert_eq!(cut.scan(&[0, 8], 8), Scanned::Complete(0));
        assert_eq!(cut.scan(&[0; 9], 8), Scanned::Complete(8));
    }
}
