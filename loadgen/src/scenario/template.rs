//! A scenario for many runs, which differ by their seed and by what is drawn from it.
//!
//! The file is read and checked once. Then [`Template::redraw`] makes of the plan of one run that of another, exactly
//! as if the file had been read with that seed, but does again only what the seed has a say in.

use std::path::Path;
use std::sync::Arc;

use stickycas_model::sim;
use stickycas_model::types::Seed;

use super::error::{Fault, read_toml};
use super::file::File;
use super::{Problem, Scenario, ScenarioError, check};
use crate::fault_plan::FaultPlan;

/// A scenario to be run with many seeds. See the module.
#[derive(Clone, Debug)]
pub struct Template {
    /// The name of the file, for errors.
    file: String,
    text: String,
    written: File,
    scenario: Scenario,
    faults: FaultPlan,
}

impl Template {
    /// Reads and checks a scenario file. `seed` as for [`Scenario::load`].
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path, seed: Option<u64>) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&path.display().to_string(), &text, seed)
    }

    /// Checks a scenario given as the text of a file, named `file` in errors. `seed` as for [`Scenario::load`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, seed: Option<u64>) -> Result<Self, ScenarioError> {
        let checked = read_toml::<File>(text).and_then(|written| {
            let scenario = check::check(&written, seed)?;
            let faults = check::fault_plan(&written.faults, &scenario.params, scenario.seed)?;
            Ok((written, scenario, faults))
        });
        let invalid = |fault| ScenarioError::Invalid(Problem::new(file, text, fault));
        let (written, scenario, faults) = checked.map_err(invalid)?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), written, scenario, faults })
    }

    /// The scenario with the seed that was given, or that the file gives, or that was drawn.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The scenario with this seed.
    ///
    /// # Errors
    /// What the seed makes wrong with it: a process drawn that another group of faults names.
    pub fn with_seed(&self, seed: u64) -> Result<Scenario, ScenarioError> {
        check::check(&self.written, Some(seed)).map_err(|fault| self.invalid(fault))
    }

    /// Turns the plan of a run of this template into that of the run with this seed.
    ///
    /// # Errors
    /// As for [`Template::with_seed`]; the plan is then as it was.
    pub fn redraw(&self, seed: u64, plan: &mut sim::SimPlan) -> Result<(), ScenarioError> {
        if self.written.draws_parts() {
            *plan = self.with_seed(seed)?.plan();
            return Ok(());
        }
        let Scenario { params, .. } = &self.scenario;
        if self.written.draws_proposals() {
            let drawn = check::proposals(&self.written.proposals, params, &self.faults, seed);
            plan.cast.propose(drawn.map_err(|fault| self.invalid(fault))?);
        }
        plan.params = Arc::new(params.with_seed(Seed::new(seed)));
        plan.seed = seed;
        Ok(())
    }

    fn invalid(&self, fault: Fault) -> ScenarioError {
        ScenarioError::Invalid(Problem::new(&self.file, &self.text, fault))
    }
}
