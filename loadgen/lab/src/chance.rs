//! How likely strong validity breaks when no adversary can choose the winner of a phase (paper, "Remarks on
//! Resilience"; SPEC A4, V3).
//!
//! The theorem lets the adversary win every warp that it has a process in. The paper calls that pessimistic
//! and names another model, in which "all threads have equal chances of success": our `uniform` arbiter.
//! There, the success of the adversary has a probability, and this module computes it, exactly up to
//! rounding. `docs/theory/chance.md` derives it; its symbols (W, B, v, k, q(i), cap) are used here.
//! `tests/chance_simulated.rs` holds it against the simulator, and `tests/chance_forms.rs` has the same for
//! proposals that are given.
//!
//! A sum of independent trials is built trial by trial, that over the warps warp by warp
//! ([`byzantine_entries`]). The entries that are not v come from different correct processes: of the k
//! certain proposals a hypergeometric number is among them, and the others are even draws over the k values.
//! v is the mode if they fit below the caps; that is the probability of an even multinomial, computed value
//! by value: of m draws among the first x values, Binomial(m, 1/x) are the x-th. [`drawn_proposals`] adds it
//! all up, in about W²k² times W steps.

/// Chances below this are left out of sums: all of them together are lost in rounding.
const NEGLIGIBLE: f64 = 1e-20;

/// Where the colluders' value v lies among the values of Vc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// It is one of them, so that to decide it breaks nothing.
    Proposed,
    /// It is none of them, and larger than this many of them. 0 serves an adversary best: it wins every tie.
    Above(usize),
}

impl Rank {
    /// Where `value` lies among `proposals`, each of which is given once.
    pub fn of<T: Ord>(value: &T, proposals: impl IntoIterator<Item = T>) -> Self {
        let mut above = 0;
        for proposal in proposals {
            match proposal.cmp(value) {
                std::cmp::Ordering::Less => above += 1,
                std::cmp::Ordering::Equal => return Self::Proposed,
                std::cmp::Ordering::Greater => {}
            }
        }
        Self::Above(above)
    }
}

/// The distribution of B, as the chances of 0, 1, 2, ... . Of each warp, with so many members of which so
/// many are Byzantine, the winners of q append rounds are a uniform draw of q members, or all of them if
/// there are fewer (K1).
#[must_use]
pub fn byzantine_entries(warps: impl IntoIterator<Item = (u32, u32)>, rounds: u32) -> Vec<f64> {
    warps.into_iter().fold(vec![1.0], |before, (members, byzantine)| {
        let of_warp = hypergeometric(members as usize, byzantine as usize, rounds as usize);
        let mut entries = vec![0.0; before.len() + of_warp.len() - 1];
        for (count, chance) in before.iter().enumerate() {
            for (more, of_more) in of_warp.iter().enumerate() {
                entries[count + more] += chance * of_more;
            }
        }
        entries
    })
}

/// The same where the f Byzantine processes are drawn from all n, every set of them being equally likely, and
/// the arbiter is uniform: then the winners are a uniform draw of so many processes, W for one append round,
/// whatever the size of the warps.
#[must_use]
pub fn byzantine_entries_if_drawn(processes: u32, byzantine: u32, winners: u32) -> Vec<f64> {
    hypergeometric(processes as usize, byzantine as usize, winners as usize)
}

/// The chance that strong validity breaks where proposals are drawn as the module says. `entries` is the
/// distribution of B, `correct` is n - f, and `values` is k, which is 1 to `correct`.
#[must_use]
pub fn drawn_proposals(entries: &[f64], correct: u32, values: u32, rank: Rank) -> f64 {
    let Rank::Above(above) = rank else { return 0.0 };
    let (correct, values) = (correct as usize, values as usize);
    let warps = entries.len() - 1;
    expected(entries, |byzantine| {
        let others = warps - byzantine;
        let certain = hypergeometric(correct, values, others);
        expected(&certain, |certain| fits(others - certain, certain, Caps { byzantine, values, above }))
    })
}

/// The most entries that the values of Vc may have for v to be the mode.
#[derive(Clone, Copy)]
struct Caps {
    /// B.
    byzantine: usize,
    /// k.
    values: usize,
    /// How many of them win a tie with v.
    above: usize,
}

impl Caps {
    /// The entries that each value may still take if so many of those that win a tie, and so many of those
    /// that lose it, have an entry already. `None` for one that has too many as it is.
    fn left(self, winning: usize, losing: usize) -> impl Iterator<Item = Option<usize>> {
        (0..self.values).map(move |value| {
            let wins_tie = value < self.above;
            let has = if wins_tie { value < winning } else { value - self.above < losing };
            self.byzantine.checked_sub(usize::from(wins_tie) + usize::from(has))
        })
    }
}

/// The chance that `draws` even draws stay within the caps, if `certain` of the values, drawn without return,
/// have an entry already.
fn fits(draws: usize, certain: usize, caps: Caps) -> f64 {
    let winning = hypergeometric(caps.values, caps.above, certain);
    expected(&winning, |winning| even_draws_within(draws, caps.left(winning, certain - winning)))
}

/// The chance that of `draws` even draws among as many values as there are caps, none takes more than its
/// cap.
fn even_draws_within(draws: usize, caps: impl Iterator<Item = Option<usize>>) -> f64 {
    // The chance that so many draws fit among the values so far.
    let mut fitting = vec![0.0; draws + 1];
    fitting[0] = 1.0;
    for (values, cap) in (1_u32..).zip(caps) {
        let Some(cap) = cap else { return 0.0 };
        let mut newest = vec![1.0];
        fitting = (0..=draws)
            .map(|draws| {
                let taken = newest.iter().zip(fitting[..=draws].iter().rev()).take(cap + 1);
                let fits = taken.map(|(takes, others_fit)| takes * others_fit).sum();
                add_trial(&mut newest, |_| 1.0 / f64::from(values));
                fits
            })
            .collect();
    }
    fitting[draws]
}

/// How many marked ones there are among `draws` of `all` things, of which `marked` are marked, drawn without
/// return. A draw of more than all draws all.
fn hypergeometric(all: usize, marked: usize, draws: usize) -> Vec<f64> {
    let mut found = vec![1.0];
    for drawn in 0..draws.min(all) {
        add_trial(&mut found, |found| marked.saturating_sub(found) as f64 / (all - drawn) as f64);
    }
    found
}

/// One more trial: `counts[c]` was the chance of c successes so far, and `success(c)` is that of another.
fn add_trial(counts: &mut Vec<f64>, success: impl Fn(usize) -> f64) {
    let mut comes = 0.0;
    for (count, chance) in counts.iter_mut().enumerate() {
        let goes = *chance * success(count);
        *chance += comes - goes;
        comes = goes;
    }
    counts.push(comes);
}

/// The mean of `of(0)`, `of(1)`, ... under these chances.
fn expected(chances: &[f64], of: impl Fn(usize) -> f64) -> f64 {
    let likely = chances.iter().enumerate().filter(|(_, chance)| **chance > NEGLIGIBLE);
    likely.map(|(number, chance)| chance * of(number)).sum()
}
