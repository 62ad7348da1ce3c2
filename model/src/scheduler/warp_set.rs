//! A set of warps in which the next member is found in a few operations, however many warps there are.

use crate::types::WarpId;

const BITS: usize = u64::BITS as usize;

/// A set of the warps 1 to W: a bit for each, and for each word of 64 a bit that says whether any is in it.
/// With the most warps that there can be (65,536) a search looks at 16 words at the worst.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarpSet {
    /// A bit for each warp, by its index; behind them a bit for each of these words.
    words: Box<[u64]>,
    /// Where the second kind begins.
    summary: usize,
}

impl WarpSet {
    /// All W warps.
    #[must_use]
    pub fn all(warps: u32) -> Self {
        let warps = warps as usize;
        let summary = warps.div_ceil(BITS);
        let mut words = vec![u64::MAX; summary + summary.div_ceil(BITS)];
        let (first, second) = words.split_at_mut(summary);
        keep_first(first, warps);
        keep_first(second, summary);
        Self { words: words.into_boxed_slice(), summary }
    }

    /// Whether the set has no warps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words[self.summary..].iter().all(|&word| word == 0)
    }

    /// Whether this warp is in the set.
    #[must_use]
    pub fn contains(&self, warp: WarpId) -> bool {
        self.words[warp.index() / BITS] & bit(warp.index()) != 0
    }

    /// Adds a warp, unless it is in the set.
    pub fn insert(&mut self, warp: WarpId) {
        let word = warp.index() / BITS;
        self.words[word] |= bit(warp.index());
        self.words[self.summary + word / BITS] |= bit(word);
    }

    /// Removes a warp, if it is in the set.
    pub fn remove(&mut self, warp: WarpId) {
        let word = warp.index() / BITS;
        self.words[word] &= !bit(warp.index());
        if self.words[word] == 0 {
            self.words[self.summary + word / BITS] &= !bit(word);
        }
    }

    /// The first warp of the set from this one on, upwards.
    #[must_use]
    pub fn next_up(&self, from: WarpId) -> Option<WarpId> {
        let (words, summary) = self.words.split_at(self.summary);
        let index = up(words, from.index()).or_else(|| {
            // Nothing more in that word: the summary knows the next that has something.
            let word = up_from(summary, from.index() / BITS + 1)?;
            Some(word * BITS + words[word].trailing_zeros() as usize)
        })?;
        WarpId::from_index(index)
    }

    /// The first warp of the set from this one on, downwards.
    #[must_use]
    pub fn next_down(&self, from: WarpId) -> Option<WarpId> {
        let (words, summary) = self.words.split_at(self.summary);
        let index = down(words, from.index()).or_else(|| {
            let word = down_from(summary, (from.index() / BITS).checked_sub(1)?)?;
            Some(word * BITS + highest(words[word]))
        })?;
        WarpId::from_index(index)
    }

    /// The lowest warp of the set.
    #[must_use]
    pub fn first(&self) -> Option<WarpId> {
        self.next_up(WarpId::FIRST)
    }

    /// The highest warp of the set.
    #[must_use]
    pub fn last(&self) -> Option<WarpId> {
        let word = down_from(&self.words[self.summary..], self.summary - 1)?;
        WarpId::from_index(word * BITS + highest(self.words[word]))
    }
}

const fn bit(index: usize) -> u64 {
    1 << (index % BITS)
}

fn highest(word: u64) -> usize {
    BITS - 1 - word.leading_zeros() as usize
}

/// Leaves only the first `count` bits.
fn keep_first(words: &mut [u64], count: usize) {
    if let (Some(last), false) = (words.last_mut(), count.is_multiple_of(BITS)) {
        *last = bit(count) - 1;
    }
}

/// The first set bit from `from` on in the word of `from`.
fn up(words: &[u64], from: usize) -> Option<usize> {
    let rest = words[from / BITS] & (u64::MAX << (from % BITS));
    (rest != 0).then(|| from / BITS * BITS + rest.trailing_zeros() as usize)
}

/// The last set bit up to `from` in the word of `from`.
fn down(words: &[u64], from: usize) -> Option<usize> {
    let rest = words[from / BITS] & (u64::MAX >> (BITS - 1 - from % BITS));
    (rest != 0).then(|| from / BITS * BITS + highest(rest))
}

/// The first set bit from `from` on in all words.
fn up_from(words: &[u64], from: usize) -> Option<usize> {
    (from / BITS..words.len()).find_map(|word| up(words, from.max(word * BITS)))
}

/// The last set bit up to `from` in all words.
fn down_from(words: &[u64], from: usize) -> Option<usize> {
    (0..=from / BITS).rev().find_map(|word| down(words, from.min(word * BITS + BITS - 1)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn it_answers_as_an_ordered_set_does() {
        for warps in [1_u32, 2, 63, 64, 65, 4_096, 4_097, 9_000] {
            let mut random = SplitMix64::new(warps.into());
            let mut draw = || WarpId::from_index(random.index(warps as usize)).unwrap();
            let mut set = WarpSet::all(warps);
            let mut plain: BTreeSet<WarpId> = (1..=warps).filter_map(WarpId::new).collect();
            for step in 0..6 * warps {
                let warp = draw();
                // Mostly removals, so that the set becomes sparse and then empty.
                if step % 8 == 0 {
                    set.insert(warp);
                    plain.insert(warp);
                } else {
                    set.remove(warp);
                    plain.remove(&warp);
                }
                let from = draw();
                assert_eq!(set.next_up(from), plain.range(from..).next().copied());
                assert_eq!(set.next_down(from), plain.range(..=from).next_back().copied());
                assert_eq!((set.first(), set.last()), (plain.first().copied(), plain.last().copied()));
                assert_eq!((set.contains(from), set.is_empty()), (plain.contains(&from), plain.is_empty()));
            }
            plain.iter().for_each(|&warp| set.remove(warp));
            assert!(set.is_empty() && set.first().is_none() && set.last().is_none());
        }
    }
}
