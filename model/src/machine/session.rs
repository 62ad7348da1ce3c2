//! The session of a process, in two bytes.

use crate::types::SessionId;

/// The most sessions that one process may open at one instance. A correct client needs one, and one more
/// for each time that its connection breaks.
pub const MAX_SESSIONS: u32 = 1_000;

/// A session, or none (0). Two bytes are enough: at most [`MAX_SESSIONS`] are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OptionalSession(u16);

impl OptionalSession {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(session: Option<SessionId>) -> Self {
        let number = session.map_or(0, SessionId::get);
        Self(u16::try_from(number).expect("a session that was opened is at most MAX_SESSIONS"))
    }

    pub(super) fn get(self) -> Option<SessionId> {
        SessionId::new(self.0.into())
    }
}
