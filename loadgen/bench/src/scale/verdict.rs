//! Has the judge of loads judge the instances.

use anyhow::{Context as _, bail};
use stickycas_load::observations::{self, ProcessObservation};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::judge::Outcome;
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{ProcessId, Value};

use super::fixture::{PROCESSES, WARP_SIZE};
use super::process::{PlayedInstance, proposal};

/// Judges all instances, and fails unless each of them is valid. `rosters`: the principals of each instance,
/// by process. `played`: principals by number, and their observations. Returns the decisions, by instance.
pub(super) fn judge(
    rosters: &[Vec<usize>],
    played: Vec<(usize, Vec<PlayedInstance>)>,
) -> anyhow::Result<Vec<Value>> {
    let spec = ParamsSpec { patience: Patience::Endless, ..ParamsSpec::new(PROCESSES, WARP_SIZE, PROCESSES) };
    let params = Params::try_new(spec)?;
    let mut seen: Vec<Vec<ProcessObservation>> =
        rosters.iter().map(|_| Vec::with_capacity(PROCESSES as usize)).collect();
    for (principal, played) in played {
        for PlayedInstance { instance, accesses, decision, .. } in played {
            let process = ProcessId::all(PROCESSES).zip(&rosters[instance]).find(|(_, it)| **it == principal);
            let (process, _) = process.context("a principal played that is not in the roster")?;
            let decision = Some(Value::new(&decision).context("an empty decision")?);
            seen[instance].push(ProcessObservation { process, accesses, decision, refused: None });
        }
    }
    let all = rosters.iter().zip(&seen).enumerate();
    all.map(|(instance, (roster, seen))| {
        let assignment = |principal: &usize| {
            let proposal = Value::new(&proposal(*principal, instance)).context("an empty proposal")?;
            Ok(Assignment { role: Role::Correct, proposal })
        };
        let truth = GroundTruth::new(roster.iter().map(assignment).collect::<anyhow::Result<_>>()?);
        let finding = observations::judge(&params, &truth, seen);
        if finding.outcome != Outcome::Valid {
            bail!("instance {instance} is not valid: {}", finding.reasons.join("; "));
        }
        seen.first().and_then(|seen| seen.decision.clone()).context("nobody decided")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use stickycas_load::observations::AnsweredAccess;
    use stickycas_model::access::{AppendAnswer, ReadAnswer};
    use stickycas_model::types::{Phase, Position};

    use super::super::fixture::WARPS;
    use super::super::process::AccessTimes;
    use super::*;

    const ROSTER: [usize; PROCESSES as usize] = [3, 1, 4, 15, 9, 2, 6, 5];

    /// In lock step: the first process of each warp wins, and all decide for the smallest of four different
    /// values.
    fn run() -> Vec<(usize, Vec<PlayedInstance>)> {
        let winners = ROSTER.iter().step_by(WARP_SIZE as usize);
        let list: Vec<Value> = winners.map(|it| Value::new(&proposal(*it, 0)).unwrap()).collect();
        let smallest = list.iter().min().unwrap().to_bytes();
        let one = |(place, principal): (u32, &usize)| {
            let (warp, member) = (place / WARP_SIZE, place % WARP_SIZE);
            let won = AppendAnswer::Success(Position::new(warp));
            let answer = if member == 0 { won } else { AppendAnswer::Failed };
            let append = AnsweredAccess::Append { phase: Phase::new(u64::from(warp) + 1).unwrap(), answer };
            let read = AnsweredAccess::Read {
                phase: Phase::new(u64::from(WARPS + warp) + 1),
                answer: ReadAnswer { start: Position::new(0), count: WARPS, length: WARPS, sealed: true },
                entries: list.clone(),
            };
            let decision = smallest.clone();
            let now = Instant::now();
            let times = AccessTimes { sent: now, answered: [now; 2] };
            (*principal, vec![PlayedInstance { instance: 0, accesses: vec![append, read], times, decision }])
        };
        (0..).zip(&ROSTER).map(one).collect()
    }

    fn judged(change: impl FnOnce(&mut Vec<(usize, Vec<PlayedInstance>)>)) -> Result<Vec<Value>, String> {
        let mut played = run();
        change(&mut played);
        judge(&[ROSTER.to_vec()], played).map_err(|error| error.to_string())
    }

    #[test]
    fn a_run_in_lock_step_is_valid() {
        let decided = judged(|_| ()).unwrap();
        assert_eq!(decided[0].to_bytes(), run()[0].1[0].decision);
    }

    #[test]
    fn an_instance_that_is_not_valid_fails_the_measurement() {
        let other = proposal(ROSTER[2], 0);
        assert_ne!(other, run()[0].1[0].decision);
        let error = judged(|played| played[5].1[0].decision = other).unwrap_err();
        assert!(error.starts_with("instance 0 is not valid: "), "{error}");
        let error = judged(|played| {
            let append = &mut played[1].1[0].accesses[0];
            if let AnsweredAccess::Append { answer, .. } = append {
                *answer = AppendAnswer::Success(Position::new(0));
            }
        })
        .unwrap_err();
        assert!(error.contains("A1"), "two winners: {error}");
        let missing = judged(|played| drop(played.remove(4))).unwrap_err();
        assert!(missing.contains("is not valid"), "no observation of one process: {missing}");
        let stranger = judged(|played| played[0].0 = 7).unwrap_err();
        assert!(stranger.contains("not in the roster"), "{stranger}");
    }
}
