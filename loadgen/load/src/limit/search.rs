//! One search for the highest rate that holds. Pure: it is told what held.
//!
//! The rate is raised by a factor until it does not hold, or lowered until it does; then what is between is
//! halved, by ratio, until both ends are as near as asked for. A rate that does not hold is tried once more
//! before it counts. When the ends are near, both are tried again, best of three; an end that does not say
//! the same again is taken back, and the search goes on beyond it, until its tries are used up. Why:
//! `docs/notes/load-testing.md`.

/// As many tries has a search, and once more as many if it has just taken back whatever held.
const MOST_TRIES: u32 = 40;
/// By which factor at most a search leaves ends that it had found once, which were near.
const NEAR_FACTOR: f64 = 1.2;
/// By so many steps of its factor a search is expected to raise its first rate.
const FIRST_STEPS: i32 = 2;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The highest rate that held.
    low: Option<End>,
    /// The lowest that did not.
    high: Option<End>,
    start: f64,
    factor: f64,
    /// The ends are near when they differ by no more than this factor.
    near: f64,
    tries: u32,
    /// Whether any rate has held.
    has_held: bool,
    /// The rate on which there is no judgement yet, and what its tries said.
    pending: Option<Pending>,
}

/// A rate that is being tried several times.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pending {
    rate: f64,
    held: u32,
    failed: u32,
}

/// One end of what is still in question.
#[derive(Clone, Copy, Debug, PartialEq)]
struct End {
    rate: f64,
    /// Whether it said the same again when both ends were near.
    confirmed: bool,
}

impl Search {
    /// From this rate on, raising or lowering it by this factor, until known as exactly as `near` says.
    #[must_use]
    pub fn new(start: f64, factor: f64, near: f64) -> Self {
        Self { low: None, high: None, start, factor, near, tries: 0, has_held: false, pending: None }
    }

    /// The next rate to be tried; `None` when it is over.
    #[must_use]
    pub fn next(&self) -> Option<f64> {
        let taken_back = self.has_held && self.low.is_none();
        if self.tries >= if taken_back { 2 * MOST_TRIES } else { MOST_TRIES } {
            return None;
        }
        if let Some(pending) = self.pending {
            return Some(pending.rate);
        }
        match (self.low, self.high) {
            (None, None) => Some(self.start),
            (Some(low), None) => Some(low.rate * self.factor),
            (None, Some(high)) => Some(high.rate / self.factor),
            (Some(low), Some(high)) if !self.is_near(low, high) => Some((low.rate * high.rate).sqrt()),
            (Some(low), Some(high)) => [low, high].iter().find(|end| !end.confirmed).map(|end| end.rate),
        }
    }

    /// How many rates it will still try, if the limit is where it is most likely to be and no rate now holds
    /// and now does not.
    #[must_use]
    pub fn tries_left(&self) -> u32 {
        let limit = match (self.low, self.high) {
            (None, None) => self.start * self.factor.powi(FIRST_STEPS),
            (Some(low), None) => low.rate * self.factor.sqrt(),
            (None, Some(high)) => high.rate / self.factor.sqrt(),
            (Some(low), Some(high)) => (low.rate * high.rate).sqrt(),
        };
        let mut rest = self.clone();
        while let Some(rate) = rest.next() {
            rest.tell(rate, rate < limit);
        }
        rest.tries - self.tries
    }

    fn is_near(&self, low: End, high: End) -> bool {
        high.rate / low.rate <= self.near
    }

    /// Whether this rate held. One that did not is tried once more before it counts; when both ends are near,
    /// each rate is tried until two tries have said the same.
    pub fn tell(&mut self, rate: f64, held: bool) {
        self.tries += 1;
        let near = self.low.zip(self.high).is_some_and(|(low, high)| self.is_near(low, high));
        let mut pending = self.pending.take().unwrap_or(Pending { rate, held: 0, failed: 0 });
        *(if held { &mut pending.held } else { &mut pending.failed }) += 1;
        let enough_held = if near { 2 } else { 1 };
        if pending.held < enough_held && pending.failed < 2 {
            self.pending = Some(pending);
            return;
        }
        if near {
            self.factor = self.factor.min(NEAR_FACTOR);
        }
        let before = if held { self.low } else { self.high };
        let end = Some(End { rate, confirmed: near && before.is_some_and(|before| before.rate == rate) });
        self.has_held |= held;
        if held {
            self.low = end;
            self.high = self.high.filter(|high| high.rate > rate);
        } else {
            self.high = end;
            self.low = self.low.filter(|low| low.rate < rate);
        }
    }

