//! Bytes that are held for clients: requests that are not complete, and answers that are not read.

use std::sync::Arc;

use super::account::Account;
use super::admission::Bound;
use super::share::Taken;
use crate::limits::Limits;

/// What the bytes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// Messages of which not all has come.
    Requests,
    /// Long chunks of responses that have not left the server.
    Answers,
}

impl Buffer {
    pub(crate) const ALL: [Self; BUFFERS] = [Self::Requests, Self::Answers];

    pub(super) fn total(self, limits: &Limits) -> usize {
        match self {
            Self::Requests => limits.incomplete_request_bytes,
            Self::Answers => limits.unread_answer_bytes,
        }
    }

    pub(super) const fn bound(self) -> Bound {
        match self {
            Self::Requests => Bound::IncompleteRequestBytes,
            Self::Answers => Bound::UnreadAnswerBytes,
        }
    }
}

pub(super) const BUFFERS: usize = Buffer::Answers as usize + 1;

/// Bytes that are held for one client; given back when dropped.
#[derive(Debug)]
pub(crate) struct BufferedBytes {
    account: Arc<Account>,
    buffer: Buffer,
    taken: Taken,
}

impl BufferedBytes {
    /// None yet.
    pub(crate) fn new(account: Arc<Account>, buffer: Buffer) -> Self {
        Self { account, buffer, taken: Taken::default() }
    }

    /// Holds so many more. False: there is no room for them.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let more = self.account.take_bytes(self.buffer, bytes, self.taken);
        self.taken = more.map_or(self.taken, |more| self.taken.and(more));
        more.is_some()
    }
}

impl Drop for BufferedBytes {
    fn drop(&mut self) {
        self.account.give_back_bytes(self.buffer, self.taken);
    }
}
