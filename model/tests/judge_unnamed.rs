//! An attacker whose offence the server did not file is detected all the same, and the run is a violation
//! (SPEC B2). So no attack may be detected by the record of its offence.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stickycas_model::byzantine::{Strategy, WireAttack, WireAttackKind};
use stickycas_model::counts::{Counts, RunCounts};
use stickycas_model::detection::detect;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::judge::{self, Case, Outcome, Verdict};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::sim;
use stickycas_model::types::{ProcessId, Time, Value};

/// The Byzantine processes, of which the record may lack the second.
const CULPRITS: [u32; 2] = [2, 5];

fn culprits() -> [ProcessId; 2] {
    CULPRITS.map(|number| ProcessId::new(number).unwrap())
}

/// Seven processes, a warp each, of which the culprits have this role: f*(|Vc|+1)*p = 2*(2+1)*1 = 6 < 7 = n.
fn truth(role: &Role) -> GroundTruth {
    let assignment = |(number, proposal)| {
        let role = if CULPRITS.contains(&number) { role.clone() } else { Role::Correct };
        Assignment { role, proposal: Value::parse(proposal).unwrap() }
    };
    GroundTruth::new((1..).zip(["a", "c", "a", "b", "a", "a", "a"]).map(assignment).collect())
}

fn played(strategy: &str, seed: u64) -> (sim::SimPlan, sim::SimOutcome) {
    let truth = truth(&Role::Byzantine(strategy.parse::<Strategy>().unwrap()));
    let params = Arc::new(Params::try_new(ParamsSpec::new(7, 1, 3)).unwrap());
    let plan = sim::SimPlan { params, truth, seed };
    let outcome = sim::run(&plan);
    (plan, outcome)
}

/// The verdict on what was played, if this is the history, the ground truth and what the server counted.
fn judged(
    plan: &sim::SimPlan,
    outcome: &sim::SimOutcome,
    history: &[Recorded],
    truth: &GroundTruth,
    counted: &RunCounts,
) -> Verdict {
    let sim::SimPlan { params, seed, .. } = plan;
    let detection = detect(params, truth, *seed, history, counted);
    let expected = judge::Expectations::new(truth, &detection);
    judge::judge(&Case {
        params: Arc::clone(params),
        truth,
        expected: &expected,
        history,
        complete: true,
        reports: &outcome.reports,
        fired: detection.fired,
    })
}

/// Attackers whose offence is on record are named, the others are not.
fn check(verdict: &Verdict, kind: OffenceKind, all_on_record: bool, at: &str) {
    let [first, second] = culprits();
    assert_eq!(verdict.culprits, [first, second], "{at}");
    if all_on_record {
        assert_eq!(verdict.verdict, Outcome::Valid, "{at}: {:?}", verdict.reasons);
        assert_eq!((&*verdict.named, &*verdict.unnamed), (&[first, second][..], &[][..]), "{at}");
    } else {
        let says = format!("B2: process {second} was seen to commit {kind:?}, and that is not on record");
        assert_eq!(verdict.verdict, Outcome::Violation, "{at}");
        assert_eq!(verdict.reasons, [says], "{at}");
        assert_eq!((&*verdict.named, &*verdict.unnamed), (&[first][..], &[second][..]), "{at}");
    }
}

fn is_offence_of(recorded: &Recorded, process: ProcessId) -> bool {
    matches!(&recorded.event, Event::Offence(offence) if offence.process == process)
}

