//! `simulate`: a scenario in the simulator.

use clap::Args;

use super::scenario::ScenarioArgs;
use crate::simulate::simulate;

/// The arguments of `simulate`.
#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
}

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<u8> {
    let scenario = args.scenario.load()?;
    scenario.check_simulable()?;
    args.scenario.finish(&simulate(&scenario), None, "simulate")
}
