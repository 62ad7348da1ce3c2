//! Many epochs: all learn the same leader, and one whom a correct member has supported where that is
//! promised.

use std::collections::BTreeSet;
use std::sync::Arc;

use stickycas_log::elected;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::process::ProcessEnd;
use stickycas_model::random::SplitMix64;
use stickycas_model::sim::{SimPlan, Simulator};
use stickycas_model::types::{ProcessId, Value};

#[test]
fn all_agree_on_the_leader_of_an_epoch() {
    let (mut promised, mut none, mut byzantine_leads) = (0, 0, 0);
    for seed in 0..2000 {
        let mut random = SplitMix64::new(seed);
        let n = 3 + random.below(5) as u32;
        let p = 1 + random.below(n.into()) as u32;
        let spec = ParamsSpec { append_rounds: p, ..ParamsSpec::new(n, p, n) };
        let roster: Vec<String> = (1..=n).map(|number| format!("p{number}")).collect();
        let f = random.index(n as usize / 2 + 1);
        let byzantine: BTreeSet<_> =
            (0..f).map(|_| ProcessId::from_index(random.index(n as usize)).unwrap()).collect();
        let candidates = 1 + random.index(2);
        let whom = |random: &mut SplitMix64| Value::new(roster[random.index(candidates)].as_bytes()).unwrap();
        let assignments = ProcessId::all(n).map(|process| {
            let proposal = whom(&mut random);
            let own = byzantine.first().map_or("", |first| &roster[first.index()]);
            let role = match random.below(5) {
                _ if !byzantine.contains(&process) => Role::Correct,
                0 => Role::Byzantine("silent".parse().unwrap()),
                1 => Role::Byzantine("distinct".parse().unwrap()),
                2 => Role::Byzantine("collude(value=nobody)".parse().unwrap()),
                _ => Role::Byzantine(format!("repeat-append(value={own})").parse().unwrap()),
            };
            Assignment { role, proposal }
        });
        let truth = GroundTruth::new(assignments.collect());
        let supported: BTreeSet<Value> = truth.correct_proposals().into_iter().cloned().collect();
        let correct: BTreeSet<_> = truth.correct().collect();
        let plan = SimPlan { params: Arc::new(Params::try_new(spec).unwrap()), truth, seed };
        let outcome = Simulator::new(&plan).run(&plan);
        let elected = elected(1, &roster, &outcome.list);
        for report in outcome.reports.iter().filter(|report| correct.contains(&report.process)) {
            assert_eq!(report.ended, ProcessEnd::Decided, "seed {seed}");
            let decision = report.decision.as_ref().unwrap().to_string();
            assert_eq!(Some(decision).filter(|it| roster.contains(it)), elected.leader, "seed {seed}");
        }
        let leader = elected.leader.as_ref().map(|leader| Value::new(leader.as_bytes()).unwrap());
        if byzantine.len() * (supported.len() + 1) < n as usize {
            promised += 1;
            assert!(
                leader.as_ref().is_some_and(|leader| supported.contains(leader)),
                "seed {seed}: {elected:?}"
            );
        }
        none += u32::from(leader.is_none());
        byzantine_leads += u32::from(leader.is_some_and(|leader| !supported.contains(&leader)));
    }
    assert!(promised > 0 && none > 0 && byzantine_leads > 0, "{promised} {none} {byzantine_leads}");
}
