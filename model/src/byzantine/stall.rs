//! Does what another conduct does, each access as late as its patience allows.
//!
//! Patience is a total (F3), so the first access takes nearly all of it and the later ones hardly any more:
//! whoever stalls costs the others no more than whoever is silent, and is always in time.

use crate::process::{Act, Behaviour, SendTime, View};

/// Sends every access of a conduct at the last moment.
pub struct Stall(Box<dyn Behaviour>);

impl Stall {
    /// Holds back the accesses of this conduct.
    #[must_use]
    pub fn new(conduct: Box<dyn Behaviour>) -> Self {
        Self(conduct)
    }
}

impl Behaviour for Stall {
    fn joins(&self) -> bool {
        self.0.joins()
    }

    fn act(&mut self, view: &View) -> Act {
        match self.0.act(view) {
            Act::Access { op, .. } => Act::Access { op, when: SendTime::LastMoment },
            act => act,
        }
    }
}
