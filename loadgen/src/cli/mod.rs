//! The command line: one file for each subcommand, with its arguments and what it does.
//!
//! `--json` puts `verdict.json`'s content on standard output and nothing else; everything for people goes to
//! standard error; an error is an object `error` in its place. How a command ended is an [`Exit`].

mod campaign;
mod crash;
mod dump;
mod explain;
mod explore;
mod help;
mod judge;
mod live;
mod load;
mod output;
mod perturb;
mod replay;
mod report;
mod run;
mod scenario;
mod simulate;
mod view;

use std::ffi::OsString;
use std::io;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use stickycas_client::Error;
use stickycas_client_program::ErrorRecord;
use stickycas_harness::environment::VERSION;
use stickycas_harness::exit::Exit;
use stickycas_harness::report::json;
use stickycas_program::{Completions, ManPages, asked_to_stop};
use tokio::runtime::Runtime;

use self::output::{show, tell};

/// Runs whole scenarios of StickyCAS, judges them, and says why.
#[derive(Debug, Parser)]
#[command(name = "stickycas-loadgen", version = VERSION)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

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
    /// Make the results of a campaign again from its journal, or one result of those of several load
    /// generators
    Report(report::ReportArgs),
    /// Say what a run folder or the dump of a server's log shows, and why
    Explain(explain::ExplainArgs),
    /// Show a run folder, or the instances of a server, on a page in the browser: phase by phase, as the
    /// paper draws it
    View(Box<view::ViewArgs>),
    /// Make up runs on a page in the browser: the promise of the theorem for them, and their course
    Play(view::PlayArgs),
    /// Feed the history of a run folder, or of a dump's instances, to the simulator's machine, and compare
    Replay(replay::ReplayArgs),
    /// Search small instances exhaustively and say which claims hold
    Explore(explore::ExploreArgs),
    /// Carry out plans on the containers of the demo: kill, pause, restart, cut off, and report the results
    Perturb(perturb::PerturbArgs),
    /// Kill a server under load, again and again, and check that what its clients were told stands
    Crash(crash::CrashArgs),
    /// Be a server: the one that `crash` kills
    #[command(disable_help_flag = true, hide = true)]
    Server(PassedArgs),
    /// Be a client: play one process, or work on instances by hand (client --help)
    #[command(disable_help_flag = true)]
    Client(PassedArgs),
    /// Write completions for a shell to standard output
    Completions(Completions),
    /// Write man pages to a folder
    Man(ManPages),
}

/// The output of `--json` where there is no result; the client's errors have the same form.
fn show_error(exit: Exit, message: &str) {
    let kind = if exit == Exit::Usage { "usage" } else { "not_possible" };
    let error = ErrorRecord { kind: kind.to_owned(), reason: None, message: message.to_owned() };
    // The error goes to standard error as well.
    let _ = show(&json::text(&serde_json::json!({ "error": error })));
}

/// The end of a command that could not be carried out.
fn fail(exit: Exit, message: &str, json: bool) -> Exit {
    if json {
        show_error(exit, message);
    }
    tell(&format!("error: {message}"));
    exit
}

/// The command line.
fn command() -> clap::Command {
    help::with_help(Cli::command())
}

/// Runs the program with these arguments, the first being its name.
pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let parsed = command().try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            if json && exit == Exit::Usage {
                show_error(exit, error.to_string().trim());
            }
            return if error.print().is_ok() { exit } else { Exit::NotDone }.into();
        }
    };
    if let Err(unknown) = stickycas_program::check_variables(stickycas_server::cli::removed_variable) {
        return fail(Exit::Usage, &unknown.to_string(), json).into();
    }
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Campaign(args) => campaign::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::View(args) => view::run(&args),
        Command::Play(args) => view::run_play(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Explore(args) => explore::run(&args),
        Command::Perturb(args) => perturb::run(&args),
        Command::Crash(args) => crash::run(&args),
        Command::Server(args) => return crash::run_server(args),
        Command::Client(args) => match small_runtime() {
            Ok(runtime) => return run_client(args, &runtime),
            Err(error) => Err(error),
        },
        Command::Completions(completions) => {
            completions.write(command(), &mut io::stdout()).map(|()| Exit::Done).map_err(Into::into)
        }
        Command::Man(pages) => pages.write(command()).map(|()| Exit::Done).map_err(Into::into),
    };
    done.unwrap_or_else(|error| fail(Exit::of_error(&error), &format!("{error:#}"), json)).into()
}

#[cfg(test)]
mod tests {
    use stickycas_harness::judge::REPORT_GRACE;

    use super::command;

    #[test]
    fn every_variable_stands_in_the_list_of_all() {
        let variables = stickycas_program::variables_of(&command());
        assert!(variables.iter().any(|name| name == "STICKYCAS_PLAN"), "{variables:?}");
        for name in variables {
            assert!(stickycas_program::is_variable(&name), "{name}");
        }
    }

    #[test]
    fn judge_help_tells_how_long_a_report_is_waited_for() {
        let mut cli = command();
        let judge = cli.find_subcommand_mut("judge").unwrap();
        let help = judge.render_long_help().to_string();
        let words: Vec<&str> = help.split_whitespace().collect();
        let wait = format!("say nothing for {} s)", REPORT_GRACE.as_secs());
        assert!(words.join(" ").contains(&wait), "{help}");
    }
}

/// The arguments of a program within this one, passed on as they are.
#[derive(Debug, Args)]
struct PassedArgs {
    /// Its own arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// The client's own command line within this program, so that one program plays every part.
fn run_client(args: PassedArgs, runtime: &Runtime) -> ExitCode {
    let arguments = std::iter::once(OsString::from("stickycas-loadgen client")).chain(args.arguments);
    let (mut out, mut err) = (io::stdout(), io::stderr());
    runtime.block_on(stickycas_client_program::run_from(arguments, &mut out, &mut err)).into()
}

/// As many jobs as there are processors.
fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn runtime() -> anyhow::Result<Runtime> {
    Runtime::new().context("cannot start the runtime")
}

/// The error of a server that cannot be reached, with what to do where nobody listens. `flags`: those that
/// the server needs besides.
fn with_cure(error: anyhow::Error, coordinator: &str, flags: &str) -> anyhow::Error {
    let Some(Error::GaveUp { last, sent: false, .. }) = error.downcast_ref() else { return error };
    let Error::Unreachable { server, cause, .. } = &**last else { return error };
    let why = format!(
        "{cause}; to start a server: stickycas-server serve --in-memory --insecure-principals --coordinator \
         {coordinator}{flags}; without --server one is started here"
    );
    Error::WrongServer { server: server.clone(), why }.into()
}

/// A runtime of one thread.
fn small_runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}

/// Is set as soon as this program is asked to end.
fn stop_when_asked() -> anyhow::Result<Arc<AtomicBool>> {
    let runtime = small_runtime()?;
    // From here on, and not only once the thread runs, a signal is heard.
    let asked = {
        let _inside = runtime.enter();
        asked_to_stop()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stop);
    std::thread::spawn(move || {
        runtime.block_on(asked);
        heard.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
