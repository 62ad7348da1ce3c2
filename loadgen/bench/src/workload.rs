//! The work that is measured, and its judge: correct processes, lists of at most 8 entries, values of 8
//! bytes.
//!
//! All warps append in round 1, and one read in round 2 returns the whole list. So each process makes two
//! accesses, and decides. It records its [`Observation`]s in as few bytes as hold them; when the clock has
//! stopped, the judge of loads ([`observations::judge`]) judges every instance.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use stickycas_load::observations::{self, AnsweredAccess, ProcessObservation};
use stickycas_model::access::{AppendAnswer, ReadAnswer};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::judge::Outcome;
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{Phase, Position, ProcessId, Value};
use stickycas_proto::v1::AppendResult;

/// n, p and r of the instances of a measurement, and how many accesses of a process may wait. Their patience
/// is endless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) processes: u32,
    pub(crate) warp_size: u32,
    pub(crate) read_size: u32,
    pub(crate) pipeline: u32,
}

impl Shape {
    /// Of the measurements over the wire: a read returns the whole list.
    pub(crate) const WIRE: Self = Self { processes: 32, warp_size: 4, read_size: 8, pipeline: PIPELINE };
    /// Of the measurements of memory.
    pub(crate) const SMALL: Self = Self { processes: 8, warp_size: 2, read_size: 8, pipeline: PIPELINE };

    /// W, the number of warps, and so the length of a list.
    pub(crate) const fn warps(self) -> u32 {
        self.processes.div_ceil(self.warp_size)
    }

    /// Appends and reads of all processes of an instance.
    pub(crate) const fn accesses(self) -> usize {
        2 * self.processes as usize
    }

    pub(crate) fn params(self) -> anyhow::Result<Params> {
        let spec = ParamsSpec::new(self.processes, self.warp_size, self.read_size);
        let (patience, pipeline) = (Patience::Endless, self.pipeline);
        Ok(Params::try_new(ParamsSpec { patience, pipeline, ..spec })?)
    }
}

/// Accesses of a process that may wait, the default.
const PIPELINE: u32 = 16;
/// The most entries of a list.
const ENTRIES: usize = 8;
const VALUES: [&[u8]; 3] = [b"value  a", b"value  b", b"value  c"];

/// The proposal of a process, from 0: one of three values, so that the winners of the phases determine the
/// decision.
pub(crate) fn proposal(process: usize, instance: usize) -> Bytes {
    Bytes::from_static(VALUES[(process + instance) % VALUES.len()])
}

/// A value of 8 bytes, as a number with the same order.
fn number(value: &[u8]) -> anyhow::Result<u64> {
    let bytes = value.try_into().with_context(|| format!("a value of {} bytes", value.len()))?;
    Ok(u64::from_be_bytes(bytes))
}

fn value(number: u64) -> anyhow::Result<Value> {
    Value::new(&number.to_be_bytes()).context("an empty value")
}

/// The answers that one process received in one instance, and its decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Its phase; 0: there was no answer yet.
    append: (u64, AppendAnswer),
    /// Its phase likewise, and the list, of this length.
    read: (u64, [u64; ENTRIES], usize),
    decision: u64,
}

impl Observation {
    /// Of an instance in which the process has not acted yet.
    pub(crate) const EMPTY: Self =
        Self { append: (0, AppendAnswer::Failed), read: (0, [0; ENTRIES], 0), decision: 0 };

    /// Records the result of the append, which was executed in this phase.
    pub(crate) fn record_append_result(&mut self, phase: u64, result: &AppendResult) -> anyhow::Result<()> {
        self.record_append(phase, AppendAnswer::try_from(result)?);
        Ok(())
    }

    /// The same, of a checked answer.
    pub(crate) fn record_append(&mut self, phase: u64, answer: AppendAnswer) {
        self.append = (phase, answer);
    }

    /// Records the values of the whole list, which was read in this phase. Returns the decision: the mode of
    /// the sealed list (D1).
    pub(crate) fn record_list<'a>(
        &mut self,
        phase: u64,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<[u8; 8]> {
        let count = values.len();
        ensure!((1..=ENTRIES).contains(&count), "{count} entries");
        let mut entries = [0; ENTRIES];
        for (entry, value) in entries.iter_mut().zip(values) {
            *entry = number(value)?;
        }
        self.read = (phase, entries, count);
        self.decision = mode(&mut { entries }[..count]);
        Ok(self.decision.to_be_bytes())
    }

