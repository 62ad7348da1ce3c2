//! A scenario for many runs, which differ by their seed and by what is drawn from it.
//!
//! The file is read and checked once. Then [`Template::redraw`] makes of the plan of one run that of another,
//! exactly as if the file had been read with that seed, but does again only what the seed has a say in.

use std::path::Path;
use std::sync::Arc;

use stickycas_model::sim;
use stickycas_model::types::Seed;

use super::file::File;
use super::{Scenario, check};
use crate::fault_plan::FaultPlan;
use crate::files::faults::fault_plan;
use crate::files::{FileError, FileKind, Settings, Source};

/// A scenario to be run with many seeds. See the module.
#[derive(Clone, Debug)]
pub struct Template {
    source: Source,
    written: File,
    scenario: Scenario,
    faults: FaultPlan,
}

impl Template {
    /// Reads and checks a scenario file with these settings. `seed` as for [`Scenario::load`].
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path, seed: Option<u64>, settings: &Settings) -> Result<Self, FileError> {
        Self::read(Source::load(path, settings)?, seed)
    }

    /// Checks a scenario given as the text of a file, named `file` in errors. `seed` as for
    /// [`Scenario::load`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, seed: Option<u64>) -> Result<Self, FileError> {
        Self::read(Source::new(file, text, &Settings::default()), seed)
    }

    fn read(source: Source, seed: Option<u64>) -> Result<Self, FileError> {
        let checked = source.check(|written: File| {
            let scenario = check::check(&written, seed)?;
            let faults = fault_plan(&written.faults, &scenario.params, scenario.seed)?;
            Ok((written, scenario, faults))
        });
        let (written, scenario, faults) = FileKind::Scenario.or_another(&source, checked)?;
        Ok(Self { source, written, scenario, faults })
    }

    /// The scenario with the seed that was given, or that the file gives, or that was drawn.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The scenario with this seed.
    ///
    /// # Errors
    /// The seed draws a process that another group of faults names.
    pub fn with_seed(&self, seed: u64) -> Result<Scenario, FileError> {
        check::check(&self.written, Some(seed)).map_err(|fault| self.source.error(fault))
    }

    /// Turns the plan of a run of this template into that of the run with this seed.
    ///
    /// # Errors
    /// As for [`Template::with_seed`]; the plan is then as it was.
    pub fn redraw(&self, seed: u64, plan: &mut sim::SimPlan) -> Result<(), FileError> {
        if self.written.draws_parts() {
            *plan = self.with_seed(seed)?.plan();
            return Ok(());
        }
        let Scenario { params, .. } = &self.scenario;
        if self.written.draws_proposals() {
            let drawn = check::proposals(&self.written.proposals, params, &self.faults, seed);
            plan.truth.propose(drawn.map_err(|fault| self.source.error(fault))?);
        }
        plan.params = Arc::new(params.with_seed(Seed::new(seed)));
        plan.seed = seed;
        Ok(())
    }
}
