//! Never joins: gathering ends without the process (F5).

use super::conduct::Conduct;
use super::definition::Definition;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError};
use crate::process::{Act, Behaviour, View};
use crate::types::{ProcessId, Value};

/// Never joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent;

impl Definition for Absent {
    const NAME: &'static str = "absent";
    const USAGE: &'static str = "absent: never joins";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Conduct for Absent {
    fn joins(&self) -> bool {
        false
    }

    fn ends(&self) -> bool {
        false
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(*self)
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.gathering_ended() && !process.joined()
    }
}

impl Behaviour for Absent {
    fn act(&mut self, _: &View) -> Act {
        Act::Silent
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{fired, gathered, joined};

    #[test]
    fn absence_shows_when_gathering_ends_without_the_process() {
        assert_eq!(fired("absent", vec![gathered()]), 1);
        assert_eq!(fired("absent", vec![joined(), gathered()]), 0);
        assert_eq!(fired("absent", vec![]), 0, "nothing is due yet");
    }
}
