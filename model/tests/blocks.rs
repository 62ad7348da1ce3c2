//! Several blocks, on paper (docs/theory/paper.md): each has a list and a scheduler of its own, a process
//! appends in the blocks of which it is a member, reads all lists, and decides the mode over all of them.
//! Here each block is a machine; whose scheduler has the next phase is drawn.
//!
//! One phase of a member is one read of one list, of its block or another, as the list stands when the phase
//! begins. A machine serves its own members only, so a member of another block reads the list past it, and
//! its access in its own block is a read whose answer it drops.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use stickycas_model::access::{Access, AppendAnswer, Op};
use stickycas_model::machine::Machine;
use stickycas_model::params::{Arbiter, Params, ParamsSpec};
use stickycas_model::predicates::appends_again;
use stickycas_model::process::mode;
use stickycas_model::types::{Position, ProcessId, Time, Value};

/// A process, by its place among all.
type Process = usize;

/// The parameters of each block, and its members.
type Sizes = Vec<(Params, Vec<Process>)>;

/// What a process is.
#[derive(Clone, Debug)]
enum Kind {
    /// It proposes this value.
    Correct(Value),
    /// In each phase of each block it appends this value, or reads.
    Byzantine(Vec<Option<Value>>),
}

impl Kind {
    fn is_byzantine(&self) -> bool {
        matches!(self, Self::Byzantine(_))
    }
}

/// When a correct process takes a list for complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complete {
    /// When it holds all of a sealed list.
    Sealed,
    /// When it holds all that stands.
    AsItStands,
}

struct Block {
    machine: Machine,
    /// The processes that are its members, by their numbers there.
    roster: Vec<Process>,
}

impl Block {
    /// All have joined, and the adversary wins whatever it can.
    fn new(params: &Params, kinds: &[Kind], roster: &[Process]) -> Self {
        let members = ProcessId::all(params.processes());
        let first = members.filter(|member| kinds[roster[member.index()]].is_byzantine()).collect();
        let spec = ParamsSpec { arbiter: Arbiter::Priority(first), ..params.spec().clone() };
        let mut machine = Machine::new(Arc::new(Params::try_new(spec).unwrap()));
        for process in ProcessId::all(params.processes()) {
            machine.hello(Time::ZERO, process, 1, &mut Vec::new()).unwrap();
        }
        Self { machine, roster: roster.to_vec() }
    }
}

/// The entries of each list that a process holds, and whether they are all.
#[derive(Clone, Debug)]
struct Reader {
    lists: Vec<(Vec<Value>, bool)>,
    decision: Option<Value>,
}

struct Blocks {
    blocks: Vec<Block>,
    kinds: Vec<Kind>,
    readers: Vec<Reader>,
    complete: Complete,
}

impl Blocks {
    /// Blocks with these parameters and members.
    fn new(blocks: &[(Params, Vec<Process>)], kinds: Vec<Kind>, complete: Complete) -> Self {
        let reader = Reader { lists: vec![(Vec::new(), false); blocks.len()], decision: None };
        Self {
            readers: vec![reader; kinds.len()],
            blocks: blocks.iter().map(|(params, roster)| Block::new(params, &kinds, roster)).collect(),
            kinds,
            complete,
        }
    }

    /// The scheduler of this block has its next phase. A member that has decided goes on with reads.
    fn phase(&mut self, at: usize) {
        let params = Arc::clone(self.blocks[at].machine.params());
        let warp = self.blocks[at].machine.status(Time::ZERO).warp.unwrap();
        let acts: Vec<(ProcessId, Op)> =
            params.members(warp).map(|member| (member, self.act(at, member))).collect();
        let machine = &mut self.blocks[at].machine;
        for (process, op) in acts {
            let access =
                Access { process, session: None, number: machine.member(process).next, op, no_wait: false };
            machine.access(Time::ZERO, access, &mut Vec::new()).unwrap();
        }
    }

    /// The next access of a member of this block.
    fn act(&mut self, at: usize, member: ProcessId) -> Op {
        let block = &self.blocks[at];
        let (process, params) = (block.roster[member.index()], Arc::clone(block.machine.params()));
        let read = Op::Read { start: Position::new(0) };
        match &self.kinds[process] {
            Kind::Byzantine(values) => values[at].clone().map_or(read, Op::Append),
            Kind::Correct(proposal) => {
                let appends = match block.machine.member(member).append {
                    None => true,
                    Some((phase, AppendAnswer::Failed)) => appends_again(&params, phase),
                    Some(_) => false,
                };
                if appends {
                    return Op::Append(proposal.clone());
                }
                self.read(process, params.read_size());
                read
            }
        }
    }

