//! Options of the subcommands whose candidates take turns: each once in every round, after a first round that
//! does not count.

use std::path::PathBuf;

use clap::Args;

use crate::serve::Layout;

/// The largest factor of the instances of a turn: all of them are in memory.
const LARGEST_SCALE: f64 = 1_000.0;

/// How the candidates take turns.
#[derive(Clone, Debug, Args)]
pub(crate) struct RoundOptions {
    /// How often each candidate has its turn, after one turn that does not count.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Only these candidates, by name; a candidate without its floor has no ratio.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Multiplies the number of instances in each turn.
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// How clients and server share the processors; etcd, where it takes part, is always a program of its
    /// own.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) layout: Layout,
    /// Write every sample there, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| *scale > 0.0 && *scale <= LARGEST_SCALE);
    scale.ok_or_else(|| format!("give a number above 0 and up to {LARGEST_SCALE}"))
}

impl RoundOptions {
    /// Whether this candidate takes part.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// The number of instances of a turn that has this many by default.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        options: RoundOptions,
    }

    fn parsed(arguments: &str) -> Result<RoundOptions, String> {
        let words = std::iter::once("program").chain(arguments.split_whitespace());
        Program::try_parse_from(words).map(|program| program.options).map_err(|error| error.to_string())
    }

    #[test]
    fn scale_multiplies_the_instances_but_never_to_none() {
        let instances = |scale: &str| parsed(&format!("--scale {scale}")).unwrap().scaled(300);
        assert_eq!((instances("1"), instances("2.5"), instances("0.001")), (300, 750, 1));
    }

    #[test]
    fn bad_options_are_refused_with_the_valid_ones() {
        for scale in ["0", "-1", "NaN", "inf", "1e300", "much"] {
            let error = parsed(&format!("--scale={scale}")).unwrap_err();
            assert!(error.contains("give a number above 0 and up to 1000"), "{error}");
        }
        assert!(parsed("--rounds 0").is_err());
        let names = ["unary".to_owned(), "attach/1".to_owned()];
        let options = parsed("--only attach/1,nobody").unwrap();
        assert!(options.wants("attach/1") && !options.wants("unary") && parsed("").unwrap().wants("unary"));
        let error = options.check(&names).unwrap_err().to_string();
        assert_eq!(error, "--only: no candidate 'nobody'; there are: unary, attach/1");
    }
}
