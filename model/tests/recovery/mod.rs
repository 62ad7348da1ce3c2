//! What a restarted server relies on: that a replay of the logged inputs, or a checkpoint, gives the same
//! machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod damage;
mod rejoin;
mod script;

use std::sync::Arc;

use proptest::prelude::*;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::invariants::check;
use stickycas_model::machine::{Checkpoint, Input, Machine, OutcomeDigest};
use stickycas_model::params::Params;
use stickycas_model::sim::replay;
use stickycas_model::types::Time;

use script::{Come, Driver, comes, params};

fn apply(machine: &mut Machine, at: Time, input: Input) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    let refused = machine.apply(at, input, &mut events).is_err();
    (events, refused)
}

/// The checkpoint, but for the moment of the last input, which may have changed nothing.
fn timeless(machine: &Machine) -> Checkpoint {
    Checkpoint { time: Time::ZERO, ..machine.checkpoint() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_of_the_inputs_that_changed_something_suffices(params in params(), comes in comes()) {
        let params = Arc::new(params);
        let mut driver = Driver::default();
        let (mut told, mut replayed) = (Machine::new(Arc::clone(&params)), Machine::new(Arc::clone(&params)));
        let (mut one, mut other) = (OutcomeDigest::default(), OutcomeDigest::default());
        for (index, come) in comes.iter().enumerate() {
            let (at, inputs) = driver.inputs(&told, come);
            for input in inputs {
                let (events, refused) = apply(&mut told, at, input.clone());
                driver.note(&events);
                if !told.take_changed() {
                    prop_assert_eq!(events, []);
                    continue;
                }
                one.add(told.now(), refused, &events);
                let (again, refused_again) = apply(&mut replayed, told.now(), input);
                other.add(replayed.now(), refused_again, &again);
                prop_assert!(replayed.take_changed(), "what was logged is logged again");
                prop_assert_eq!((again, refused_again), (events, refused));
            }
            if index % 8 == 0 || index + 1 == comes.len() {
                if let Some(counts) = told.take_counts() {
                    let (events, _) = apply(&mut replayed, Time::ZERO, Input::Counts(counts));
                    prop_assert_eq!((events, replayed.take_changed()), (vec![], false));
                }
                prop_assert_eq!(timeless(&replayed), timeless(&told));
                prop_assert_eq!(told.take_counts(), None);
            }
        }
        prop_assert_eq!(one.value(), other.value());
    }

    #[test]
    fn a_machine_from_its_checkpoint_does_the_same(params in params(), comes in comes(), from in 0_usize..150) {
        let params = Arc::new(params);
        let mut driver = Driver::default();
        let mut machine = Machine::new(Arc::clone(&params));
        let restored = |machine: &Machine| {
            let checkpoint = machine.checkpoint();
            let restored = Machine::from_checkpoint(Arc::clone(&params), checkpoint.clone()).unwrap();
            assert_eq!(restored.checkpoint(), checkpoint);
            restored
        };
        let mut long_ago = restored(&machine);
        for (index, come) in comes.iter().enumerate() {
            let (at, inputs) = driver.inputs(&machine, come);
            for input in inputs {
                let mut just_now = restored(&machine);
                let expected = apply(&mut machine, at, input.clone());
                prop_assert_eq!(&apply(&mut just_now, at, input.clone()), &expected);
                prop_assert_eq!(&apply(&mut long_ago, at, input), &expected);
                prop_assert_eq!(just_now.status(at), machine.status(at));
                prop_assert_eq!(just_now.checkpoint(), machine.checkpoint());
                driver.note(&expected.0);
            }
            if index == from {
                long_ago = restored(&machine);
            }
        }
        prop_assert_eq!(long_ago.checkpoint(), machine.checkpoint());
    }

    /// Also what the judge relies on (V4): the rules as a second implementation has them, and the replay of a
    /// record.
    #[test]
    fn a_history_with_restarts_keeps_every_rule_and_can_be_replayed(params in params(), comes in comes()) {
        let params = Arc::new(params);
        let (_, history) = drive(&params, &comes, false);
        prop_assert_eq!(check(&params, &history, true), Ok(()), "{:#?}", history);
        let (machine, history) = drive(&params, &comes, true);
        prop_assert_eq!(check(&params, &history, true), Ok(()), "{:#?}", history);
        // With a pace a refused input may open a phase just before another one comes, and no record shows
        // that.
        if !params.spec().pace.is_zero() {
            return Ok(());
        }
        let replayed = replay(&params, &history);
        let replayed = replayed.map_err(|difference| TestCaseError::fail(format!("{difference}\n{history:#?}")))?;
        prop_assert!(replayed.list().iter().eq(machine.list().iter()));
    }
}

/// The machine and its history in the end. If it is punctual, a tick comes at every deadline.
fn drive(params: &Arc<Params>, comes: &[Come], punctual: bool) -> (Machine, Vec<Recorded>) {
    let mut driver = Driver::default();
    let mut machine = Machine::new(Arc::clone(params));
    let mut history = Vec::new();
    let mut take = |machine: &mut Machine, driver: &mut Driver, at, input| {
        let (events, _) = apply(machine, at, input);
        driver.note(&events);
        let at = machine.now();
        history.extend(events.into_iter().map(|event| Recorded { at, event }));
    };
    for come in comes {
        let (at, inputs) = driver.inputs(&machine, come);
        for input in inputs {
            while let Some(due) = machine.deadline().filter(|due| punctual && *due < at) {
                take(&mut machine, &mut driver, due, Input::Tick);
            }
            take(&mut machine, &mut driver, at, input);
        }
    }
    (machine, history)
}
