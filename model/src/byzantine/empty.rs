//! Proof case (a): appends NULL, that is, bytes that are no value.
//!
//! The border refuses them (P3) and files an offence, and no process loses its chance to win. Having nothing else to
//! append, the process then reads and leaves by the true mode, so that nobody waits for it.

use super::conduct::Conduct;
use super::definition::Definition;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError};
use crate::history::OffenceKind;
use crate::process::{Act, Behaviour, RawOp, SendTime, View, read_and_decide};
use crate::types::{ProcessId, Value};

/// Appends no bytes in its first access, then reads and leaves like a correct process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty;

impl Definition for Empty {
    const NAME: &'static str = "empty";
    const USAGE: &'static str = "empty: appends bytes that are no value (case a)";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Conduct for Empty {
    fn offences(&self, process: &ObservedProcess<'_>) -> &'static [OffenceKind] {
        if self.is_shown_by(process) { &[OffenceKind::Malformed] } else { &[] }
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(*self)
    }

    /// Its append is refused, so the first access that is accepted is the read that follows. A process whose append
    /// is accepted, or is still due, has no such first access.
    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.from == 1 && process.next_access() > 1 && process.append(1).is_none()
    }
}

impl Behaviour for Empty {
    fn act(&mut self, view: &View) -> Act {
        if view.answered == 0 && view.refused == 0 {
            return Act::Access { op: RawOp::Append(Vec::new().into()), when: SendTime::Ready };
        }
        read_and_decide(view)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, joined, malformed, read};

    #[test]
    fn an_empty_append_shows_by_the_read_that_follows_it() {
        assert_eq!(fired("empty", vec![joined(), malformed(), read(1)]), 1);
        assert_eq!(fired("empty", vec![joined(), read(1)]), 1);
        assert_eq!(fired("empty", vec![joined(), malformed()]), 0);
        assert_eq!(fired("empty", vec![joined(), malformed(), append(1, "a"), read(2)]), 0);
    }
}