    /// The highest rate that held; `None` if none did.
    #[must_use]
    pub fn held(&self) -> Option<f64> {
        self.low.map(|end| end.rate)
    }

    /// The lowest rate that did not hold; `None` if every one did.
    #[must_use]
    pub fn failed(&self) -> Option<f64> {
        self.high.map(|end| end.rate)
    }

    /// Whether both ends said the same twice.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        [self.low, self.high].iter().all(|end| end.is_some_and(|end| end.confirmed))
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::random::SplitMix64;

    use super::*;

    /// A search of a system that holds below `true_limit`.
    fn searched(start: f64, true_limit: f64) -> Search {
        searched_with(start, |rate| rate < true_limit)
    }

    fn searched_with(start: f64, mut holds: impl FnMut(f64) -> bool) -> Search {
        let mut search = Search::new(start, 2.0, 1.05);
        while let Some(rate) = search.next() {
            let held = holds(rate);
            search.tell(rate, held);
        }
        search
    }

    #[test]
    fn a_search_finds_the_limit_from_below_and_from_above() {
        for (start, limit) in [(10.0, 777.0), (20_000.0, 777.0), (777.0, 777.0), (1.0, 12_345.6)] {
            let search = searched(start, limit);
            let (held, failed) = (search.held().unwrap(), search.failed().unwrap());
            assert!(held < limit && failed >= limit && failed / held <= 1.05, "{search:?}");
            assert!(search.is_settled(), "{search:?}");
        }
    }

    #[test]
    fn a_search_knows_how_many_tries_are_left() {
        let mut search = Search::new(100.0, 2.0, 1.05);
        let expected = search.tries_left();
        let mut tries = 0;
        while let Some(rate) = search.next() {
            // The limit is about where it expects it.
            search.tell(rate, rate < 390.0);
            tries += 1;
        }
        assert_eq!((tries, search.tries_left()), (expected, 0));
    }

    #[test]
    fn a_search_that_was_misled_takes_it_back() {
        // Long bad times, in which whatever is tried does not hold: at the start, and just before the end.
        for bad in [0..2, 2..5, 9..13] {
            let mut moment = 0..;
            let search = searched_with(100.0, |rate| !bad.contains(&moment.next().unwrap()) && rate < 777.0);
            let held = search.held().unwrap();
            assert!(search.is_settled() && held < 777.0 && held * 1.05 >= 777.0, "{bad:?}: {search:?}");
        }
        // A lucky one.
        let mut moment = 0..;
        let search = searched_with(100.0, |rate| moment.next() == Some(4) || rate < 777.0);
        let held = search.held().unwrap();
        assert!(search.is_settled() && held < 777.0 && held * 1.05 >= 777.0, "{search:?}");
    }

    #[test]
    fn one_bad_moment_in_five_moves_hardly_any_search() {
        let mut near = 0;
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let search = searched_with(100.0, |rate| rate < 777.0 && random.index(5) > 0);
            near += u32::from(search.held().is_some_and(|rate| (700.0..777.0).contains(&rate)));
        }
        assert!(near >= 180, "{near} of 200");
    }

    #[test]
    fn a_search_ends_where_a_rate_holds_half_of_the_time() {
        let mut sum = 0.0;
        for seed in 0..300 {
            let mut random = SplitMix64::new(seed);
            // From 9 in 10 at 720 down to 1 in 10 at 1,390.
            let chance = |rate: f64| 1.0 / (1.0 + (rate / 1_000.0).powf(1.0 / 0.15));
            let search = searched_with(100.0, |rate| (random.index(1_000_000) as f64) < 1e6 * chance(rate));
            sum += search.held().unwrap().ln();
        }
        let mean = (sum / 300.0).exp();
        assert!((940.0..1_040.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_search_settles_only_on_a_repeated_answer() {
        let mut holds = false;
        let search = searched_with(100.0, |_| {
            holds = !holds;
            holds
        });
        assert!(!search.is_settled(), "{search:?}");
    }

    #[test]
    fn a_search_ends_where_everything_or_nothing_holds() {
        let all = searched(10.0, f64::INFINITY);
        assert!(all.held().is_some_and(|rate| rate > 1e6) && !all.is_settled());
        let none = searched(10.0, 0.0);
        assert_eq!((none.held(), none.is_settled()), (None, false));
    }
}
