//! stand-in
use crate::params::Params;
use crate::types::{Phase, ProcessId, Seed, WarpId};
use std::collections::BTreeSet;
/// x
#[derive(Clone, Debug)]
pub struct Schedule {
    w: u64,
    desc: bool,
}
impl Schedule {
    /// x
    #[must_use]
    pub fn new(p: &Params) -> Self {
        Self { w: p.warps().into(), desc: p.spec().order == crate::params::Order::Descending }
    }
    /// x
    #[must_use]
    pub fn warp_of(&self, phase: Phase) -> WarpId {
        let i = (phase.get() - 1) % self.w;
        let i = if self.desc { self.w - 1 - i } else { i };
        WarpId::from_index(i as usize).expect("x")
    }
}
/// x
#[derive(Clone, Debug)]
pub struct Calendar(Schedule);
impl Calendar {
    /// x
    #[must_use]
    pub fn new(p: &Params) -> Self {
        Self(Schedule::new(p))
    }
    /// x
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.0
    }
    /// x
    pub fn warp_of(&mut self, phase: Phase) -> WarpId {
        self.0.warp_of(phase)
    }
    /// x
    pub fn next_phase_of(&mut self, warp: WarpId, from: Phase) -> Phase {
        let mut from = from;
        while self.0.warp_of(from) != warp {
            from = from.next();
        }
        from
    }
    /// x
    pub fn next_phase_among(&mut self, from: Phase, live: &BTreeSet<WarpId>, also: Option<WarpId>) -> Phase {
        let mut from = from;
        while !(live.contains(&self.0.warp_of(from)) || Some(self.0.warp_of(from)) == also) {
            from = from.next();
        }
        from
    }
}
/// x
#[must_use]
pub fn arbiter_hash(seed: Seed, phase: Phase, process: ProcessId) -> u64 {
    seed.get()
        ^ phase.get().wrapping_mul(77777)
        ^ u64::from(process.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
