//! Never joins.

use crate::process::{Act, Behaviour, View};

/// Never joins: gathering ends without it (F5).
#[derive(Clone, Copy, Debug)]
pub struct Absent;

impl Behaviour for Absent {
    fn joins(&self) -> bool {
        false
    }

    fn act(&mut self, _: &View) -> Act {
        Act::Silent
    }
}
