//! Bytes that are held for clients: requests that are not complete, answers that are not read, and the
//! windows of connections, which say how much a client may send that no call has taken.

use std::sync::Arc;

use super::account::Account;
use super::resources::Buffer;
use super::share::Allocation;

/// Bytes that are held for one client; given back when dropped.
#[derive(Debug)]
pub(crate) struct BufferedBytes {
    account: Arc<Account>,
    buffer: Buffer,
    taken: Allocation,
}

impl BufferedBytes {
    /// None yet.
    pub(crate) fn new(account: Arc<Account>, buffer: Buffer) -> Self {
        Self { account, buffer, taken: Allocation::default() }
    }

    /// Holds so many more. False: there is no room for them.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let grown = self.try_grow(bytes);
        if !grown {
            self.account.count_too_few(self.buffer);
        }
        grown
    }

    /// The same, where fewer would do: that there was no room for so many is not counted.
    fn try_grow(&mut self, bytes: usize) -> bool {
        let more = self.account.take_bytes(self.buffer, bytes, self.taken);
        self.taken = more.map_or(self.taken, |more| self.taken.merge(more));
        more.is_some()
    }

    /// Holds so many more, or fewer, but not fewer than `least`; how many. 0: there is no room for those
    /// either. Clients without identity, of whom any number share an account, have a small part of what is
    /// free, each as it comes.
    pub(crate) fn grow_by_at_most(&mut self, most: usize, least: usize) -> usize {
        let mut bytes = most.min(self.account.part_of_free(self.buffer));
        while bytes >= least && !self.try_grow(bytes) {
            bytes /= 2;
        }
        if bytes < least {
            self.account.count_too_few(self.buffer);
            return 0;
        }
        bytes
    }
}

impl Drop for BufferedBytes {
    fn drop(&mut self) {
        self.account.give_back_bytes(self.buffer, self.taken);
    }
}
