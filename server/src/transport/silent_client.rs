//! The deadlines of a client that connects and sends nothing: for the HTTP/2 preface, and then for the first
//! call that is admitted for a principal, unless a call without one is open.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use super::connection::Connection;
use super::frame_headers::PREFACE;
use crate::quota::Counter;

/// The deadlines of a connection that belongs to no principal yet.
pub(super) struct SilentClientDeadline {
    /// Bytes of the preface that have not come.
    missing_preface: usize,
    /// The time that it may take from the preface to the first call.
    first_call_timeout: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl SilentClientDeadline {
    pub(super) fn new(preface_timeout: Duration, first_call_timeout: Duration) -> Self {
        let deadline = Box::pin(tokio::time::sleep(preface_timeout));
        Self { missing_preface: PREFACE, first_call_timeout, deadline }
    }

    /// Checks the deadline after a read of so many bytes. Returns whether the connection belongs to a
    /// principal, and so has no deadline any more.
    ///
    /// # Errors
    /// The client has sent neither preface nor first call in time.
    pub(super) fn check(
        &mut self,
        read: &Poll<io::Result<usize>>,
        connection: &Connection,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        match read {
            Poll::Ready(Ok(bytes @ 1..)) => self.count_read(*bytes),
            Poll::Ready(Ok(0) | Err(_)) => {
                // As a load balancer does that looks whether somebody listens. Counted once.
                if std::mem::take(&mut self.missing_preface) > 0 {
                    connection.count(Counter::ConnectionClosedEarly);
                }
            }
            Poll::Pending if connection.account().is_some() => return Ok(true),
            Poll::Pending => {
                while self.deadline.as_mut().poll(cx).is_ready() {
                    // A call that needs no principal, such as a Watch of the health service, may take its
                    // time.
                    if connection.open_calls() == 0 {
                        connection.count(Counter::ConnectionSilent);
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.deadline = Box::pin(tokio::time::sleep(self.first_call_timeout));
                }
            }
        }
        Ok(false)
    }

    /// The second deadline begins when the preface is complete.
    fn count_read(&mut self, bytes: usize) {
        if self.missing_preface > 0 && bytes >= self.missing_preface {
            self.deadline = Box::pin(tokio::time::sleep(self.first_call_timeout));
        }
        self.missing_preface = self.missing_preface.saturating_sub(bytes);
    }
}
