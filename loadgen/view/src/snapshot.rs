//! An instance at a moment, for viewers that cannot be sent everything that led to it.
//!
//! It is made of the machine that follows the events. Where the first ones are not known, it is made of a
//! snapshot of Watch: of a process it then has those marks that the list and the status tell. A status has a
//! bounded number of rows of each kind; how many marks are missing for that is told.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use stickycas_client::info::InstanceStatus;
use stickycas_client::watch;
use stickycas_model::machine::{Machine, State};
use stickycas_model::params::Params;
use stickycas_model::types::{ProcessId, Value};
use stickycas_page::frame::Now;

use crate::instances::InstanceFacts;
use crate::known::Known;
use crate::status;

/// The last entries of the list that are in it, and the bytes of their values.
const ENTRIES: usize = 1_024;
const VALUE_BYTES: usize = 24 * 1024;
/// Above this number of processes they are counted by warp, and above this number of warps by groups of
/// warps.
const PROCESSES: u32 = 8_192;
const GROUPS: u32 = 4_096;

/// Marks of a process, as `history.js` has them.
mod mark {
    pub(crate) const JOINED: u16 = 1;
    pub(crate) const WON: u16 = 1 << 1;
    pub(crate) const FAILED: u16 = 1 << 2;
    pub(crate) const LEFT: u16 = 1 << 4;
    pub(crate) const GIVEN_UP: u16 = 1 << 5;
    pub(crate) const LATE: u16 = 1 << 6;
    pub(crate) const ACCUSED: u16 = 1 << 7;
    pub(crate) const REFUSED: u16 = 1 << 8;
    pub(crate) const EXECUTED: u16 = 1 << 9;
}

/// The marks that are counted by warp, in the order in which the counts are sent.
const COUNTED: [u16; 6] = [mark::JOINED, mark::WON, mark::LEFT, mark::LATE, mark::ACCUSED, mark::GIVEN_UP];

/// See the module.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The index of the first event behind it.
    pub(crate) index: u64,
    /// As it is sent.
    pub(crate) json: Bytes,
}

#[derive(Serialize)]
struct Shown<'a> {
    index: u64,
    missing: u64,
    now: &'a Now,
    entries: Vec<Shot<'a>>,
    length: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    marks: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warps: Option<Vec<[u32; COUNTED.len()]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    /// The number of marks whose processes are not known.
    untold: u32,
}

/// The parts of a snapshot.
struct Taken<'a> {
    now: Now,
    index: u64,
    marks: Vec<u16>,
    /// The status from which the marks come, if they may be incomplete.
    status: Option<&'a InstanceStatus>,
    /// The entries of the list, in order.
    list: Vec<Shot<'a>>,
}

/// An entry: its position, process, phase and value.
type Shot<'a> = (u32, ProcessId, u64, &'a Value);

impl Snapshot {
    /// Of the instance as it is known, behind the event before this one. These processes were seen to be
    /// late. `None`: the machine is not known at this moment.
    pub(crate) fn of_known(
        facts: &InstanceFacts,
        known: &Known,
        index: u64,
        late: &[ProcessId],
    ) -> Option<Self> {
        let (machine, now) = (known.follower()?.machine()?, known.now(facts)?);
        let entries = (0..).zip(machine.list().iter());
        let list =
            entries.map(|(position, entry)| (position, entry.process, entry.phase.get(), &entry.value));
        let taken = Taken { now, index, marks: marks(machine), status: None, list: list.collect() };
        Some(taken.with_late(late).encode(&facts.params))
    }

    /// Of a snapshot of Watch.
    pub(crate) fn of_watch(facts: &InstanceFacts, snapshot: &watch::Snapshot) -> Self {
        let watch::Snapshot { status, entries, next_index } = snapshot;
        let list = entries
            .iter()
            .map(|entry| (entry.position.get(), entry.process, entry.phase.get(), &entry.value));
        let now = status::now(facts, status);
        let taken = Taken {
            now,
            index: *next_index,
            marks: known_marks(&facts.params, status),
            status: Some(status),
            list: list.collect(),
        };
        taken.encode(&facts.params)
    }
}

