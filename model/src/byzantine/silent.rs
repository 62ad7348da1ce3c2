//! Joins, then says nothing.

use crate::process::{Act, Behaviour, View};

/// Joins, then says nothing: its warp waits for it until its patience is spent (F3).
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Behaviour for Silent {
    fn act(&mut self, _: &View) -> Act {
        Act::Silent
    }
}
