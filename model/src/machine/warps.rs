//! The members with an access waiting, by warp: they spare a phase the search for its members.

use std::mem;
use std::ops::{Index, Range};

use crate::params::Params;
use crate::scheduler::WarpSet;
use crate::types::{ProcessId, WarpId};

use super::member;
use super::members::Members;

/// The tallies of one warp: half a cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(32))]
pub(super) struct WarpTally {
    /// No member that is awaited has less patience than this, in nanoseconds.
    pub(super) least_patience: u64,
    /// Members that are awaited (F3).
    awaited: u32,
    /// Members that are awaited and have no access waiting: they hold the warp's phase open.
    pub(super) missing: u32,
    /// Members with an access waiting.
    pub(super) ready: u32,
    /// Members in the warp's queue. A member that left stays there until the next step; `ready` does not
    /// count it.
    queued: u32,
    /// Whether the first access of some member in the queue may be an append.
    appends: bool,
}

impl WarpTally {
    /// Whether the warp's phases are executed; if not, they pass unseen (F4).
    pub(super) fn is_live(&self) -> bool {
        self.awaited > 0 || self.ready > 0
    }
}

/// All warps: their tallies, and for each the members with an access waiting, in the order in which they
/// became ready. The queues of all warps lie side by side. A member is in the queue of its warp at most once,
/// so each queue has room for its members and no more. Others read tallies, and only this type changes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Warps {
    tallies: Vec<WarpTally>,
    queues: Vec<ProcessId>,
    /// The places of each queue.
    size: u32,
    /// The warps whose phases do not pass unseen: a member is awaited, or has an access waiting (F4).
    live: WarpSet,
    /// Members of all warps with an access waiting. Phases pass only while this is not 0 (F4).
    ready: u32,
}

impl Index<WarpId> for Warps {
    type Output = WarpTally;

    #[inline]
    fn index(&self, warp: WarpId) -> &WarpTally {
        &self.tallies[warp.index()]
    }
}

impl Warps {
    /// The warps of a new instance: all members are awaited, with this patience, and no access waits.
    pub(super) fn reset(&mut self, params: &Params, patience: u64) {
        let (processes, size) = (params.processes(), params.warp_size());
        let sizes = (0..params.warps()).map(|warp| size.min(processes - warp * size));
        let tally = |size| WarpTally {
            least_patience: patience,
            awaited: size,
            missing: size,
            ..WarpTally::default()
        };
        self.tallies.clear();
        self.tallies.extend(sizes.map(tally));
        self.queues.clear();
        self.queues.resize(processes as usize, ProcessId::FIRST);
        (self.size, self.live, self.ready) = (size, WarpSet::all(params.warps()), 0);
    }

    /// Members of all warps with an access waiting.
    pub(super) fn ready(&self) -> u32 {
        self.ready
    }

    /// The warps whose phases do not pass unseen.
    pub(super) fn live(&self) -> &WarpSet {
        &self.live
    }

    /// A member without a waiting access has one now.
    #[inline]
    pub(super) fn add_ready(&mut self, warp: WarpId, process: ProcessId, was_missing: bool, appends: bool) {
        let tally = &mut self.tallies[warp.index()];
        self.queues[warp.index() * self.size as usize + tally.queued as usize] = process;
        tally.queued += 1;
        tally.ready += 1;
        tally.appends |= appends;
        tally.missing -= u32::from(was_missing);
        if tally.awaited == 0 && tally.ready == 1 {
            self.live.insert(warp);
        }
        self.ready += 1;
    }

    /// All accesses of a member are withdrawn.
    pub(super) fn withdraw(&mut self, warp: WarpId) {
        self.ready -= 1;
        let tally = &mut self.tallies[warp.index()];
        tally.ready -= 1;
        if tally.ready == 0 {
            tally.queued = 0;
        }
        self.update_live(warp);
    }

    /// A member is not awaited any more.
    pub(super) fn await_no_more(&mut self, warp: WarpId, missing: bool) {
        let tally = &mut self.tallies[warp.index()];
        tally.awaited -= 1;
        tally.missing -= u32::from(missing);
        self.update_live(warp);
    }

    /// A member that is awaited has this patience left.
    pub(super) fn lower_patience(&mut self, warp: WarpId, patience: u64) {
        let tally = &mut self.tallies[warp.index()];
        tally.least_patience = tally.least_patience.min(patience);
    }

    /// No member that is awaited has less patience than this.
    pub(super) fn set_patience(&mut self, warp: WarpId, least: u64) {
        self.tallies[warp.index()].least_patience = least;
    }

    /// Of a new instance: the members with an access waiting, warp by warp. The tallies follow from the
    /// members.
    pub(super) fn restore(&mut self, params: &Params, members: &Members, ready: &[ProcessId]) {
        for &process in ready {
            self.add_ready(params.warp_of(process), process, false, members[process].appends());
        }
        for warp in (0..self.tallies.len()).filter_map(WarpId::from_index) {
            let awaited = params.members(warp).map(|process| &members[process]);
            let awaited = awaited.filter(|member| member.is_awaited());
            let tally = &mut self.tallies[warp.index()];
            (tally.awaited, tally.missing, tally.least_patience) = (0, 0, member::ENDLESS);
            for member in awaited {
                tally.awaited += 1;
                tally.missing += u32::from(member.is_missing());
                tally.least_patience = tally.least_patience.min(member.patience);
            }
            self.update_live(warp);
        }
    }

    /// Whether a member may append in the step that begins now.
    #[inline]
    pub(super) fn take_appends(&mut self, warp: WarpId) -> bool {
        mem::take(&mut self.tallies[warp.index()].appends)
    }

    /// Takes the queue of a warp for a step: the places of its members.
    #[inline]
    pub(super) fn take_queue(&mut self, warp: WarpId) -> Range<usize> {
        let start = warp.index() * self.size as usize;
        start..start + mem::take(&mut self.tallies[warp.index()].queued) as usize
    }

    /// The member at a place.
    #[inline]
    pub(super) fn queued(&self, place: usize) -> ProcessId {
        self.queues[place]
    }

    /// In the course of a step a member stays in the queue, since it has another access.
    #[inline]
    pub(super) fn keep(&mut self, warp: WarpId, process: ProcessId, appends: bool) {
        let tally = &mut self.tallies[warp.index()];
        self.queues[warp.index() * self.size as usize + tally.queued as usize] = process;
        tally.queued += 1;
        tally.appends |= appends;
    }

    /// A step ends: so many members have no access waiting any more, and so many of these are missing now.
    #[inline]
    pub(super) fn end_step(&mut self, warp: WarpId, done: u32, missing: u32) {
        let tally = &mut self.tallies[warp.index()];
        tally.ready -= done;
        tally.missing += missing;
        self.ready -= done;
        self.update_live(warp);
    }

    /// The members in the queues, warp by warp. A member that left may be among them.
    pub(super) fn all_queued(&self) -> impl Iterator<Item = ProcessId> {
        let places = self.tallies.iter().enumerate().flat_map(|(warp, tally)| {
            let start = warp * self.size as usize;
            start..start + tally.queued as usize
        });
        places.map(|place| self.queues[place])
    }

    fn update_live(&mut self, warp: WarpId) {
        if self[warp].is_live() {
            self.live.insert(warp);
        } else {
            self.live.remove(warp);
        }
    }
}
