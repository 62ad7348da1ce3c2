//! A log in one thread. Each slot is a run of the model's simulator; what members do between runs, and when
//! they learn of a seal, is drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stickycas_log::MAX_WINDOW;
use stickycas_log::order::{AppendId, Order, Place, SlotState};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::machine::Entry;
use stickycas_model::params::Params;
use stickycas_model::random::SplitMix64;
use stickycas_model::sim::{SimPlan, Simulator};
use stickycas_model::types::{Position, ProcessId, Value};

/// Slots that exist ahead of the first that is not sealed.
pub const WINDOW: u64 = 4;

/// An append of a correct member.
pub struct Append {
    pub id: AppendId,
    pub member: ProcessId,
    pub value: Vec<u8>,
    /// When it began and was answered, in steps of the world.
    pub began: u64,
    pub answered: Option<(u64, Place)>,
    /// Whether the life of the member that made it was killed before the answer.
    pub abandoned: bool,
}

/// One life of a correct member.
pub struct Life {
    pub member: ProcessId,
    pub order: Order,
    /// Slots that it acted in and has not seen sealed.
    waits_for: BTreeSet<u64>,
}

/// A slot that has begun.
#[derive(Default)]
struct Slot {
    /// The first value that each correct member has appended, in whichever life.
    acted: BTreeMap<ProcessId, Value>,
    /// Killed after they had acted.
    killed: BTreeSet<ProcessId>,
    list: Option<Vec<Entry>>,
}

/// What happened, so that a test can tell that it did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Happened {
    pub late: u64,
    pub killed: u64,
    pub copied: u64,
    pub markers: u64,
    pub garbage: u64,
    pub not_added: u64,
}

pub struct World {
    pub random: SplitMix64,
    pub step: u64,
    params: Arc<Params>,
    byzantine: BTreeSet<ProcessId>,
    slots: BTreeMap<u64, Slot>,
    pub lives: Vec<Life>,
    pub appends: Vec<Append>,
    pub happened: Happened,
}

impl World {
    pub fn new(params: Params, byzantine: BTreeSet<ProcessId>, seed: u64) -> Self {
        let correct = ProcessId::all(params.processes()).filter(|member| !byzantine.contains(member));
        Self {
            random: SplitMix64::new(seed),
            step: 0,
            lives: correct.map(|member| Life::new(member, 1)).collect(),
            params: Arc::new(params),
            byzantine,
            slots: BTreeMap::new(),
            appends: Vec::new(),
            happened: Happened::default(),
        }
    }

    /// The sealed lists without a gap.
    pub fn lists(&self) -> impl Iterator<Item = (u64, &[Entry])> {
        (1..).map_while(|slot| Some((slot, self.slots.get(&slot)?.list.as_deref()?)))
    }

    fn newest(&self) -> u64 {
        self.lists().count() as u64 + WINDOW
    }

    /// A member appends. Few values are different, so that only their names tell appends apart.
    pub fn append(&mut self, life: usize) {
        let id = self.random.next_u64();
        let value = vec![b'v'; self.random.index(3)];
        let life = &mut self.lives[life];
        if life.order.is_full() {
            return;
        }
        life.order.append(id, &value);
        let (member, began) = (life.member, self.step);
        self.appends.push(Append { id, member, value, began, answered: None, abandoned: false });
    }

    /// A member acts in its next slot, if that exists and there is a reason to.
    pub fn act(&mut self, life: usize) {
        let newest = self.newest();
        let life = &mut self.lives[life];
        let Some(number) = life.order.next_slot().filter(|slot| *slot <= newest) else { return };
        let slot = self.slots.get(&number);
        let state = match slot {
            Some(slot) if slot.list.is_some() || slot.acted.contains_key(&life.member) => SlotState::Used,
            Some(_) => SlotState::Begun,
            None => SlotState::Idle,
        };
        let Some(value) = life.order.act(state) else { return };
        life.waits_for.insert(number);
        let slot = self.slots.entry(number).or_default();
        if slot.list.is_none() {
            slot.acted.entry(life.member).or_insert(value);
        }
    }

    /// Byzantine members begin a slot of the window.
    pub fn begin(&mut self) {
        if !self.byzantine.is_empty() {
            let number = self.newest() + 1 - WINDOW + self.random.below(WINDOW);
            self.slots.entry(number).or_default();
        }
    }

    /// Runs a slot that has begun; correct members that have not acted there are late. `patient`: only if
    /// there are none.
    pub fn run(&mut self, patient: bool) {
        let open = |(_, slot): &(&u64, &Slot)| slot.list.is_none();
        let members: BTreeSet<_> = self.lives.iter().map(|life| life.member).collect();
        let begun: Vec<u64> = self
            .slots
            .iter()
            .filter(open)
            .filter(|(_, slot)| !patient || members.iter().all(|member| slot.acted.contains_key(member)))
            .map(|(number, _)| *number)
            .collect();
        if begun.is_empty() {
            return;
        }
        let number = begun[self.random.index(begun.len())];
        let assignments =
            ProcessId::all(self.params.processes()).map(|process| self.assignment(process, number)).collect();
        let slot = &self.slots[&number];
        let late: BTreeSet<_> =
            members.iter().filter(|member| !slot.acted.contains_key(member)).copied().collect();
        self.happened.late += late.len() as u64;
        let truth = GroundTruth::new(assignments).with_late(late);
        let plan = SimPlan { params: Arc::clone(&self.params), truth, seed: self.random.next_u64() };
        let list = Simulator::new(&plan).run(&plan).list;
        self.check_list(number, &list);
        self.slots.get_mut(&number).unwrap().list = Some(list);
    }

