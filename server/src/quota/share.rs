//! A bound that many takers share, so that none of them can take it all (SPEC B1).
//!
//! Some of it is kept for known takers, in parts: a quarter for those with a role, and the rest in equal
//! parts for the processes of each coordinator's instances. Within a part each taker has an equal reserve. So
//! a coordinator whose rosters are long, or change often, takes nothing from those with a role and from the
//! processes of others.
//!
//! The rest is common: a taker may take while its use of the common part is at most what is still free of it.
//! So k greedy takers come to hold k/(k+1) of the common part and one more still finds room (a dynamic
//! threshold, as switches have it for their buffers: Choudhury and Hahne, "Dynamic queue length thresholds
//! for shared-memory packet switches", 1998).

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Parts of the kept units: that of roles, and one for each coordinator. If there are more coordinators, some
/// share one.
pub(super) const PARTS: usize = 1_024;

/// The part of those with a role.
pub(super) const ROLES: usize = 0;

/// See the module.
#[derive(Debug)]
pub(crate) struct Share {
    total: usize,
    /// The units that are kept for known takers.
    kept: usize,
    kept_used: AtomicUsize,
    /// By part, the units of it in use.
    parts_used: Box<[AtomicUsize]>,
    common_used: AtomicUsize,
}

/// A known taker's reserve: its part of the kept units, and the number of takers that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub(super) part: usize,
    /// The number of coordinators.
    pub(super) coordinators: usize,
    /// The number of takers with a reserve in the part.
    pub(super) takers: usize,
}

/// The units of a share that one taker uses.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    kept: AtomicUsize,
    common: AtomicUsize,
}

/// Units that were taken at once, by their origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    kept: usize,
    /// The part that `kept` is of.
    part: usize,
    common: usize,
}

/// Whether a taker may have all that is free. A taker is never above the bound itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threshold {
    /// Its use of the common part may be at most what is still free.
    Dynamic,
    /// None.
    Off,
}

impl Share {
    /// So much in all, half of it kept for known takers.
    pub(crate) fn halved(total: usize) -> Self {
        Self::new(total, total / 2)
    }

    /// So much in all, and this part of it for known takers.
    pub(crate) fn new(total: usize, kept: usize) -> Self {
        let kept = kept.min(total);
        Self {
            total,
            kept,
            kept_used: AtomicUsize::new(0),
            parts_used: (0..PARTS).map(|_| AtomicUsize::new(0)).collect(),
            common_used: AtomicUsize::new(0),
        }
    }

    /// The units in use.
    pub(crate) fn used(&self) -> usize {
        self.kept_used.load(Relaxed) + self.common_used.load(Relaxed)
    }

    /// The free units of the common part.
    pub(crate) fn free(&self) -> usize {
        self.common().saturating_sub(self.common_used.load(Relaxed))
    }

    /// The units of the common part.
    pub(crate) fn common(&self) -> usize {
        self.total - self.kept
    }

    /// The bound.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The size of the part of this reserve.
    fn part(&self, reserve: Reserve) -> usize {
        let of_roles = self.kept / 4;
        match reserve.part {
            ROLES => of_roles,
            _ => (self.kept - of_roles) / reserve.coordinators.max(1),
        }
    }

    /// The size of the reserve. Of a part with too many takers for that, each may have one while there are
    /// some.
    fn amount(&self, reserve: Reserve) -> usize {
        (self.part(reserve) / reserve.takers.max(1)).max(1)
    }

    /// Takes `amount` for a taker with this reserve (`None`: it is not known). `None`: there is no room for
    /// it.
    pub(crate) fn take(
        &self,
        usage: &Usage,
        amount: usize,
        reserve: Option<Reserve>,
        threshold: Threshold,
    ) -> Option<Allocation> {
        let kept = reserve.map_or(0, |reserve| self.take_kept(usage, amount, reserve));
        let taken =
            Allocation { kept, part: reserve.map_or(ROLES, |reserve| reserve.part), common: amount - kept };
        if taken.common > 0 && !self.take_common(usage, taken.common, threshold) {
            self.give_back(usage, Allocation { common: 0, ..taken });
            return None;
        }
        Some(taken)
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, usage: &Usage, Allocation { kept, part, common }: Allocation) {
        if kept > 0 {
            self.kept_used.fetch_sub(kept, Relaxed);
            self.parts_used[part].fetch_sub(kept, Relaxed);
            usage.kept.fetch_sub(kept, Relaxed);
        }
        if common > 0 {
            self.common_used.fetch_sub(common, Relaxed);
            usage.common.fetch_sub(common, Relaxed);
        }
    }