impl Taken<'_> {
    fn with_late(mut self, late: &[ProcessId]) -> Self {
        for process in late {
            if let Some(marks) = self.marks.get_mut(process.index()) {
                *marks |= mark::LATE;
            }
        }
        self
    }

    fn encode(mut self, params: &Params) -> Snapshot {
        let Self { index, ref now, .. } = self;
        for (_, process, ..) in &self.list {
            if let Some(marks) = self.marks.get_mut(process.index()) {
                *marks = *marks & !mark::FAILED | mark::WON | mark::EXECUTED | mark::JOINED;
            }
        }
        let length = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let entries = last_entries(&self.list).to_vec();
        let untold = self.status.map_or(0, |status| untold(status, &self.marks));
        let (marks, warps, group) = (None, None, None);
        let mut shown = Shown { index, missing: index, now, entries, length, marks, warps, group, untold };
        if params.processes() <= PROCESSES {
            let bytes: Vec<u8> = self.marks.iter().flat_map(|marks| marks.to_le_bytes()).collect();
            shown.marks = Some(STANDARD.encode(bytes));
        } else {
            let group = params.warps().div_ceil(GROUPS);
            shown.warps = Some(counts(params, group, &self.marks));
            shown.group = Some(group);
        }
        let json = serde_json::to_vec(&shown).expect("a snapshot is plain data");
        Snapshot { index, json: json.into() }
    }
}

/// Those marks of all processes that a status tells, as far as its rows go.
fn known_marks(params: &Params, status: &InstanceStatus) -> Vec<u16> {
    let is_all = |count: usize| count == params.processes() as usize;
    // While processes gather, those that are awaited are the ones that have not joined.
    let names_missing = status.state == State::Gathering && status.awaited.left_out == 0;
    let every = match status.joined as usize {
        _ if is_all(status.left.total()) => mark::LEFT | mark::JOINED,
        joined if is_all(joined) || names_missing => mark::JOINED,
        _ => 0,
    };
    let mut marks = vec![every; params.processes() as usize];
    if names_missing {
        for awaited in &status.awaited.shown {
            if let Some(marks) = marks.get_mut(awaited.process.index()) {
                *marks = 0;
            }
        }
    }
    let left = status.left.shown.iter().map(|process| (*process, mark::LEFT | mark::JOINED));
    let waiting = status.waiting.shown.iter().map(|waiting| (waiting.process, mark::JOINED));
    let accused = status.offences.shown.iter().map(|offences| (offences.process, mark::ACCUSED));
    for (process, bits) in left.chain(waiting).chain(accused) {
        if let Some(marks) = marks.get_mut(process.index()) {
            *marks |= bits;
        }
    }
    marks
}

/// How many marks the status counts that these do not have.
fn untold(status: &InstanceStatus, marks: &[u16]) -> u32 {
    let missing = |all: usize, bit: u16| {
        let told = marks.iter().filter(|marks| **marks & bit != 0).count();
        u32::try_from(all.saturating_sub(told)).unwrap_or(u32::MAX)
    };
    let members = missing(status.joined as usize, mark::JOINED) + missing(status.left.total(), mark::LEFT);
    members + status.offences.left_out
}

/// The marks of all processes, but for what the list tells.
fn marks(machine: &Machine) -> Vec<u16> {
    let marks = machine.members_in_brief().map(|member| {
        [
            (member.joined, mark::JOINED),
            (member.executed, mark::EXECUTED),
            (member.left, mark::LEFT),
            (member.given_up, mark::GIVEN_UP),
            // Unless an entry is from it.
            (member.executed && member.appended.is_some(), mark::FAILED),
        ]
        .into_iter()
        .fold(0, |marks, (has, bit)| if has { marks | bit } else { marks })
    });
    let mut marks: Vec<u16> = marks.collect();
    let (refused, accused) = machine.refused_and_accused();
    let of = refused.map(|process| (process, mark::REFUSED));
    for (process, bit) in of.chain(accused.map(|process| (process, mark::ACCUSED))) {
        marks[process.index()] |= bit;
    }
    marks
}

/// The last entries, as many as are shown.
fn last_entries<'a, 'b>(list: &'b [Shot<'a>]) -> &'b [Shot<'a>] {
    let (mut first, mut bytes) = (list.len(), 0);
    while first > list.len().saturating_sub(ENTRIES) {
        bytes += list[first - 1].3.as_bytes().len();
        if bytes > VALUE_BYTES {
            break;
        }
        first -= 1;
    }
    &list[first..]
}

