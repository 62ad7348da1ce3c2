//! Whether a run on containers shows that its plan hit, and that its verdict is the expected one.

use std::collections::BTreeSet;
use std::time::Duration;

use humantime::format_duration;
use stickycas_model::access::Answer;
use stickycas_model::judge::Verdict;
use stickycas_model::types::ProcessId;

use super::{Checker, Shown};
use crate::plan::{Expectations, Plan};

/// What was seen of an instance while a plan was carried out on containers.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The verdict of the judge's container.
    pub verdict: &'a Verdict,
    /// The number of processes that report that they were told that the instance is unknown (F11).
    pub told_unknown: usize,
    /// The servers of a cluster that have owned the instance, one after another.
    pub owners: &'a [String],
    /// The longest time without an event, by the clock of the observer.
    pub quiet: Duration,
}

impl Checker<'_> {
    /// The differences from the plan.
    pub(super) fn plan(&mut self, observed: &Observed<'_>) {
        let Observed { plan, verdict, told_unknown, owners, quiet } = *observed;
        let expected = &plan.expectations;
        let (history, shown) = (self.evidence.history, &self.shown);
        let all = &mut self.checked.mismatches;
        all.extend((verdict.verdict != plan.expect).then(|| {
            format!("the verdict is {}, and {} was expected", verdict.verdict.title(), plan.expect.title())
        }));
        all.extend(of_processes(expected, shown));
        if let Some(still) = expected.still.as_deref().copied() {
            let pauses = history.windows(2).map(|pair| pair[1].at.since(pair[0].at));
            let longest = pauses.max().unwrap_or_default();
            let wanted = format_duration(still);
            all.extend(
                (longest < still).then(|| {
                    format!("nothing happened for {longest:.1?} at the longest, and not for {wanted}")
                }),
            );
        }
        if let Some(wanted) = expected.told_unknown.filter(|wanted| told_unknown < *wanted as usize) {
            all.push(format!(
                "{told_unknown} processes say that they were told that the instance is unknown, and not {wanted}"
            ));
        }
        let restarts = shown.restarted;
        if let Some(wanted) = expected.restarts.filter(|wanted| restarts != *wanted) {
            all.push(format!("the server has restarted {restarts} times, and not {wanted}"));
        }
        if let Some(wanted) = expected.quiet.as_deref().filter(|wanted| quiet < **wanted) {
            let wanted = format_duration(*wanted);
            all.push(format!("nothing was seen for {quiet:.1?} at the longest, and not for {wanted}"));
        }
        let different = owners.iter().collect::<BTreeSet<_>>().len();
        if let Some(wanted) = expected.owners.filter(|wanted| different < *wanted) {
            let named = if owners.is_empty() { "nobody".to_owned() } else { owners.join(", ") };
            all.push(format!(
                "{different} servers have owned the instance, and not {wanted} or more: {named}"
            ));
        }
        for (property, words) in &expected.missing {
            match verdict.finding(*property).1 {
                None => all.push(format!("{property} was promised, and \"{words}\" was to be missing")),
                Some(premise) if !premise.contains(words) => {
                    all.push(format!(
                        "what {property} lacks is \"{premise}\", which does not say \"{words}\""
                    ));
                }
                Some(_) => {}
            }
        }
    }
}

/// The expectations of processes that the history does not meet.
fn of_processes(expected: &Expectations, shown: &Shown<'_>) -> Vec<String> {
    let lives = |process: &ProcessId| shown.lives.get(process).map_or(&[][..], Vec::as_slice);
    let decided = |process: &&ProcessId| shown.decided.contains_key(process);
    let joined = expected.never_joined.intersection(&shown.joined);
    let mut mismatches: Vec<String> = joined.map(|process| format!("process {process} has joined")).collect();
    let early = expected.never_decided.iter().filter(decided);
    mismatches.extend(early.map(|process| format!("process {process} has decided")));
    let undecided = expected.decided.iter().filter(|process| !decided(process));
    mismatches.extend(undecided.map(|process| format!("process {process} has not decided")));
    let sessions = expected.sessions.iter().map(|(process, wanted)| (process, wanted, lives(process).len()));
    let fewer = sessions.filter(|(_, wanted, opened)| (*opened as u64) < **wanted);
    mismatches.extend(fewer.map(|(process, wanted, opened)| {
        format!("process {process} has opened {opened} sessions, and not {wanted} or more")
    }));
    for (process, wanted) in &expected.lives {
        let lived = lives(process).iter().collect::<BTreeSet<_>>().len();
        if lived as u64 != *wanted {
            mismatches
                .push(format!("the client of process {process} has had {lived} lives, and not {wanted}"));
        }
    }
    for (process, wanted) in &expected.appends {
        let of_process = shown.answered.iter().filter(|((of, _), _)| of == process);
        let answers = of_process.flat_map(|(_, answers)| answers);
        let executed = answers.filter(|(_, answer)| matches!(answer, Answer::Append(_))).count();
        if executed as u64 != *wanted {
            mismatches
                .push(format!("{executed} appends of process {process} were executed, and not {wanted}"));
        }
    }
    mismatches
}
