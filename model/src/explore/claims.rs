//! The claims of SPEC as lists of searches, and how their results decide them.
//!
//! | claim | what |
//! | --- | --- |
//! | a | under `open` agreement breaks inside the bound (SPEC section 9) |
//! | b | under `first_access` it never does, whatever the order of warps; and every correct process decides in time (V1, D2, K2) |
//! | c | with nobody late and a smaller value at hand, strong validity can be broken exactly when its bound is missed; with late processes it never breaks within the bound (V3, K3) |
//! | d | every rule that can be checked holds in every state, against all that Byzantine processes can do |
//!
//! Under `first_access` each is searched for one append round and, up to fewer processes, for two and three
//! (K1); several rounds in any order of warps in each round.

use std::fmt;

use super::check::ValidityOutcome;
use super::search::{SearchOrder, SearchResult};
use super::setup::{Adversary, ProcessKind, ScheduleClass, Setup};
use crate::bounds::strong_validity;
use crate::params::AppendWindow;

/// One of the claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Disagreement under `open`.
    A,
    /// Agreement and termination under `first_access`.
    B,
    /// The bound of strong validity is exact.
    C,
    /// The rules.
    D,
}

impl Claim {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    /// The largest n for which it is searched by default.
    #[must_use]
    pub const fn largest(self) -> u32 {
        match self {
            Self::A => 7,
            Self::B => 6,
            Self::C => 8,
            Self::D => 4,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
        })
    }
}

/// The result that a search must have for its claim to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It visits every state and finds no violation.
    NoViolation,
    /// It finds correct processes that decide differently.
    Disagreement,
    /// Either: which of the two is the result.
    Either,
    /// No violation, and decisions that no correct process proposed are found exactly where the bound is
    /// missed.
    ExactBound,
}

/// A search that belongs to a claim.
#[derive(Clone, Debug)]
pub struct Task {
    /// The claim.
    pub claim: Claim,
    /// Which part of it, in a few words.
    pub part: &'static str,
    /// The search.
    pub setup: Setup,
    /// The order in which it visits states.
    pub search_order: SearchOrder,
    /// The result that it must have.
    pub expected: Expected,
}

impl Task {
    fn new(claim: Claim, part: &'static str, expected: Expected, setup: Setup) -> Self {
        let search_order =
            if claim == Claim::A { SearchOrder::BreadthFirst } else { SearchOrder::DepthFirst };
        Self { claim, part, setup, search_order, expected }
    }

    /// Whether the result supports the claim.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn judge(&self, found: &SearchResult) -> Result<(), String> {
        let violation = found.witness.as_ref().map(|witness| &witness.violation);
        match (self.expected, violation) {
            (Expected::Either | Expected::Disagreement, Some(violation)) if violation.rule == "V1" => Ok(()),
            (_, Some(violation)) => Err(format!("{}: {}", violation.rule, violation.what)),
            (Expected::Disagreement, None) => Err("agreement was never broken".to_owned()),
            (Expected::ExactBound, None) => exact(&self.setup, found),
            (Expected::Either | Expected::NoViolation, None) => Ok(()),
        }
    }
}

/// Whether the decision can be the adversary's for exactly those f and |Vc| for which the bound is missed
/// (V3).
fn exact(setup: &Setup, found: &SearchResult) -> Result<(), String> {
    let params = setup.params().map_err(|error| error.to_string())?;
    let n = setup.processes;
    for values in 1..=u32::from(setup.values - setup.foreign).min(n) {
        for byzantine in 0..=n - values {
            let runs =
                |strong| found.outcomes.contains(&ValidityOutcome { byzantine, late: 0, values, strong });
            let (broken, promised) =
                (runs(false), strong_validity(&params, byzantine.into(), values.into()).is_ok());
            if broken == promised || !(broken || runs(true)) {
                let could = if broken { "can" } else { "cannot" };
                return Err(format!("f = {byzantine}, |Vc| = {values}: strong validity {could} be broken"));
            }
        }
    }
    Ok(())
}

/// The searches of a claim, for all n up to `largest`.
#[must_use]
pub fn tasks(claim: Claim, largest: u32) -> Vec<Task> {
    match claim {
        Claim::A => disagreement(largest),
        Claim::B => agreement(largest),
        Claim::C => bound(largest),
        Claim::D => rules(largest),
    }
}

/// The example of SPEC section 9: n = 5, p = 1, r = 5, proposals a a . b b.
#[must_use]
pub fn section_9() -> Setup {
    let [a, b] = [0, 1].map(ProcessKind::Correct);
    Setup { kinds: Some(vec![a, a, ProcessKind::Byzantine, b, b]), ..open(Setup::new(5, 1, 5)) }
}

/// As printed, in the first order of the paper, inside the bound.
fn open(setup: Setup) -> Setup {
    Setup { window: AppendWindow::Open, schedule: ScheduleClass::Ascending, inside_the_bound: true, ..setup }
}

/// The largest n for which all p, r and f are searched for a disagreement.
const ALL_SIZES: u32 = 6;

