//! The work that an interrupted campaign has left.

use stickycas_harness::report::grid::counted;

use super::journal::Completed;
use super::network;
use super::plan::{Campaign, CellPlan};

/// See the module.
#[derive(Debug)]
pub struct Remaining<'a> {
    /// Cells that are not done.
    pub cells: Vec<&'a CellPlan>,
    /// Runs of the sample that have not been made over the network.
    pub network: Vec<(&'a CellPlan, u64)>,
    /// All cells.
    all: usize,
}

impl<'a> Remaining<'a> {
    /// Of a campaign with so many runs over the network, after this past.
    #[must_use]
    pub fn of(campaign: &'a Campaign, completed: &Completed, network: u64) -> Self {
        let done = |cell: &&CellPlan| !completed.cells.contains_key(&cell.number);
        let made = |run: &(&CellPlan, u64)| !completed.network.contains_key(&run.1);
        Self {
            cells: campaign.cells().filter(done).collect(),
            network: network::draw(campaign, network).into_iter().filter(made).collect(),
            all: campaign.cells().count(),
        }
    }
}

impl std::fmt::Display for Remaining<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cells, network, all } = self;
        let runs: u64 = cells.iter().map(|cell| cell.runs()).sum();
        match all - cells.len() {
            0 => write!(f, "{}, {}", counted(*all as u64, "cell"), counted(runs, "run"))?,
            done => write!(
                f,
                "going on: {done} of {} are done; left: {}",
                counted(*all as u64, "cell"),
                counted(runs, "run")
            )?,
        }
        if !network.is_empty() {
            write!(f, ", {} over the network as well", network.len())?;
        }
        Ok(())
    }
}
