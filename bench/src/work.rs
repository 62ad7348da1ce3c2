//! The work that is measured, and its judge: n = 32 correct processes, p = 4, r = 8, values of 8 bytes.
//!
//! W = 8 warps append in round 1, and c = 1 read in round 2 returns all 8 entries. So each process makes two accesses,
//! and decides.
//!
//! What a process saw is written down while the clock runs, in as few bytes as hold it; when the clock has stopped,
//! every instance goes before the judge that judges loads ([`seen::judge`]): phases of the right warps, one winner in
//! each, one list, decisions that are its mode, agreement and validity.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use stickycas_loadgen::load::seen::{self, Answered, Seen};
use stickycas_model::access::{AppendAnswer, ReadAnswer};
use stickycas_model::cast::{Cast, Part, Role};
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

/// What a process, from 0, proposes: one of three values, so that who wins the phases decides.
pub(crate) fn proposal(process: usize, instance: usize) -> Bytes {
    Bytes::from_static(VALUES[(process + instance) % VALUES.len()])
}

/// A value of 8 bytes as a number of the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word(u64);

impl Word {
    fn read(value: &[u8]) -> anyhow::Result<Self> {
        let bytes = value.try_into().with_context(|| format!("a value of {} bytes", value.len()))?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }

    /// As it goes over the wire.
    pub(crate) fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }

    fn value(self) -> anyhow::Result<Value> {
        Value::new(&self.0.to_be_bytes()).context("an empty value")
    }
}

/// What one process saw of one instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saw {
    append: (u64, AppendAnswer),
    read: (u64, [Word; ENTRIES]),
    decision: Word,
}

impl Saw {
    /// Of an instance in which the process has not acted yet.
    pub(crate) const NOTHING: Self =
        Self { append: (0, AppendAnswer::Failed), read: (0, [Word(0); ENTRIES]), decision: Word(0) };

    /// Its append was answered in this phase.
    pub(crate) fn appended(&mut self, phase: u64, result: &AppendResult) -> anyhow::Result<()> {
        self.append = (phase, AppendAnswer::try_from(result)?);
        Ok(())
    }

    /// Its append was answered in this phase with this.
    pub(crate) fn appended_with(&mut self, phase: u64, answer: AppendAnswer) {
        self.append = (phase, answer);
    }

    /// Its read was answered in this phase. What it decides: the mode of the sealed list (D1).
    pub(crate) fn read(&mut self, phase: u64, result: &ReadResult) -> anyhow::Result<Word> {
        ensure!(
            result.sealed && result.length == WARPS && result.start == 0,
            "the first read is not the last: {result:?}"
        );
        self.read_all(phase, result.values.iter().map(AsRef::as_ref))
    }

    /// The same, of a whole list.
    pub(crate) fn read_all<'a>(
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

    /// As the judge wants to be told.
    fn seen(&self, process: ProcessId) -> anyhow::Result<Seen> {
        let phase = |number| Phase::new(number).context("answered in no phase");
        let (read, entries) = &self.read;
        let answer =
            ReadAnswer { start: Position::new(0), count: READ_SIZE, length: READ_SIZE, sealed: true };
        let accesses = vec![
            Answered::Append { phase: phase(self.append.0)?, answer: self.append.1 },
            Answered::Read {
                phase: Some(phase(*read)?),
                answer,
                entries: entries.iter().map(|entry| entry.value()).collect::<Result<_, _>>()?,
            },
        ];
        Ok(Seen { process, accesses, decision: Some(self.decision.value()?), refused: None })
    }
}

/// The most frequent one, the smallest of several.
fn mode(mut entries: [Word; ENTRIES]) -> Word {
    entries.sort_unstable();
    // The last of the greatest: with the order turned round, the smallest value.
    let runs = entries.chunk_by(|a, b| a == b).rev();
    runs.max_by_key(|run| run.len()).map_or(Word::default(), |run| run[0])
}

/// Fails unless all processes decided the same in each instance. `saw`: by process, then by instance.
pub(crate) fn agree(saw: &[Vec<Saw>], instances: usize) -> anyhow::Result<()> {
    ensure!(saw.len() == PROCESSES as usize, "{} processes decided", saw.len());
    for own in saw {
        ensure!(own.len() == instances, "decided in {} of {instances} instances", own.len());
        let same = own.iter().zip(&saw[0]).all(|(own, first)| own.decision == first.decision);
        ensure!(same, "two processes decided differently");
    }
    Ok(())
}

/// Puts every instance before the judge, and fails unless all are valid. `saw` as in [`agree`].
pub(crate) fn judge(saw: &[Vec<Saw>], instances: usize) -> anyhow::Result<()> {
    agree(saw, instances)?;
    let spec = ParamsSpec { patience: Patience::Endless, ..ParamsSpec::new(PROCESSES, WARP_SIZE, READ_SIZE) };
    let params = Params::try_new(spec)?;
    let casts = (0..VALUES.len()).map(cast).collect::<anyhow::Result<Vec<_>>>()?;
    for instance in 0..instances {
        let seen = ProcessId::all(PROCESSES).zip(saw).map(|(process, own)| own[instance].seen(process));
        let seen = seen.collect::<anyhow::Result<Vec<_>>>()?;
        let finding = seen::judge(&params, &casts[instance % casts.len()], &seen);
        if finding.outcome != Outcome::Valid {
            bail!("instance {instance} is not valid: {}", finding.reasons.join("; "));
        }
    }
    Ok(())
}

/// Who proposes what in this instance.
fn cast(instance: usize) -> anyhow::Result<Cast> {
    let part = |process| {
        let proposal = Value::new(&proposal(process, instance)).context("an empty proposal")?;
        Ok(Part { role: Role::Correct, proposal })
    };
    Ok(Cast::new((0..PROCESSES as usize).map(part).collect::<anyhow::Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in lock step in which the first of each warp wins, as all processes see it.
    fn run() -> Vec<Vec<Saw>> {
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
            let mut saw = Saw::NOTHING;
            saw.appended_with(u64::from(position) + 1, answer);
            saw.read_all(u64::from(WARPS + position) + 1, list.iter().map(AsRef::as_ref)).unwrap();
            vec![saw]
        };
        (0..PROCESSES as usize).map(one).collect()
    }

    #[test]
    fn a_run_in_lock_step_is_valid() {
        judge(&run(), 1).unwrap();
    }

    #[test]
    fn another_decision_another_entry_a_second_winner_and_a_foreign_phase_are_caught() {
        let changed = |change: fn(&mut Saw)| {
            let mut saw = run();
            change(&mut saw[9][0]);
            judge(&saw, 1).unwrap_err().to_string()
        };
        assert!(changed(|saw| saw.decision = Word(7)).contains("differently"));
        assert!(changed(|saw| saw.read.1[3] = saw.read.1[2]).contains("R2"));
        assert!(changed(|saw| saw.append.1 = AppendAnswer::Success(Position::new(2))).contains("A1"));
        assert!(changed(|saw| saw.append.0 += 1).contains("W1"));
    }

    #[test]
    fn of_several_modes_the_smallest_is_decided() {
        assert_eq!(mode([3, 1, 2, 3, 2, 9, 9, 0].map(Word)), Word(2));
        assert_eq!(mode([5; ENTRIES].map(Word)), Word(5));
    }
}
