//! The plans that are delivered, with the scenario that they are for.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use stickycas_faults::Plan;
use stickycas_faults::plan::Service;
use stickycas_harness::Scenario;
use stickycas_model::judge::Outcome;
use stickycas_model::{bounds, judge::Property};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn plans_in(folder: &str) -> Vec<(PathBuf, Plan)> {
    let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), Plan::load(&file).unwrap())).collect()
}

fn plans() -> Vec<(PathBuf, Plan)> {
    let mut plans = plans_in("examples/perturbations");
    plans.extend(plans_in("examples/perturbations/cluster"));
    plans
}

fn scenario(plan: &Plan) -> Scenario {
    Scenario::load_with(&root().join("examples/scenarios/demo.toml"), Some(7), &plan.settings).unwrap()
}

#[test]
fn every_plan_is_called_as_its_file_and_goes_with_the_demo() {
    let plans = plans();
    let names: BTreeSet<&str> = plans.iter().map(|(_, plan)| plan.name.as_str()).collect();
    assert!(names.len() >= 8, "{names:?}");
    for (file, plan) in &plans {
        assert_eq!(file.file_stem().unwrap().to_str().unwrap(), plan.name);
        assert!(!plan.about.is_empty(), "{}", plan.name);
        plan.check_against(&scenario(plan)).unwrap();
    }
}

#[test]
fn plans_of_a_cluster_touch_servers_and_members_of_etcd_alone() {
    let plans = plans_in("examples/perturbations/cluster");
    assert!(plans.len() >= 10, "{}", plans.len());
    let touched = |plan: &Plan| plan.steps.iter().flat_map(|step| step.services.clone()).collect::<Vec<_>>();
    for (_, plan) in &plans {
        let services = touched(plan);
        let of_cluster = |service: &Service| matches!(service, Service::Owner(_) | Service::Etcd(_));
        assert!(services.iter().all(of_cluster), "{}: {services:?}", plan.name);
    }
    for (_, plan) in plans_in("examples/perturbations") {
        assert!(!touched(&plan).iter().any(|service| service.owner().is_some()), "{}", plan.name);
    }
}

#[test]
fn a_plan_beyond_the_bound_names_the_missing_premise() {
    for (_, plan) in plans().iter().filter(|(_, plan)| plan.expect == Outcome::Valid) {
        let scenario = scenario(plan);
        let byzantine = scenario.truth.byzantine().count();
        let f = u64::try_from(byzantine + plan.faulty.len() + plan.late.len()).unwrap();
        let promised = bounds::strong_validity(&scenario.params, f, 1);
        let named = plan.expectations.missing.get(&Property::StrongValidity);
        match (promised, named) {
            (Ok(()), None) => {}
            (Err(premise), Some(words)) => assert!(premise.to_string().contains(words), "{}", plan.name),
            (promised, named) => unreachable!("{}: {promised:?}, and the plan says {named:?}", plan.name),
        }
    }
}