fn disagreement(largest: u32) -> Vec<Task> {
    let example = Task::new(Claim::A, "the example of section 9", Expected::Disagreement, section_9());
    let orders = [
        ("open, ascending", ScheduleClass::Ascending),
        ("open, descending", ScheduleClass::Descending),
        ("open, any order in each round", ScheduleClass::RoundBased),
    ];
    let all = orders.into_iter().flat_map(|(part, schedule)| {
        // Of more processes, those in warps of two, whose last one may be a warp of its own.
        let larger = (ALL_SIZES + 1..=largest).map(|n| Setup::new(n, 2, n));
        sizes(largest.min(ALL_SIZES)).chain(larger).map(move |setup| {
            let setup = Setup { schedule, ..open(setup) };
            let expected = if can_disagree(&setup) { Expected::Disagreement } else { Expected::Either };
            Task::new(Claim::A, part, expected, setup)
        })
    });
    std::iter::once(example).filter(|_| largest >= 5).chain(all).collect()
}

/// Whether one Byzantine process, which is a warp of its own, is inside the bound beside correct processes
/// that propose two values, and may come between other warps in a round. Of larger warps only the last may be
/// one process, and in both orders of the paper it comes first or last.
fn can_disagree(setup: &Setup) -> bool {
    let (n, p) = (setup.processes, setup.warp_size);
    n >= 4 && n % p == 1 % p && 3 * p < n && (p == 1 || !setup.schedule.has_fixed_order())
}

fn agreement(largest: u32) -> Vec<Task> {
    let task = |part, setup| Task::new(Claim::B, part, Expected::NoViolation, setup);
    let any = sizes(largest).map(|setup| task("agreement, any order of warps", setup));
    let three = sizes(largest.saturating_sub(1))
        .map(|setup| task("the same, three values", Setup { values: 3, ..setup }));
    let late = sizes(largest.saturating_sub(1))
        .map(|setup| task("the same, first phases missed", Setup { late: 1, ..setup }));
    let in_time = sizes(largest).map(|setup| {
        let setup = Setup { schedule: ScheduleClass::RoundBased, late: 2, ..setup };
        task("termination, any order in each round", setup)
    });
    let rounds = sizes_with_rounds(largest.saturating_sub(2)).map(|setup| {
        let setup = Setup { late: 1, ..setup };
        task("both, with append rounds", setup)
    });
    any.chain(three).chain(late).chain(in_time).chain(rounds).collect()
}

fn bound(largest: u32) -> Vec<Task> {
    // r is of no account for what the list comes to hold, and the largest makes the shortest runs.
    let for_lists = |setup| Setup {
        schedule: ScheduleClass::FirstRound,
        values: 4,
        foreign: 1,
        validity: true,
        lists_as_counts: true,
        ..setup
    };
    let one = || (1..=largest).flat_map(|n| (1..=n).map(move |p| Setup::new(n, p, n)));
    let several = || sizes_with_rounds(largest.saturating_sub(3)).filter(|it| it.read_size == it.processes);
    let task = |part, expected, setup| Task::new(Claim::C, part, expected, setup);
    let exact =
        |setup| task("breakable exactly where the bound is missed", Expected::ExactBound, for_lists(setup));
    let late = |setup| {
        let setup = Setup { late: 1, ..for_lists(setup) };
        task("never broken within it, with late processes", Expected::NoViolation, setup)
    };
    let exact_of_rounds = |setup| task("exact with append rounds", Expected::ExactBound, for_lists(setup));
    let late_of_rounds = |setup| Task { part: "append rounds, late processes", ..late(setup) };
    one()
        .map(exact)
        .chain(one().map(late))
        .chain(several().map(exact_of_rounds))
        .chain(several().map(late_of_rounds))
        .collect()
}

fn rules(largest: u32) -> Vec<Task> {
    let full = |setup| Setup { adversary: Adversary::Full, late: 1, ..setup };
    let sealed = sizes(largest).map(move |setup| {
        Task::new(Claim::D, "every access, first_access", Expected::NoViolation, full(setup))
    });
    let open = sizes(largest).map(move |setup| {
        let setup = Setup { window: AppendWindow::Open, agreement: false, ..full(setup) };
        Task::new(Claim::D, "every access, open", Expected::NoViolation, setup)
    });
    let rounds = sizes_with_rounds(largest).map(move |setup| {
        Task::new(Claim::D, "every access, append rounds", Expected::NoViolation, full(setup))
    });
    // A restart may fall between any two accesses: more ways to the same states.
    let restarted = sizes(largest.min(3)).map(move |setup| {
        let setup = Setup { restarts: true, ..full(setup) };
        Task::new(Claim::D, "the same, the server restarts", Expected::NoViolation, setup)
    });
    sealed.chain(open).chain(rounds).chain(restarted).collect()
}

/// All n up to `largest`, all p, all r.
fn sizes(largest: u32) -> impl Iterator<Item = Setup> {
    (1..=largest).flat_map(|n| (1..=n).flat_map(move |p| (1..=n).map(move |r| Setup::new(n, p, r))))
}

/// The same with two and three append rounds, in any order of warps in each round.
fn sizes_with_rounds(largest: u32) -> impl Iterator<Item = Setup> {
    let several = |setup: Setup| {
        let rounds = 2..=3.min(setup.warp_size);
        rounds.map(move |append_rounds| {
            let schedule = ScheduleClass::RoundBased;
            Setup { append_rounds, schedule, ..setup.clone() }
        })
    };
    sizes(largest).flat_map(several)
}
