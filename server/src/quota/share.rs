//! A bound that many takers share, so that none of them can take it all (SPEC B1).
//!
//! A part of it is kept for known takers, of which each has a reserve. The rest is common: whoever asks may take while
//! what it has of the common part is at most what is still free of it. So k greedy takers come to hold k/(k+1) of the
//! common part and one more still finds room (a dynamic threshold, as switches have it for their buffers: Choudhury and
//! Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998).

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// See the module.
#[derive(Debug)]
pub(crate) struct Share {
    total: usize,
    /// The part that is kept for known takers.
    kept: usize,
    kept_used: AtomicUsize,
    common_used: AtomicUsize,
}

/// What one taker has of a share.
#[derive(Debug, Default)]
pub(crate) struct Taker {
    kept: AtomicUsize,
    common: AtomicUsize,
}

/// What was taken at once, and where it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    kept: usize,
    common: usize,
}

/// Whether a taker may have all that is free. A taker is never above the bound itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threshold {
    /// What it has of the common part may be at most what is still free.
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
        Self { total, kept, kept_used: AtomicUsize::new(0), common_used: AtomicUsize::new(0) }
    }

    /// What is in use.
    pub(crate) fn used(&self) -> usize {
        self.kept_used.load(Relaxed) + self.common_used.load(Relaxed)
    }

    /// What is free of the common part.
    pub(crate) fn free(&self) -> usize {
        (self.total - self.kept).saturating_sub(self.common_used.load(Relaxed))
    }

    /// The bound.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The reserve of each known taker, if there are so many.
    pub(crate) fn reserve(&self, known: usize) -> usize {
        self.kept.checked_div(known).unwrap_or(0)
    }

    /// Takes `amount` for a taker with this reserve (0: it is not known). `None`: there is no room for it.
    pub(crate) fn take(
        &self,
        taker: &Taker,
        amount: usize,
        reserve: usize,
        threshold: Threshold,
    ) -> Option<Taken> {
        let kept = if reserve > 0 { self.take_kept(taker, amount, reserve) } else { 0 };
        let common = amount - kept;
        if common > 0 && !self.take_common(taker, common, threshold) {
            self.give_back(taker, Taken { kept, common: 0 });
            return None;
        }
        Some(Taken { kept, common })
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, taker: &Taker, Taken { kept, common }: Taken) {
        if kept > 0 {
            self.kept_used.fetch_sub(kept, Relaxed);
            taker.kept.fetch_sub(kept, Relaxed);
        }
        if common > 0 {
            self.common_used.fetch_sub(common, Relaxed);
            taker.common.fetch_sub(common, Relaxed);
        }
    }

    /// Takes at most `amount` of the reserve; how much.
    fn take_kept(&self, taker: &Taker, amount: usize, reserve: usize) -> usize {
        let mut kept = 0;
        let _ = taker.kept.fetch_update(Relaxed, Relaxed, |own| {
            kept = amount.min(reserve.saturating_sub(own));
            (kept > 0).then(|| own + kept)
        });
        // The reserves of all were larger while there were fewer known takers.
        let fits = |used: usize| used.checked_add(kept).filter(|used| *used <= self.kept);
        if kept > 0 && self.kept_used.fetch_update(Relaxed, Relaxed, fits).is_err() {
            taker.kept.fetch_sub(kept, Relaxed);
            return 0;
        }
        kept
    }

    fn take_common(&self, taker: &Taker, amount: usize, threshold: Threshold) -> bool {
        // Counted first: of two that take for one taker at once, neither overlooks the other.
        let own = taker.common.fetch_add(amount, Relaxed).saturating_add(amount);
        let wanted = if threshold == Threshold::Dynamic { own } else { amount };
        let fits = |used: usize| {
            let free = (self.total - self.kept).saturating_sub(used);
            (wanted <= free).then(|| used + amount)
        };
        let taken = self.common_used.fetch_update(Relaxed, Relaxed, fits).is_ok();
        if !taken {
            taker.common.fetch_sub(amount, Relaxed);
        }
        taken
    }
}

impl Taker {
    /// What it has.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.kept.load(Relaxed) + self.common.load(Relaxed)
    }
}

impl Taken {
    /// Both together.
    pub(crate) fn and(self, more: Self) -> Self {
        Self { kept: self.kept + more.kept, common: self.common + more.common }
    }

    /// How much it is.
    #[cfg(test)]
    pub(crate) fn amount(self) -> usize {
        self.kept + self.common
    }
}

/// Whether one of so many known takers, which has `own` of the total, may take `amount` more, where all (it included) have
/// so much. The same rule without counters: half is kept for the takers in equal reserves; one taker alone may have all.
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
            let takers: [Taker; KNOWN + OTHERS] = Default::default();
            let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); takers.len()];
            let reserve = share.reserve(KNOWN);
            for (who, amount, gives_back) in steps {
                let of = if who < KNOWN { reserve } else { 0 };
                if gives_back {
                    if let Some(back) = taken[who].pop() {
                        share.give_back(&takers[who], back);
                    }
                } else {
                    let within = takers[who].kept.load(Relaxed) + amount <= of;
                    match share.take(&takers[who], amount, of, Threshold::Dynamic) {
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
            let takers: Vec<Taker> = (0..greedy).map(|_| Taker::default()).collect();
            let mut progress = true;
            while progress {
                let took = takers.iter().filter(|taker| share.take(taker, 1, 0, Threshold::Dynamic).is_some());
                progress = took.count() > 0;
            }
            let free = total - share.used();
            prop_assert!(free >= total / (greedy + 1), "{free} of {total} beside {greedy}");
            prop_assert!(share.take(&Taker::default(), 1, 0, Threshold::Dynamic).is_some());
        }
    }

    #[test]
    fn without_threshold_one_may_take_all_and_no_more() {
        let (share, taker) = (Share::new(10, 0), Taker::default());
        let take = |amount| share.take(&taker, amount, 0, Threshold::Off);
        assert!(take(10).is_some());
        assert_eq!(take(1), None);
        assert_eq!((share.used(), taker.used(), share.total()), (10, 10, 10));
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let share = Share::halved(100);
        let takers: [Taker; 4] = Default::default();
        std::thread::scope(|threads| {
            for taker in &takers {
                threads.spawn(|| {
                    for turn in 0..2_000 {
                        let taken = share.take(taker, 1 + turn % 40, 12, Threshold::Off);
                        assert!(share.used() <= 100);
                        taken.into_iter().for_each(|taken| share.give_back(taker, taken));
                    }
                });
            }
        });
        assert_eq!(share.used(), 0);
    }
}
