//! Candidates that take turns: each once in every round, after one turn that does not count.

use std::path::PathBuf;

use clap::Args;

/// How often, how much, and where to.
#[derive(Clone, Debug, Args)]
pub(crate) struct Turns {
    /// How often each candidate has its turn, after one turn that does not count.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Only these candidates, by name; a candidate without its floor has no ratio.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Multiplies the number of instances in each turn.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Write every sample there, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Turns {
    /// Whether this candidate takes part.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// How many instances instead of so many.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(crate) fn scaled(&self, instances: usize) -> usize {
        (instances as f64 * self.scale).max(1.0) as usize
    }

    /// Fails where `--only` names something that is not among these.
    pub(crate) fn check(&self, names: &[String]) -> anyhow::Result<()> {
        for only in &self.only {
            let known = names.contains(only);
            anyhow::ensure!(known, "--only: no candidate '{only}'; there are: {}", names.join(", "));
        }
        Ok(())
    }
}
