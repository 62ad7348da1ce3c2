//! Proof case (a): appends NULL, that is, bytes that are no value.
//!
//! The border refuses them (P3) and files an offence, and nobody's chance to win is taken. Having nothing else
//! to append, the process then reads and leaves by the true mode, so that nobody waits for it.

use crate::process::{Act, Behaviour, RawOp, SendTime, View, read_and_decide};

/// Appends no bytes in its first access, then reads and leaves like a correct process.
#[derive(Clone, Copy, Debug)]
pub struct Empty;

impl Behaviour for Empty {
    fn act(&mut self, view: &View) -> Act {
        if view.answered == 0 && view.refused == 0 {
            return Act::Access { op: RawOp::Append(Vec::new().into()), when: SendTime::Ready };
        }
        read_and_decide(view)
    }
}
