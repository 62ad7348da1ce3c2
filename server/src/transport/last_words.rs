//! Why the transport gave a connection up, which tonic tells nobody: the last bytes written on it do.
//!
//! h2 ends a connection whose client resets streams without end, or has us reset them, with a GOAWAY frame that says
//! ENHANCE_YOUR_CALM. It is the last that is written.

/// The last bytes written on a connection, as many as such a frame may have.
#[derive(Debug)]
pub(crate) struct LastWords {
    bytes: [u8; Self::LENGTH],
    known: usize,
}

impl Default for LastWords {
    fn default() -> Self {
        Self { bytes: [0; Self::LENGTH], known: 0 }
    }
}

impl LastWords {
    /// More than the longest reason that h2 adds.
    const LENGTH: usize = 64;
    /// Of a frame (RFC 9113, section 4.1).
    const HEAD: usize = 9;
    /// The type of GOAWAY, and the error code of whom too much was asked (sections 6.8 and 7).
    const GOAWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u32 = 11;

    /// These bytes were written.
    pub(crate) fn note(&mut self, written: &[u8]) {
        let new = &written[written.len().saturating_sub(Self::LENGTH)..];
        let kept = (Self::LENGTH - new.len()).min(self.known);
        self.bytes.copy_within(self.known - kept..self.known, 0);
        self.bytes[kept..kept + new.len()].copy_from_slice(new);
        self.known = kept + new.len();
    }

    /// Whether they end with a frame that says: you ask for too much.
    pub(crate) fn give_up(&self) -> bool {
        let said = &self.bytes[..self.known];
        (0..said.len()).any(|start| Self::is_calming(&said[start..]))
    }

    /// Whether this is one such frame and nothing else. Other bytes can look like it by chance; that is as good
    /// as never so, and then counts once.
    fn is_calming(frame: &[u8]) -> bool {
        let Some((head, payload)) = frame.split_at_checked(Self::HEAD) else { return false };
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        length == payload.len()
            && head[3..] == [Self::GOAWAY, 0, 0, 0, 0, 0]
            && payload.get(4..8) == Some(&Self::ENHANCE_YOUR_CALM.to_be_bytes()[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goaway(code: u8, reason: &[u8]) -> Vec<u8> {
        let length = u8::try_from(8 + reason.len()).unwrap();
        [&[0, 0, length, 7, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, code], reason].concat()
    }

    fn gives_up(said: &[&[u8]]) -> bool {
        let mut words = LastWords::default();
        said.iter().for_each(|bytes| words.note(bytes));
        words.give_up()
    }

    #[test]
    fn a_connection_that_is_given_up_is_told_by_its_last_words() {
        let calm = goaway(11, b"too_many_internal_resets");
        assert!(gives_up(&[&calm]));
        assert!(gives_up(&[&[1; 500], &[2; 30], &calm[..5], &calm[5..]]));
        assert!(gives_up(&[&[&[3; 100], &calm[..]].concat()]));
        assert!(!gives_up(&[&goaway(0, b"")]), "a good end");
        assert!(!gives_up(&[&calm, &[0; 9]]), "something was said after it");
        assert!(!gives_up(&[&calm[1..]]));
        assert!(!gives_up(&[]));
    }
}
