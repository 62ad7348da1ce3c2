//! The command line: one file for each subcommand, with its arguments and what it does.
//!
//! `--json` puts `verdict.json`'s content on standard output and nothing else; everything for people goes to standard
//! error. The exit code is 0 for `valid` and `outside`, 1 for `violation`, 2 for `unknown`, 3 if the run could
//! not be set up or carried through, which includes a wrong command line. `replay` exits with 0 if everything came
//! out the same and with 1 if not; `explain` with 0 whatever the verdict; both with 3 if they cannot read the folder.
//! `perturb` exits with 0 if everything was as its plans have it, with 1 if something was not, with 3 if a plan could
//! not be carried out.

mod campaign;
mod client;
mod explain;
mod explore;
mod judge;
mod load;
mod output;
mod perturb;
mod replay;
mod report;
mod run;
mod scenario;
mod simulate;
mod stop;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stickycas_harness::environment::VERSION;
use stickycas_harness::record::HARNESS_FAILED;

use self::output::tell;

/// Runs whole scenarios of StickyCAS, judges them, and says why.
#[derive(Debug, Parser)]
#[command(name = "stickycas-loadgen", version = VERSION, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 the verdict is valid or outside, 1 violation, 2 unknown, 3 the run could not be made.
With --expect: 0 if the verdict is the expected one, else 1. Of several instances (judge) the worst counts.
load: 4 if nothing is wrong but a condition failed it.
replay: 0 the folder follows from its inputs, 1 it does not, 3 it cannot be read. explain: 0, or 3.
perturb: 0 everything was as its plans have it, 1 something was not, 3 a plan could not be carried out.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario over the network and judge it
    Run(run::RunArgs),
    /// Judge a scenario whose processes are started by others, one instance after another
    #[command(long_about = judge::long_about())]
    Judge(judge::JudgeArgs),
    /// Run a scenario in the simulator and judge it, once or with many seeds
    Simulate(simulate::SimulateArgs),
    /// Put load on a server: many instances at once, timed and judged
    Load(Box<load::LoadArgs>),
    /// Run sweeps over the axes of a scenario and count the results
    Campaign(campaign::CampaignArgs),
    /// Make the results of a campaign again from its journal, or one result of those of several load generators
    Report(report::ReportArgs),
    /// Say what a run folder shows, and why
    Explain(explain::ExplainArgs),
    /// Feed the history of a run folder to the simulator's machine, judge it again, and compare
    Replay(replay::ReplayArgs),
    /// Search small instances exhaustively and say which claims hold
    Explore(explore::ExploreArgs),
    /// Carry out plans on the containers of the demo: kill, pause, restart, cut off, and report the results
    Perturb(perturb::PerturbArgs),
    /// Be a client: play one process, or work on instances by hand (client --help)
    #[command(disable_help_flag = true)]
    Client(client::ClientArgs),
}

/// Runs the program with these arguments, the first being its name.
pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap would exit with 2, which here means `unknown`.
            let code = if error.use_stderr() { HARNESS_FAILED } else { 0 };
            let printed = error.print();
            return ExitCode::from(if printed.is_ok() { code } else { HARNESS_FAILED });
        }
    };
    let done = match cli.command {
        Command::Run(args) => run::run(&args).map(ExitCode::from),
        Command::Judge(args) => judge::run(&args).map(ExitCode::from),
        Command::Simulate(args) => simulate::run(&args).map(ExitCode::from),
        Command::Load(args) => load::run(&args).map(ExitCode::from),
        Command::Campaign(args) => campaign::run(&args).map(ExitCode::from),
        Command::Report(args) => report::run(&args).map(ExitCode::from),
        Command::Explain(args) => explain::run(&args).map(ExitCode::from),
        Command::Replay(args) => replay::run(&args).map(ExitCode::from),
        Command::Explore(args) => explore::run(&args).map(ExitCode::from),
        Command::Perturb(args) => perturb::run(&args).map(ExitCode::from),
        Command::Client(args) => client::run(args),
    };
    done.unwrap_or_else(|error| {
        tell(&format!("stickycas-loadgen: {error:#}"));
        HARNESS_FAILED.into()
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use stickycas_harness::judge::REPORT_GRACE;

    use super::Cli;

    #[test]
    fn judge_help_tells_how_long_a_report_is_waited_for() {
        let mut cli = Cli::command();
        let judge = cli.find_subcommand_mut("judge").unwrap();
        let help = judge.render_long_help().to_string();
        let words: Vec<&str> = help.split_whitespace().collect();
        let wait = format!("say nothing for {} s)", REPORT_GRACE.as_secs());
        assert!(words.join(" ").contains(&wait), "{help}");
    }
}