    /// Takes at most `amount` of the reserve; how much.
    fn take_kept(&self, usage: &Usage, amount: usize, reserve: Reserve) -> usize {
        let most = self.amount(reserve);
        let mut kept = 0;
        let _ = usage.kept.fetch_update(Relaxed, Relaxed, |own| {
            kept = amount.min(most.saturating_sub(own));
            (kept > 0).then(|| own + kept)
        });
        if kept == 0 {
            return 0;
        }
        // The reserves were larger while there were fewer takers, and the parts while there were fewer
        // coordinators.
        let add = |used: &AtomicUsize, most: usize| {
            let fits = |used: usize| used.checked_add(kept).filter(|used| *used <= most);
            used.fetch_update(Relaxed, Relaxed, fits).is_ok()
        };
        let part_used = &self.parts_used[reserve.part];
        if add(part_used, self.part(reserve)) {
            if add(&self.kept_used, self.kept) {
                return kept;
            }
            part_used.fetch_sub(kept, Relaxed);
        }
        usage.kept.fetch_sub(kept, Relaxed);
        0
    }

    fn take_common(&self, usage: &Usage, amount: usize, threshold: Threshold) -> bool {
        // Counted first: of two that take for one taker at once, neither overlooks the other.
        let own = usage.common.fetch_add(amount, Relaxed).saturating_add(amount);
        let wanted = if threshold == Threshold::Dynamic { own } else { amount };
        let fits = |used: usize| {
            let free = self.common().saturating_sub(used);
            (wanted <= free).then(|| used + amount)
        };
        let taken = self.common_used.fetch_update(Relaxed, Relaxed, fits).is_ok();
        if !taken {
            usage.common.fetch_sub(amount, Relaxed);
        }
        taken
    }
}

impl Usage {
    /// The units that it uses.
    pub(crate) fn used(&self) -> usize {
        self.kept.load(Relaxed) + self.common.load(Relaxed)
    }
}

impl Allocation {
    /// Both together. The kept units of both are of one part: see [`Self::same_part`].
    pub(crate) fn merge(self, more: Self) -> Self {
        debug_assert!(self.kept == 0 || more.kept == 0 || self.part == more.part);
        let part = if more.kept > 0 { more.part } else { self.part };
        Self { kept: self.kept + more.kept, part, common: self.common + more.common }
    }

    /// Whether more may be taken of this reserve together with it.
    pub(super) fn same_part(self, reserve: Reserve) -> bool {
        self.kept == 0 || self.part == reserve.part
    }

    /// The units in all.
    #[cfg(test)]
    pub(crate) fn amount(self) -> usize {
        self.kept + self.common
    }
}

