//! The work that is measured, and its judge: n = 32 correct processes, p = 4, r = 8, values of 8 bytes.
//!
//! W = 8 warps append in round 1, and c = 1 read in round 2 returns all 8 entries. So each process makes two
//! accesses, and decides.
//!
//! Each process records its [`Observation`]s while the clock runs, in as few bytes as hold them. When the
//! clock has stopped, the judge of loads ([`observations::judge`]) judges every instance: phases of the right
//! warps, one winner in each, one list, decisions that are its mode, agreement and validity.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use stickycas_load::observations::{self, AnsweredAccess, ProcessObservation};
use stickycas_model::access::{AppendAnswer, ReadAnswer};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::judge::Outcome;
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{Phase, Position, ProcessId, Value};
use stickycas_proto::v1::{AppendResult, ReadResult};

/// n, the number of processes, each with a connection of its own.
pub(crate) const PROCESSES: u32 = 32;
/// p, the number of processes in a warp.
pub(crate) const WARP_SIZE: u32 = 4;
/// r, the most entries that one read returns: as many as there are warps.
pub(crate) const READ_SIZE: u32 = 8;
/// W, the number of warps.
pub(crate) const WARPS: u32 = PROCESSES.div_ceil(WARP_SIZE);
/// How often a process appends and reads in one instance.
pub(crate) const ACCESSES_PER_PROCESS: usize = 2;

const ENTRIES: usize = READ_SIZE as usize;
const VALUES: [&[u8]; 3] = [b"value  a", b"value  b", b"value  c"];

/// The proposal of a process, from 0: one of three values, so that the winners of the phases determine the
/// decision.
pub(crate) fn proposal(process: usize, instance: usize) -> Bytes {
    Bytes::from_static(VALUES[(process + instance) % VALUES.len()])
}

/// A value of 8 bytes, as a number with the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word(u64);

impl Word {
    fn read(value: &[u8]) -> anyhow::Result<Self> {
        let bytes = value.try_into().with_context(|| format!("a value of {} bytes", value.len()))?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }

    /// The value as it goes over the wire.
    pub(crate) fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }

    fn value(self) -> anyhow::Result<Value> {
        Value::new(&self.0.to_be_bytes()).context("an empty value")
    }
}

/// The answers that one process received in one instance, and its decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    append: (u64, AppendAnswer),
    read: (u64, [Word; ENTRIES]),
    decision: Word,
}

impl Observation {
    /// Of an instance in which the process has not acted yet.
    pub(crate) const EMPTY: Self =
        Self { append: (0, AppendAnswer::Failed), read: (0, [Word(0); ENTRIES]), decision: Word(0) };

    /// Records the result of the append, which was executed in this phase.
    pub(crate) fn record_append_result(&mut self, phase: u64, result: &AppendResult) -> anyhow::Result<()> {
        self.record_append(phase, AppendAnswer::try_from(result)?);
        Ok(())
    }

    /// The same, of a checked answer.
    pub(crate) fn record_append(&mut self, phase: u64, answer: AppendAnswer) {
        self.append = (phase, answer);
    }

    /// Records the result of the read, which was executed in this phase. Returns the decision: the mode of
    /// the sealed list (D1).
    pub(crate) fn record_read_result(&mut self, phase: u64, result: &ReadResult) -> anyhow::Result<Word> {
        ensure!(
            result.sealed && result.length == WARPS && result.start == 0,
            "the first read is not the last: {result:?}"
        );
        self.record_list(phase, result.values.iter().map(AsRef::as_ref))
    }

    /// The same, of the values of the whole list.
    pub(crate) fn record_list<'a>(
        &mut self,
        phase: u64,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<Word> {
        ensure!(values.len() == ENTRIES, "{} entries instead of {ENTRIES}", values.len());
        let mut entries = [Word::default(); ENTRIES];
        for (entry, value) in entries.iter_mut().zip(values) {
            *entry = Word::read(value)?;
        }
        self.read = (phase, entries);
        self.decision = mode(entries);
        Ok(self.decision)
    }

    /// In the types of the judge.
    fn to_seen(self, process: ProcessId) -> anyhow::Result<ProcessObservation> {
        let phase = |number| Phase::new(number).context("answered in no phase");
        let (read, entries) = &self.read;
        let answer =
            ReadAnswer { start: Position::new(0), count: READ_SIZE, length: READ_SIZE, sealed: true };
        let accesses = vec![
            AnsweredAccess::Append { phase: phase(self.append.0)?, answer: self.append.1 },
            AnsweredAccess::Read {
                phase: Some(phase(*read)?),
                answer,
                entries: entries.iter().map(|entry| entry.value()).collect::<Result<_, _>>()?,
            },
        ];
        Ok(ProcessObservation { process, accesses, decision: Some(self.decision.value()?), refused: None })
    }
}

