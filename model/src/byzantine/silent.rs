//! Joins, then says nothing: its warp waits for it until its patience is spent (F3).

use super::conduct::Conduct;
use super::definition::Definition;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError};
use crate::process::{Act, Behaviour, View};
use crate::types::{ProcessId, Value};

/// Joins, then says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

impl Definition for Silent {
    const NAME: &'static str = "silent";
    const USAGE: &'static str = "silent: joins, then says nothing";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Conduct for Silent {
    fn ends(&self) -> bool {
        false
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(*self)
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.stays() && process.next_access() <= process.from
    }
}

impl Behaviour for Silent {
    fn act(&mut self, _: &View) -> Act {
        Act::Silent
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, gathered, joined};

    #[test]
    fn silence_shows_when_an_access_is_due_and_none_came() {
        assert_eq!(fired("silent", vec![joined(), gathered()]), 1);
        assert_eq!(fired("silent", vec![joined(), gathered(), append(1, "b")]), 0);
        assert_eq!(fired("silent", vec![gathered()]), 0, "it has not joined");
        assert_eq!(fired("silent", vec![joined()]), 0, "nothing is due yet");
    }
}