#[test]
fn whoever_commits_an_offence_and_is_not_filed_is_unnamed() {
    let [_, second] = culprits();
    // Of `mixed`, a run in which both draw the empty append.
    let both_empty = |seed: &u64| {
        let (_, outcome) = played("mixed(collude=0, mimic=b)", *seed);
        culprits()
            .iter()
            .all(|culprit| outcome.history.iter().any(|recorded| is_offence_of(recorded, *culprit)))
    };
    let seed = (0..1_000).find(both_empty).unwrap();
    for (text, kind) in [
        ("empty", OffenceKind::Malformed),
        ("mixed(collude=0, mimic=b)", OffenceKind::Malformed),
        ("adaptive(phase=1, then=mixed(collude=0, mimic=b))", OffenceKind::Malformed),
        ("liar", OffenceKind::FalseDecision),
        ("stall(conduct=liar(value=z))", OffenceKind::FalseDecision),
        ("adaptive(phase=9, then=liar)", OffenceKind::FalseDecision),
        // Seven warps and three reads: they decide after phases 23 and 26.
        ("adaptive(phase=24, then=liar(value=z))", OffenceKind::FalseDecision),
        ("adaptive(phase=8, then=adaptive(phase=20, then=stall(conduct=liar)))", OffenceKind::FalseDecision),
        ("reader", OffenceKind::LateAppend),
        ("stall(conduct=repeat-append)", OffenceKind::LateAppend),
        ("adaptive(phase=9, then=stall(conduct=late-append(access=3, value=0)))", OffenceKind::LateAppend),
    ] {
        let (plan, outcome) = played(text, seed);
        let filed = judged(&plan, &outcome, &outcome.history, &plan.truth, &RunCounts::default());
        check(&filed, kind, true, text);
        let mut history = outcome.history.clone();
        history.retain(|recorded| !is_offence_of(recorded, second));
        assert!(history.len() < outcome.history.len());
        let unfiled = judged(&plan, &outcome, &history, &plan.truth, &RunCounts::default());
        check(&unfiled, kind, false, text);
    }
}

#[test]
fn an_offence_counts_where_its_strategy_does_not_show() {
    let (plan, outcome) = played("stall(conduct=liar(value=z))", 1);
    let mut history = outcome.history;
    // No phase waited for it by this record.
    for recorded in &mut history {
        recorded.at = Time::ZERO;
    }
    let detection = detect(&plan.params, &plan.truth, 1, &history, &RunCounts::default());
    assert!(detection.attackers.is_empty(), "{detection:?}");
    let lie = BTreeSet::from([OffenceKind::FalseDecision]);
    assert_eq!(detection.offences, culprits().map(|culprit| (culprit, lie.clone())).into());
}

#[test]
fn whoever_attacks_the_wire_and_is_not_filed_is_unnamed() {
    let attacks = [
        (WireAttackKind::Impersonate, "NOT_CREATOR"),
        (WireAttackKind::Double, "ACCESS_CONTENT_DIFFERS"),
        (WireAttackKind::Flood, "TOO_MANY_WAITING"),
        (WireAttackKind::Oversize, "VALUE_TOO_LARGE"),
        (WireAttackKind::Garbage, "messages_undecodable"),
    ];
    // Beyond its attack, an attacker does what this strategy does.
    let (plan, outcome) = played("distinct", 1);
    for (attack, count) in attacks {
        let attack = WireAttack::new(attack);
        let &[kind] = attack.offences() else { panic!("{attack} commits one kind of offence") };
        let truth = truth(&Role::Attacker(attack));
        let counts = || Counts::from_iter([(count.to_owned(), 3)]);
        let processes: BTreeMap<_, _> = culprits().map(|process| (process, counts())).into();
        let counted = RunCounts { all: Counts::default(), processes };
        let with_offences_of = |filed: &[ProcessId]| {
            let mut history = outcome.history.clone();
            let at = history[0].at;
            history.splice(
                1..1,
                filed.iter().map(|&process| {
                    let detail = "refused".to_owned();
                    Recorded {
                        at,
                        event: Event::Offence(Offence { process, kind, number: None, phase: None, detail }),
                    }
                }),
            );
            history
        };
        for filed in [&culprits()[..], &culprits()[..1]] {
            let verdict = judged(&plan, &outcome, &with_offences_of(filed), &truth, &counted);
            check(&verdict, kind, filed.len() == 2, &attack.to_string());
        }
    }
}