/// Whether one of so many known takers, which has `own` of the total, may take `amount` more, where all (it
/// included) have so much. The same rule without counters: half is kept for the takers in equal reserves; one
/// taker alone may have all.
pub(crate) fn may_take(
    total: usize,
    takers: usize,
    own: usize,
    amount: usize,
    all: impl IntoIterator<Item = usize>,
) -> bool {
    let kept = if takers <= 1 { total } else { total / 2 };
    let reserve = kept.checked_div(takers).unwrap_or(kept);
    let above = |used: usize| used.saturating_sub(reserve);
    let wanted = above(own.saturating_add(amount));
    let used: usize = all.into_iter().map(above).sum();
    let free = (total - reserve * takers.max(1)).saturating_sub(used);
    wanted == 0 || wanted <= free
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OTHERS: usize = 4;
    const KNOWN: usize = 3;

    proptest! {
        #[test]
        fn the_sum_is_bounded_and_reserves_are_granted(
            total in 8_usize..1_000,
            steps in prop::collection::vec((0..KNOWN + OTHERS, 1_usize..300, any::<bool>()), 1..200),
        ) {
            let share = Share::halved(total);
            let takers: [Usage; KNOWN + OTHERS] = Default::default();
            let mut taken: Vec<Vec<Allocation>> = vec![Vec::new(); takers.len()];
            // One with a role, and the processes of two coordinators.
            let reserves: Vec<Reserve> =
                (0..KNOWN).map(|part| Reserve { part, coordinators: 2, takers: 1 }).collect();
            for (who, amount, gives_back) in steps {
                let of = reserves.get(who).map_or(0, |reserve| share.part(*reserve));
                if gives_back {
                    if let Some(back) = taken[who].pop() {
                        share.give_back(&takers[who], back);
                    }
                } else {
                    let within = takers[who].kept.load(Relaxed) + amount <= of;
                    match share.take(&takers[who], amount, reserves.get(who).copied(), Threshold::Dynamic) {
                        Some(got) => {
                            prop_assert_eq!(got.amount(), amount);
                            taken[who].push(got);
                        }
                        None => prop_assert!(!within, "a known taker is always given its reserve"),
                    }
                }
                let sum: usize = taken.iter().flatten().map(|it| it.amount()).sum();
                prop_assert_eq!(share.used(), sum);
                prop_assert!(sum <= total);
                for (taker, taken) in takers.iter().zip(&taken) {
                    prop_assert_eq!(taker.used(), taken.iter().map(|it| it.amount()).sum::<usize>());
                }
            }
        }

        #[test]
        fn coordinators_share_a_bound(
            total in 8_usize..1_000,
            takers in 1_usize..6,
            steps in prop::collection::vec((0_usize..6, 1_usize..100), 1..200),
        ) {
            let mut used = vec![0; takers];
            let reserve = if takers == 1 { total } else { total / 2 / takers };
            for (who, amount) in steps {
                let who = who % takers;
                if may_take(total, takers, used[who], amount, used.iter().copied()) {
                    used[who] += amount;
                } else {
                    prop_assert!(used[who] + amount > reserve, "each has a reserve");
                }
                prop_assert!(used.iter().sum::<usize>() <= total);
            }
        }

        #[test]
        fn greedy_takers_leave_room_for_one_more(total in 100_usize..10_000, greedy in 1_usize..20) {
            let share = Share::new(total, 0);
            let takers: Vec<Usage> = (0..greedy).map(|_| Usage::default()).collect();
            let mut progress = true;
            while progress {
                let took = takers.iter().filter(|taker| share.take(taker, 1, None, Threshold::Dynamic).is_some());
                progress = took.count() > 0;
            }
            let free = total - share.used();
            prop_assert!(free >= total / (greedy + 1), "{free} of {total} beside {greedy}");
            prop_assert!(share.take(&Usage::default(), 1, None, Threshold::Dynamic).is_some());
        }
    }

    #[test]
    fn no_part_of_what_is_kept_takes_from_another() {
        let share = Share::new(100, 100);
        let reserve = |part, takers| Some(Reserve { part, coordinators: 3, takers });
        let fill = |reserve| {
            let takers: Vec<Usage> = (0..200).map(|_| Usage::default()).collect();
            takers.iter().filter(|taker| share.take(taker, 1, reserve, Threshold::Dynamic).is_some()).count()
        };
        // More takers than the part has room for, and takers that had larger reserves once.
        assert_eq!(fill(reserve(1, 65_536)), 25);
        assert_eq!(fill(reserve(2, 1)), 25);
        let (one, boss) = (Usage::default(), Usage::default());
        assert!(share.take(&one, 25, reserve(3, 1), Threshold::Dynamic).is_some());
        assert!(share.take(&boss, 25, reserve(ROLES, 1), Threshold::Dynamic).is_some());
        assert_eq!((share.used(), fill(reserve(ROLES, 1)), fill(reserve(3, 1))), (100, 0, 0));
    }

    #[test]
    fn without_threshold_one_may_take_all_and_no_more() {
        let (share, taker) = (Share::new(10, 0), Usage::default());
        let take = |amount| share.take(&taker, amount, None, Threshold::Off);
        assert!(take(10).is_some());
        assert_eq!(take(1), None);
        assert_eq!((share.used(), taker.used(), share.total()), (10, 10, 10));
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let share = Share::halved(100);
        let takers: [Usage; 4] = Default::default();
        let reserve = Reserve { part: 1, coordinators: 1, takers: 3 };
        std::thread::scope(|threads| {
            for taker in &takers {
                threads.spawn(|| {
                    for turn in 0..2_000 {
                        let taken = share.take(taker, 1 + turn % 40, Some(reserve), Threshold::Off);
                        assert!(share.used() <= 100);
                        taken.into_iter().for_each(|taken| share.give_back(taker, taken));
                    }
                });
            }
        });
        assert_eq!(share.used(), 0);
    }
}