/// How many processes have which mark, by groups of so many warps.
fn counts(params: &Params, group: u32, marks: &[u16]) -> Vec<[u32; COUNTED.len()]> {
    let mut counts = vec![[0; COUNTED.len()]; params.warps().div_ceil(group) as usize];
    for (process, marks) in ProcessId::all(params.processes()).zip(marks) {
        let row = &mut counts[params.warp_of(process).index() / group as usize];
        for (count, bit) in row.iter_mut().zip(COUNTED) {
            *count += u32::from(marks & bit != 0);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stickycas_client::info::{Awaited, Rows};
    use stickycas_model::access::Access;
    use stickycas_model::params::{ParamsSpec, Patience};
    use stickycas_model::types::{AccessNumber, Time};
    use stickycas_page::frame::AWAITED;

    use super::*;

    /// An instance in which every process has appended a value of some bytes.
    fn snapshot(processes: u32, warp_size: u32) -> (Snapshot, serde_json::Value) {
        let spec = ParamsSpec { max_value_bytes: 64, ..ParamsSpec::new(processes, warp_size, 4) };
        let params = Arc::new(Params::try_new(spec).unwrap());
        let mut machine = Machine::new(params.clone());
        let mut events = Vec::new();
        for process in ProcessId::all(processes) {
            let value = Value::new(&[b'\\'; 64]).unwrap();
            let number = AccessNumber::FIRST;
            let access = Access {
                process,
                session: None,
                number,
                op: stickycas_model::access::Op::Append(value),
                no_wait: false,
            };
            machine.access(Time::ZERO, access, &mut events).unwrap();
        }
        let now = Now::new(&params, &machine.status_rows(Time::ZERO, AWAITED), Time::ZERO);
        let entries = (0..).zip(machine.list().iter());
        let list =
            entries.map(|(position, entry)| (position, entry.process, entry.phase.get(), &entry.value));
        let (index, marks) = (events.len() as u64, marks(&machine));
        let taken = Taken { now, index, marks, status: None, list: list.collect() };
        let snapshot = taken.encode(&params);
        let shown = serde_json::from_slice(&snapshot.json).unwrap();
        (snapshot, shown)
    }

    #[test]
    fn a_snapshot_of_65_536_processes_has_less_than_256_kib() {
        for warp_size in [1, 7, 32, 65_536] {
            let (snapshot, shown) = snapshot(65_536, warp_size);
            assert!(snapshot.json.len() < 256 * 1024, "p = {warp_size}: {} bytes", snapshot.json.len());
            let rows = shown["warps"].as_array().unwrap();
            assert!(rows.len() <= GROUPS as usize);
            let joined: u64 = rows.iter().map(|row| row[0].as_u64().unwrap()).sum();
            let won: u64 = rows.iter().map(|row| row[1].as_u64().unwrap()).sum();
            assert_eq!((joined, won), (65_536, u64::from(65_536_u32.div_ceil(warp_size))));
        }
    }

    fn told<T>(shown: Vec<T>, left_out: u32) -> Rows<T> {
        Rows { shown, left_out }
    }

    #[test]
    fn marks_that_a_status_has_no_rows_for_are_counted() {
        let params = Params::try_new(ParamsSpec::new(5, 1, 4)).unwrap();
        let first = |count| ProcessId::all(5).take(count).collect::<Vec<_>>();
        let status = |joined, left, awaited| InstanceStatus {
            state: State::Running,
            phase: None,
            warp: None,
            open: false,
            awaited: told(awaited, 0),
            waiting: told(Vec::new(), 0),
            joined,
            length: 0,
            sealed: false,
            left,
            offences: told(Vec::new(), 0),
        };
        let (joined, left) = (mark::JOINED, mark::JOINED | mark::LEFT);
        let check = |status: InstanceStatus, expected: [u16; 5], missing| {
            let marks = known_marks(&params, &status);
            assert_eq!((&marks[..], untold(&status, &marks)), (&expected[..], missing), "{status:?}");
        };
        check(status(5, told(first(2), 1), vec![]), [left, left, joined, joined, joined], 1);
        check(status(4, told(first(2), 1), vec![]), [left, left, 0, 0, 0], 2 + 1);
        // All have left, so it is known who has, whatever the rows say.
        check(status(5, told(first(2), 3), vec![]), [left; 5], 0);
        let awaited = first(2).into_iter();
        let awaited = awaited.map(|process| Awaited { process, patience_left: Patience::Endless });
        let gathering = status(3, told(vec![], 0), awaited.collect());
        check(InstanceStatus { state: State::Gathering, ..gathering }, [0, 0, joined, joined, joined], 0);
    }

    #[test]
    fn each_process_has_its_marks() {
        let (snapshot, shown) = snapshot(4, 2);
        let marks = STANDARD.decode(shown["marks"].as_str().unwrap()).unwrap();
        let marks: Vec<u16> = marks.chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
        let done = mark::JOINED | mark::EXECUTED;
        let won: Vec<bool> = marks.iter().map(|marks| *marks == done | mark::WON).collect();
        assert_eq!(won.iter().filter(|won| **won).count(), 2, "of each warp one: {marks:?}");
        assert!(
            marks.iter().zip(&won).all(|(marks, won)| *won || *marks == done | mark::FAILED),
            "{marks:?}"
        );
        assert_eq!((shown["length"].as_u64(), shown["index"].as_u64()), (Some(2), Some(snapshot.index)));
        let winner = shown["entries"][0][1].as_u64().unwrap() as usize;
        assert_eq!(marks[winner - 1], done | mark::WON);
    }
}