    /// A process reads from the first list that it does not hold whole, and decides when it holds all.
    fn read(&mut self, process: Process, read_size: u32) {
        let reader = &mut self.readers[process];
        if let Some(next) = reader.lists.iter().position(|(_, whole)| !whole) {
            let machine = &self.blocks[next].machine;
            let (held, whole) = &mut reader.lists[next];
            let entries = machine.list().iter().skip(held.len()).take(read_size as usize);
            held.extend(entries.map(|entry| entry.value.clone()));
            let holds_all = held.len() == machine.list().len() as usize;
            *whole = holds_all && (machine.sealed() || self.complete == Complete::AsItStands);
        }
        if reader.lists.iter().all(|(_, whole)| *whole) {
            let decision = mode(reader.lists.iter().flat_map(|(held, _)| held)).cloned();
            reader.decision = reader.decision.take().or(decision);
        }
    }

    /// The decisions of the correct processes that have decided.
    fn decisions(&self) -> BTreeSet<&Value> {
        self.readers.iter().filter_map(|reader| reader.decision.as_ref()).collect()
    }

    fn all_have_decided(&self) -> bool {
        let mut all = self.kinds.iter().zip(&self.readers);
        all.all(|(kind, reader)| kind.is_byzantine() || reader.decision.is_some())
    }

    /// Vc.
    fn proposals(&self) -> BTreeSet<&Value> {
        let proposals = self.kinds.iter().filter_map(|kind| match kind {
            Kind::Correct(proposal) => Some(proposal),
            Kind::Byzantine(_) => None,
        });
        proposals.collect()
    }

    /// Whether strong validity is promised: F*(|Vc|+1) is less than the entries that the lists can have,
    /// where F counts a Byzantine process once for each block of which it is a member.
    fn is_promised(&self) -> bool {
        let members = self.blocks.iter().flat_map(|block| &block.roster);
        let faulty = members.filter(|process| self.kinds[**process].is_byzantine()).count();
        let entries: u32 = self.blocks.iter().map(|block| block.machine.params().counted_entries()).sum();
        faulty * (self.proposals().len() + 1) < entries as usize
    }

    /// Lets the schedulers have phases in this order, again and again, until all correct processes have
    /// decided.
    fn run(&mut self, order: &[usize]) {
        for at in order.iter().cycle().take(100_000) {
            if self.all_have_decided() {
                return;
            }
            self.phase(*at);
        }
        unreachable!("every block had its phases, and not every process has decided");
    }
}

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

fn params(n: u32, p: u32, r: u32, append_rounds: u32) -> Params {
    Params::try_new(ParamsSpec { append_rounds, ..ParamsSpec::new(n, p, r) }).unwrap()
}

/// Blocks of sizes of their own, whose members are drawn: each process is a member of one block, or of all.
fn blocks() -> impl Strategy<Value = (Sizes, usize)> {
    let sizes = prop::collection::vec((1_u32..=5, 1_u32..=5, 1_u32..=4, 1_u32..=5), 1..=3);
    let split = sizes.clone().prop_flat_map(|sizes| {
        let all: Vec<Process> = (0..sizes.iter().map(|size| size.0 as usize).sum()).collect();
        (Just(sizes), Just(all).prop_shuffle())
    });
    let split = split.prop_map(|(sizes, drawn)| {
        let mut rest = &drawn[..];
        let block = |(n, p, r, q): (u32, u32, u32, u32)| {
            let (roster, others) = rest.split_at(n as usize);
            rest = others;
            (params(n, p.min(n), r.min(n), q.min(p.min(n))), roster.to_vec())
        };
        (sizes.into_iter().map(block).collect(), drawn.len())
    });
    let all = (2_u32..=6, sizes).prop_flat_map(|(n, sizes)| {
        let rosters = sizes.iter().map(|_| Just((0..n as usize).collect::<Vec<_>>()).prop_shuffle());
        let block = move |((_, p, r, q), roster): ((u32, u32, u32, u32), Vec<Process>)| {
            (params(n, p.min(n), r.min(n), q.min(p.min(n))), roster)
        };
        let rosters: Vec<_> = rosters.collect();
        (Just(sizes), rosters).prop_map(move |(sizes, rosters)| {
            (sizes.into_iter().zip(rosters).map(block).collect(), n as usize)
        })
    });
    prop_oneof![split, all]
}

/// Kinds of so many processes of so many blocks; a Byzantine one does something else in each block.
fn kinds(processes: usize, blocks: usize) -> impl Strategy<Value = Vec<Kind>> {
    let act = prop_oneof![3 => Just(Some("A")), 1 => Just(Some("a")), 1 => Just(Some("Z")), 1 => Just(None)];
    let byzantine = prop::collection::vec(act.prop_map(|act| act.map(value)), blocks);
    let correct = prop::sample::select(&["a", "b"][..]).prop_map(|text| Kind::Correct(value(text)));
    let kind = prop_oneof![4 => correct, 1 => byzantine.prop_map(Kind::Byzantine)];
    prop::collection::vec(kind, processes)
}