/// The observations of one task of a process, by number of the instance.
pub(crate) struct TaskObservations {
    pub(crate) process: usize,
    pub(crate) observations: Vec<(usize, Observation)>,
}

impl TaskObservations {
    /// The observations of all tasks, by process and then by instance.
    pub(crate) fn merge(tasks: Vec<Self>, instances: usize) -> Vec<Vec<Observation>> {
        let mut all = vec![vec![Observation::EMPTY; instances]; PROCESSES as usize];
        for Self { process, observations } in tasks {
            for (instance, observation) in observations {
                all[process][instance] = observation;
            }
        }
        all
    }
}

/// The most frequent entry; of several, the smallest.
fn mode(mut entries: [Word; ENTRIES]) -> Word {
    entries.sort_unstable();
    // `max_by_key` returns the last maximum: in reversed order, the smallest value.
    let runs = entries.chunk_by(|a, b| a == b).rev();
    runs.max_by_key(|run| run.len()).map_or(Word::default(), |run| run[0])
}

/// Fails unless all processes decided the same in each instance. `observations`: by process, then by
/// instance.
pub(crate) fn agree(observations: &[Vec<Observation>], instances: usize) -> anyhow::Result<()> {
    ensure!(observations.len() == PROCESSES as usize, "{} processes decided", observations.len());
    for own in observations {
        ensure!(own.len() == instances, "decided in {} of {instances} instances", own.len());
        let same = own.iter().zip(&observations[0]).all(|(own, first)| own.decision == first.decision);
        ensure!(same, "two processes decided differently");
    }
    Ok(())
}

/// Judges every instance, and fails unless all are valid. `observations` as in [`agree`].
pub(crate) fn judge(observations: &[Vec<Observation>], instances: usize) -> anyhow::Result<()> {
    agree(observations, instances)?;
    let spec = ParamsSpec { patience: Patience::Endless, ..ParamsSpec::new(PROCESSES, WARP_SIZE, READ_SIZE) };
    let params = Params::try_new(spec)?;
    let truths = (0..VALUES.len()).map(truth).collect::<anyhow::Result<Vec<_>>>()?;
    for instance in 0..instances {
        let seen =
            ProcessId::all(PROCESSES).zip(observations).map(|(process, own)| own[instance].to_seen(process));
        let seen = seen.collect::<anyhow::Result<Vec<_>>>()?;
        let finding = observations::judge(&params, &truths[instance % truths.len()], &seen);
        if finding.outcome != Outcome::Valid {
            bail!("instance {instance} is not valid: {}", finding.reasons.join("; "));
        }
    }
    Ok(())
}

/// The roles and proposals of the processes in this instance.
fn truth(instance: usize) -> anyhow::Result<GroundTruth> {
    let assignment = |process| {
        let proposal = Value::new(&proposal(process, instance)).context("an empty proposal")?;
        Ok(Assignment { role: Role::Correct, proposal })
    };
    Ok(GroundTruth::new((0..PROCESSES as usize).map(assignment).collect::<anyhow::Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The observations of a run in lock step in which the first process of each warp wins.
    fn run() -> Vec<Vec<Observation>> {
        let list: Vec<Bytes> =
            (0..WARPS as usize).map(|warp| proposal(warp * WARP_SIZE as usize, 0)).collect();
        let one = |process: usize| {
            let (warp, member) = (process / WARP_SIZE as usize, process % WARP_SIZE as usize);
            let position = u32::try_from(warp).unwrap();
            let answer = if member == 0 {
                AppendAnswer::Success(Position::new(position))
            } else {
                AppendAnswer::Failed
            };
            let mut observation = Observation::EMPTY;
            observation.record_append(u64::from(position) + 1, answer);
            observation.record_list(u64::from(WARPS + position) + 1, list.iter().map(AsRef::as_ref)).unwrap();
            vec![observation]
        };
        (0..PROCESSES as usize).map(one).collect()
    }

    #[test]
    fn a_run_in_lock_step_is_valid() {
        judge(&run(), 1).unwrap();
    }

    #[test]
    fn changed_observations_are_not_valid() {
        let changed = |change: fn(&mut Observation)| {
            let mut observations = run();
            change(&mut observations[9][0]);
            judge(&observations, 1).unwrap_err().to_string()
        };
        assert!(changed(|it| it.decision = Word(7)).contains("differently"));
        assert!(changed(|it| it.read.1[3] = it.read.1[2]).contains("R2"));
        assert!(changed(|it| it.append.1 = AppendAnswer::Success(Position::new(2))).contains("A1"));
        assert!(changed(|it| it.append.0 += 1).contains("W1"));
    }

    #[test]
    fn of_several_modes_the_smallest_is_decided() {
        assert_eq!(mode([3, 1, 2, 3, 2, 9, 9, 0].map(Word)), Word(2));
        assert_eq!(mode([5; ENTRIES].map(Word)), Word(5));
    }
}
