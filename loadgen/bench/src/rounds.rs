//! The runner of candidates that take turns: each once in every round, every other round backwards so that a
//! drift favours none, after a first round that does not count. The load of a shared machine changes within
//! minutes, so ratios are taken within a round.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use crate::results::{Common, Figures, Row};
use crate::servers::runtime;

/// The largest factor of the work of a turn: all of its instances are in memory.
const LARGEST_SCALE: f64 = 1_000.0;

/// How the candidates take turns, and what all subcommands ask for.
#[derive(Clone, Debug, Args)]
pub(crate) struct RoundOptions {
    /// How often each candidate has its turn, after one turn that does not count.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Only these candidates, by name; a candidate without its floor has no ratio.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Multiplies the work of each turn.
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    #[command(flatten)]
    pub(crate) common: Common,
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| *scale > 0.0 && *scale <= LARGEST_SCALE);
    scale.ok_or_else(|| format!("give a number above 0 and up to {LARGEST_SCALE}"))
}

/// Something that is measured.
pub(crate) trait Candidate: Clone + Send + Sync + 'static {
    fn name(&self) -> String;

    /// The candidates that it is compared with, by name.
    fn over(&self) -> Vec<String> {
        Vec::new()
    }
}

impl RoundOptions {
    /// The instances of a turn that has this many by default.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(crate) fn scaled(&self, instances: usize) -> usize {
        (instances as f64 * self.scale).max(1.0) as usize
    }

    /// Those of the candidates that are wanted; fails where `--only` names another.
    pub(crate) fn wanted<C: Candidate>(&self, all: impl IntoIterator<Item = C>) -> anyhow::Result<Vec<C>> {
        let all: Vec<C> = all.into_iter().collect();
        let names: Vec<String> = all.iter().map(Candidate::name).collect();
        for only in &self.only {
            let known = names.contains(only);
            anyhow::ensure!(known, "--only: no candidate '{only}'; there are: {}", names.join(", "));
        }
        let wanted = |candidate: &C| self.only.is_empty() || self.only.contains(&candidate.name());
        Ok(all.into_iter().filter(wanted).collect())
    }

    /// Reports these rows as [`Common::report`] does.
    pub(crate) fn report(
        &self,
        measured: &'static str,
        etcd: Option<String>,
        mut conditions: Value,
        rows: Vec<Row>,
    ) -> anyhow::Result<ExitCode> {
        conditions["rounds"] = self.rounds.into();
        self.common.report(measured, etcd, conditions, rows)
    }

    /// Runs all turns, and tells of each on standard error.
    pub(crate) fn run<C: Candidate, T: Future<Output = anyhow::Result<Figures>> + Send + 'static>(
        &self,
        candidates: &[C],
        turn: impl Fn(C) -> T,
    ) -> anyhow::Result<Vec<Row>> {
        anyhow::ensure!(!candidates.is_empty(), "nothing is left to measure");
        let runtime = runtime(1)?;
        let row = |one: &C| Row { name: one.name(), over: one.over(), ..Row::default() };
        let mut rows: Vec<Row> = candidates.iter().map(row).collect();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for round in 0..=self.rounds {
            for &at in &order {
                // Spawned, so that it runs on a worker and not on this thread.
                let figures = runtime.block_on(runtime.spawn(turn(candidates[at].clone())))?;
                let figures = figures.with_context(|| rows[at].name.clone())?;
                if round > 0 {
                    writeln!(std::io::stderr(), "round {round}: {}: {figures}", rows[at].name)?;
                    rows[at].turns.push(figures);
                }
            }
            order.reverse();
        }
        Ok(rows)
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

    #[derive(Clone)]
    struct Named(&'static str);

    impl Candidate for Named {
        fn name(&self) -> String {
            self.0.to_owned()
        }
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
        let wanted = |options: &str| {
            let wanted = parsed(options).unwrap().wanted([Named("unary"), Named("attach/1")]);
            wanted.map(|all| all.iter().map(Candidate::name).collect::<Vec<_>>()).map_err(|it| it.to_string())
        };
        assert_eq!(wanted("--only attach/1"), Ok(vec!["attach/1".to_owned()]));
        assert_eq!(wanted("").map(|all| all.len()), Ok(2));
        let error = "--only: no candidate 'nobody'; there are: unary, attach/1";
        assert_eq!(wanted("--only attach/1,nobody"), Err(error.to_owned()));
    }

    #[test]
    fn candidates_take_turns_forwards_and_backwards_and_the_first_round_does_not_count() {
        let order = std::sync::Mutex::new(Vec::new());
        let rows = parsed("--rounds 2").unwrap().run(&[Named("a"), Named("b")], |candidate| {
            order.lock().unwrap().push(candidate.0);
            std::future::ready(Ok(Figures::default().with("n", 1.0)))
        });
        assert_eq!(*order.lock().unwrap(), ["a", "b", "b", "a", "a", "b"]);
        assert!(rows.unwrap().iter().all(|row| row.turns.len() == 2));
    }
}