    /// In the types of the judge.
    fn to_seen(self, process: ProcessId) -> anyhow::Result<ProcessObservation> {
        let (mut accesses, mut decision) = (Vec::new(), None);
        if let Some(phase) = Phase::new(self.append.0) {
            accesses.push(AnsweredAccess::Append { phase, answer: self.append.1 });
        }
        let (phase, entries, count) = self.read;
        if let Some(phase) = Phase::new(phase) {
            let length = u32::try_from(count)?;
            let answer = ReadAnswer { start: Position::new(0), count: length, length, sealed: true };
            let entries =
                entries[..count].iter().map(|entry| value(*entry)).collect::<anyhow::Result<_>>()?;
            accesses.push(AnsweredAccess::Read { phase: Some(phase), answer, entries });
            decision = Some(value(self.decision)?);
        }
        Ok(ProcessObservation { process, accesses, decision, refused: None })
    }
}

/// Observations by instance and then by process, of so many processes, by process and then by instance.
pub(crate) fn by_process(processes: usize, all: &[Observation]) -> Vec<Vec<Observation>> {
    (0..processes).map(|process| all.iter().skip(process).step_by(processes).copied().collect()).collect()
}

/// Fails unless a read returned the whole list: then the first read is the last.
pub(crate) fn is_last(start: u32, length: u32, count: usize, sealed: bool) -> anyhow::Result<()> {
    ensure!(sealed && length as usize == count && start == 0, "the first read is not the last");
    Ok(())
}

/// The most frequent entry; of several, the smallest.
fn mode(entries: &mut [u64]) -> u64 {
    entries.sort_unstable();
    // `max_by_key` returns the last maximum: in reversed order, the smallest value.
    let runs = entries.chunk_by(|a, b| a == b).rev();
    runs.max_by_key(|run| run.len()).map_or(0, |run| run[0])
}

/// Fails unless all processes decided the same in each instance. `observations`: by process, then by
/// instance.
pub(crate) fn agree(observations: &[Vec<Observation>]) -> anyhow::Result<()> {
    let first = observations.first().context("no process decided")?;
    for own in observations {
        ensure!(own.len() == first.len(), "decided in {} of {} instances", own.len(), first.len());
        let same = own.iter().zip(first).all(|(own, first)| own.decision == first.decision);
        ensure!(same, "two processes decided differently");
    }
    Ok(())
}

/// Judges every instance, and fails unless all are valid. `observations` as in [`agree`].
pub(crate) fn judge(shape: Shape, observations: &[Vec<Observation>]) -> anyhow::Result<()> {
    agree(observations)?;
    ensure!(observations.len() == shape.processes as usize, "{} processes decided", observations.len());
    let params = shape.params()?;
    for instance in 0..observations[0].len() {
        let assignment = |process| {
            let proposal = Value::new(&proposal(process, instance)).context("an empty proposal")?;
            Ok(Assignment { role: Role::Correct, proposal })
        };
        let truth = (0..observations.len()).map(assignment).collect::<anyhow::Result<_>>()?;
        let seen = ProcessId::all(params.processes()).zip(observations);
        let seen = seen.map(|(process, own)| own[instance].to_seen(process));
        let seen = seen.collect::<anyhow::Result<Vec<_>>>()?;
        let finding = observations::judge(&params, &GroundTruth::new(truth), &seen);
        if finding.outcome != Outcome::Valid {
            bail!("instance {instance} is not valid: {}", finding.reasons.join("; "));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The observations of a run in lock step in which the first process of each warp wins.
    fn run() -> Vec<Vec<Observation>> {
        let list: Vec<Bytes> = (0..8).map(|warp| proposal(warp * 4, 0)).collect();
        let one = |process: usize| {
            let (warp, member) = (process / 4, process % 4);
            let position = u32::try_from(warp).unwrap();
            let answer = if member == 0 {
                AppendAnswer::Success(Position::new(position))
            } else {
                AppendAnswer::Failed
            };
            let mut observation = Observation::EMPTY;
            observation.record_append(u64::from(position) + 1, answer);
            observation.record_list(u64::from(8 + position) + 1, list.iter().map(AsRef::as_ref)).unwrap();
            vec![observation]
        };
        (0..32).map(one).collect()
    }

    #[test]
    fn a_run_in_lock_step_is_valid() {
        judge(Shape::WIRE, &run()).unwrap();
    }

    #[test]
    fn changed_observations_are_not_valid() {
        let changed = |change: fn(&mut Observation)| {
            let mut observations = run();
            change(&mut observations[9][0]);
            judge(Shape::WIRE, &observations).unwrap_err().to_string()
        };
        assert!(changed(|it| it.decision = 7).contains("differently"));
        assert!(changed(|it| it.read.1[3] = it.read.1[2]).contains("R2"));
        assert!(changed(|it| it.append.1 = AppendAnswer::Success(Position::new(2))).contains("A1"));
        assert!(changed(|it| it.append.0 += 1).contains("W1"));
    }

    #[test]
    fn of_several_modes_the_smallest_is_decided() {
        assert_eq!(mode(&mut [3, 1, 2, 3, 2, 9, 9, 0]), 2);
        assert_eq!(mode(&mut [5; ENTRIES]), 5);
    }
}