    fn assignment(&mut self, process: ProcessId, number: u64) -> Assignment {
        let slot = &self.slots[&number];
        let marker = Value::new(&[0]).unwrap();
        let role = if self.byzantine.contains(&process) {
            let others: Vec<Value> =
                self.slots.values().flat_map(|slot| slot.acted.values().cloned()).collect();
            let copied = others.get(self.random.index(others.len().max(1))).unwrap_or(&marker);
            let garbage = Value::new(&vec![self.random.below(3) as u8; self.random.index(40) + 1]).unwrap();
            let strategy = match self.random.below(9) {
                0 => "absent".to_owned(),
                1 => "silent".to_owned(),
                2 => "repeat-append".to_owned(),
                3 => format!("repeat-append(value={copied})"),
                4 => format!("collude(value={garbage})"),
                5 => format!("late-append(access={}, value={copied})", 2 + self.random.below(3)),
                6 => "empty".to_owned(),
                7 => format!("stall(conduct=collude(value={copied}))"),
                _ => format!("collude(value={copied})"),
            };
            Role::Byzantine(strategy.parse().unwrap())
        } else if slot.killed.contains(&process) {
            Role::Byzantine(format!("crash(access={})", 1 + self.random.below(4)).parse().unwrap())
        } else {
            Role::Correct
        };
        let proposal = self.slots[&number].acted.get(&process).unwrap_or(&marker).clone();
        Assignment { role, proposal }
    }

    /// Of each member there is one entry at most, and of each that acted in time there is what it appended.
    fn check_list(&mut self, number: u64, list: &[Entry]) {
        let slot = &self.slots[&number];
        let by: BTreeSet<_> = list.iter().map(|entry| entry.process).collect();
        assert_eq!(by.len(), list.len(), "slot {number}: {list:?}");
        for (member, value) in &slot.acted {
            let entry = list.iter().find(|entry| entry.process == *member);
            match entry {
                Some(entry) => assert_eq!(entry.value, *value, "slot {number}, member {member}"),
                None if slot.killed.contains(member) => self.happened.not_added += 1,
                None => panic!("slot {number} lacks the entry of member {member}: {list:?}"),
            }
        }
        for entry in list {
            let of_another = self.slots.values().flat_map(|slot| &slot.acted);
            let is_copy = of_another
                .filter(|(member, _)| **member != entry.process)
                .any(|(_, value)| *value == entry.value);
            let bytes = entry.value.as_bytes();
            self.happened.markers += u64::from(bytes == [0]);
            self.happened.copied += u64::from(is_copy && bytes.len() >= 9);
            self.happened.garbage += u64::from(bytes != [0] && (bytes[0] != 1 || bytes.len() < 9));
        }
    }

    /// A member learns that a slot is sealed in which it acted.
    pub fn learn(&mut self, life: usize) {
        let life = &mut self.lives[life];
        let sealed: Vec<u64> =
            life.waits_for.iter().filter(|slot| self.slots[slot].list.is_some()).copied().collect();
        if sealed.is_empty() {
            return;
        }
        let number = sealed[self.random.index(sealed.len())];
        life.waits_for.remove(&number);
        let slot = &self.slots[&number];
        let own = |entry: &Entry| {
            entry.process == life.member && slot.acted.get(&life.member) == Some(&entry.value)
        };
        let entry = slot.list.as_ref().unwrap().iter().position(own);
        life.order.sealed(number, entry.map(|index| Position::new(u32::try_from(index).unwrap())));
        for (id, place) in life.order.deliver() {
            let append = self.appends.iter_mut().find(|append| append.id == id).unwrap();
            assert_eq!(append.answered.replace((self.step, place)), None, "answered twice");
        }
    }

    /// A member is killed, and starts again without memory.
    pub fn kill(&mut self, life: usize) {
        let newest = self.newest();
        let from = (newest + 1).saturating_sub(MAX_WINDOW).max(1);
        let member = self.lives[life].member;
        for slot in self.slots.values_mut().filter(|slot| slot.list.is_none()) {
            if slot.acted.contains_key(&member) {
                slot.killed.insert(member);
            }
        }
        let unanswered = |append: &&mut Append| append.member == member && append.answered.is_none();
        self.appends.iter_mut().filter(unanswered).for_each(|append| append.abandoned = true);
        self.happened.killed += 1;
        self.lives[life] = Life::new(member, from);
    }
}

impl Life {
    fn new(member: ProcessId, from: u64) -> Self {
        Self { member, order: Order::new(from, WINDOW), waits_for: BTreeSet::new() }
    }
}