/// An order in which schedulers have phases: each at least once.
fn orders(blocks: usize) -> impl Strategy<Value = Vec<usize>> {
    let more = prop::collection::vec(0..blocks, 0..30);
    (more, Just((0..blocks).collect::<Vec<_>>())).prop_map(|(more, each)| [more, each].concat())
}

fn any_blocks() -> impl Strategy<Value = (Sizes, Vec<Kind>, Vec<usize>)> {
    blocks().prop_flat_map(|(blocks, processes)| {
        let (kinds, orders) = (kinds(processes, blocks.len()), orders(blocks.len()));
        (Just(blocks), kinds, orders)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_all_lists_sealed_correct_processes_agree_and_decide_a_proposal_inside_the_bound(
        (blocks, kinds, order) in any_blocks(),
    ) {
        let mut blocks = Blocks::new(&blocks, kinds, Complete::Sealed);
        prop_assume!(!blocks.proposals().is_empty());
        blocks.run(&order);
        let decided = blocks.decisions();
        prop_assert_eq!(decided.len(), 1, "{:?}", decided);
        if blocks.is_promised() {
            prop_assert!(decided.is_subset(&blocks.proposals()), "{:?}", decided);
        }
    }
}

/// Two blocks of five, p = 1, with a list each: one Byzantine process of ten (1*(2+1) < 10), which only
/// reads. Whoever reads the second list before it is sealed decides something else than the others.
#[test]
fn a_list_that_is_not_sealed_splits_the_decisions() {
    let proposals = ["a", "a", "a", "a", "a", "b", "b", "b", "b", "b"];
    let blocks = [(params(5, 1, 5, 1), (0..5).collect()), (params(5, 1, 5, 1), (5..10).collect())];
    let run = |complete| {
        let mut kinds: Vec<Kind> = proposals.map(|text| Kind::Correct(value(text))).into();
        kinds[0] = Kind::Byzantine(vec![None, None]);
        let mut blocks = Blocks::new(&blocks, kinds, complete);
        // The first scheduler has ten rounds before the second has a phase.
        blocks.run(&[vec![0; 50], vec![1; 50]].concat());
        blocks.decisions().into_iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(run(Complete::AsItStands), [value("a"), value("b")]);
    assert_eq!(run(Complete::Sealed), [value("b")]);
}

/// The bound is exact where each process is a member of one block: the adversary wins f entries.
#[test]
fn one_entry_more_or_less_decides() {
    // Two blocks of four in warps of two, q = 1 and 2: T = 2 + 4 = 6.
    let blocks = [(params(4, 2, 1, 1), (0..4).collect()), (params(4, 2, 1, 2), (4..8).collect())];
    for (byzantine, breaks) in [(vec![0, 4], false), (vec![0, 4, 6], true)] {
        let kind = |process| match byzantine.contains(&process) {
            true => Kind::Byzantine(vec![Some(value("A")); 2]),
            false => Kind::Correct(value("a")),
        };
        let mut blocks = Blocks::new(&blocks, (0..8).map(kind).collect(), Complete::Sealed);
        blocks.run(&[0, 1]);
        assert_eq!(blocks.is_promised(), !breaks);
        assert_eq!(blocks.decisions(), BTreeSet::from([&value(if breaks { "A" } else { "a" })]));
    }
}

/// B blocks of w warps whose schedulers go in step: the last decision falls in phase w * (q + sum of
/// ceil(T/r)) of each, where one list takes B*w * (q + ceil(B*T/r)).
#[test]
fn schedulers_in_step_take_a_share_of_the_phases() {
    for (count, n, p, r, q) in
        [(1, 6, 2, 2, 1), (2, 6, 2, 2, 1), (3, 4, 2, 1, 2), (2, 6, 3, 3, 3), (4, 3, 1, 2, 1)]
    {
        let size = params(n, p, r, q);
        let roster = |block: usize| (block * n as usize..(block + 1) * n as usize).collect();
        let all: Vec<_> = (0..count).map(|block| (size.clone(), roster(block))).collect();
        let kinds = (0..count * n as usize).map(|_| Kind::Correct(value("a"))).collect();
        let mut blocks = Blocks::new(&all, kinds, Complete::Sealed);
        let mut phases = 0;
        while !blocks.all_have_decided() {
            (0..count).for_each(|block| blocks.phase(block));
            phases += 1;
        }
        let (warps, reads) = (size.warps(), size.counted_entries().div_ceil(r));
        assert_eq!(
            phases,
            warps * (q + count as u32 * reads),
            "B = {count}, n = {n}, p = {p}, r = {r}, q = {q}"
        );
    }
}
