//! The random generator of the model: `SplitMix64`, so that a seed means the same in every language and
//! release (W4). It is fast and well mixed. No secret may depend on it.

/// Weyl constant of the generator: 2^64 divided by the golden ratio, made odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Steele, Lea and Flood: "Fast splittable pseudorandom number generators" (OOPSLA 2014), the 64-bit variant
/// that is published as `splitmix64.c`.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator with this seed; every number is a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0. It is the upper half of a 128-bit product: for the bounds
    /// of a run the bias is far below anything that can be observed, and every call draws exactly once.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the upper half of 128 bits has 64")
    }

    /// An index into something of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        let drawn = self.below(u64::try_from(length).unwrap_or(u64::MAX));
        usize::try_from(drawn).expect("a number below a length is an index")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_come_out() {
        let mut random = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn every_number_below_the_bound_is_drawn_and_no_other() {
        let mut random = SplitMix64::new(7);
        let mut counts = [0_u32; 5];
        for _ in 0..1000 {
            counts[random.index(5)] += 1;
        }
        assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
        assert_eq!(random.below(0), 0);
    }
}
