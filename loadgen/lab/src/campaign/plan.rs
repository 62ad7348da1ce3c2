//! A campaign as it will be run: every cell with its point, its runs and their seeds.

use std::ops::Range;
use std::time::Duration;

use stickycas_harness::files::faults::Faults;
use stickycas_harness::files::instance::Instance;
use stickycas_harness::scenario::{File, FileError, Proposals, Template};
use stickycas_model::params::ParamsSpec;

use super::cell::{Figure, POSSIBLE, Point};

/// A campaign that can be run. Equal campaigns make the same runs and give the same results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// Its name: letters, digits, `-` and `_`, at most 64.
    pub name: String,
    /// Its purpose, in one line; may be empty.
    pub about: String,
    /// The seed of the first run of cell 1.
    pub seed: u64,
    /// The sweeps, in the order of the file.
    pub sweeps: Vec<SweepPlan>,
    /// The parameters that are no axis; the others have no meaning here.
    pub(super) instance: ParamsSpec,
}

/// The settings of a campaign file beside its runs. The command line may say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How long it may take.
    pub budget: Option<Duration>,
    /// How many of its runs are made over the network as well.
    pub network: u64,
}

/// One sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepPlan {
    /// Its name, unique in the campaign.
    pub name: String,
    /// Its subject, in one line; may be empty.
    pub about: String,
    /// How the report draws it.
    pub figure: Option<Figure>,
    /// Runs of each cell.
    pub runs: u64,
    /// Points that cannot be.
    pub impossible: u64,
    /// Points that are another one of this sweep.
    pub repeated: u64,
    /// Its cells, in order.
    pub cells: Vec<CellPlan>,
}

/// One cell: the runs of one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPlan {
    /// Its number in the campaign file, from 1, whichever sweeps are run.
    pub number: u64,
    /// Where it lies.
    pub point: Point,
    /// The seeds of its runs. No two cells share one.
    pub seeds: Range<u64>,
}

impl Campaign {
    /// The same campaign with these sweeps alone, in which every cell keeps its number and its seeds.
    ///
    /// # Errors
    /// The first name that no sweep has.
    pub fn only(mut self, names: &[String]) -> Result<Self, String> {
        if let Some(unknown) = names.iter().find(|name| self.sweeps.iter().all(|sweep| sweep.name != **name))
        {
            let known: Vec<&str> = self.sweeps.iter().map(|sweep| sweep.name.as_str()).collect();
            return Err(format!("there is no sweep {unknown:?}: give one of {}", known.join(", ")));
        }
        if !names.is_empty() {
            self.sweeps.retain(|sweep| names.contains(&sweep.name));
        }
        Ok(self)
    }

    /// All cells, in order.
    pub fn cells(&self) -> impl Iterator<Item = &CellPlan> {
        self.sweeps.iter().flat_map(|sweep| &sweep.cells)
    }

    /// All runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.cells().map(CellPlan::runs).sum()
    }

    /// A cell as a scenario to be run with many seeds.
    ///
    /// # Errors
    /// If it is none, which checking the campaign should have shown.
    pub fn template(&self, cell: &CellPlan) -> Result<Template, FileError> {
        Template::parse(&format!("cell {}", cell.number), &self.scenario(cell), Some(cell.seeds.start))
    }

    /// A cell as the text of a scenario file: with the seed of one of its runs it is that run, in the
    /// simulator and over the network.
    #[must_use]
    pub fn scenario(&self, cell: &CellPlan) -> String {
        let CellPlan { number, point, seeds } = cell;
        let spec = point.spec(self.instance.clone());
        let group = Faults {
            count: Some(point.f.into()),
            placement: Some(point.placement.into()),
            strategy: Some(point.strategy.clone().into()),
            ..Faults::default()
        };
        let file = File {
            name: format!("cell-{number}").into(),
            about: format!("cell {number} of campaign {}", self.name),
            instance: Instance { arbiter: Some(point.arbiter.clone().into()), ..Instance::of(&spec) }.into(),
            proposals: Proposals { distinct: Some(point.distinct.into()), ..Proposals::default() }.into(),
            faults: if point.f == 0 { Vec::new() } else { vec![group.into()] },
            ..File::default()
        };
        let (first, last) = (seeds.start, seeds.end.saturating_sub(1));
        file.text(&format!(
            "Cell {number} of campaign {}: its runs have the seeds {first} to {last}.",
            self.name
        ))
    }
}

impl CellPlan {
    /// How many runs it has.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.seeds.end - self.seeds.start
    }

    /// Messages of one run, which is what its cost grows with: each process joins, has q + c accesses, and
    /// decides.
    #[must_use]
    pub fn messages(&self) -> u64 {
        let params = self.point.params().expect(POSSIBLE);
        u64::from(self.point.n) * (2 + u64::from(params.append_rounds() + params.reads()))
    }
}
