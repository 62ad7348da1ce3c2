//! The command line of the client, callable from other programs: [`run_from`] takes raw arguments, [`run`]
//! those that another program has parsed with its own. Output goes to writers, and nothing exits the program.
//!
//! One file per group of subcommands. Each turns its raw flags into checked settings before anything is sent,
//! so bad usage (exit code 2) never depends on the server.

mod access;
mod cluster;
mod create;
mod global_args;
mod instances;
mod output;
mod process;
mod propose;
mod record;
mod render;
mod series;
mod waiting;

use std::ffi::OsString;
use std::io::Write;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use stickycas_program::{Completions, ManPages};

pub use self::global_args::DEFAULT_SERVER;
use self::global_args::{GlobalArgs, Patience};
pub use self::output::Exit;
use self::output::{Failure, Output};
pub use self::record::{ErrorRecord, PlayRecord};

/// Examples for the helps.
const EXAMPLES: &[&str] = &[
    "stickycas-client propose --instance demo --value tea --principal ann",
    "stickycas-client propose --instance demo --strategy silent --principal eve",
    "stickycas-client create --name demo --roster ann,bob,eve --principal alice",
    "stickycas-client create -n 6 -p 2 --patience 5s --credentials creds/clients/alice --server https://localhost:7420",
    "stickycas-client close demo --principal alice",
    "stickycas-client close 0123456789abcdef0123456789abcdef --principal alice",
    "stickycas-client append demo tea --principal ann",
    "stickycas-client append demo tea --number 1 --no-wait --principal ann",
    "stickycas-client read demo --principal ann",
    "stickycas-client read demo --start 2 --json --principal ann",
    "stickycas-client decide demo tea --principal ann",
    "stickycas-client decide demo 0x746561 --principal ann",
    "stickycas-client get demo --principal ann",
    "stickycas-client get demo --json --credentials creds/clients/ann --server https://localhost:7420",
    "stickycas-client list --principal alice",
    "stickycas-client list --json --principal alice",
    "stickycas-client watch demo --principal alice",
    "stickycas-client watch demo --snapshot --json --principal alice",
    "stickycas-client counts --principal alice",
    "stickycas-client counts ann eve --principal alice",
    "stickycas-client cluster --principal alice",
    "stickycas-client cluster --watch --principal alice --server http://cas-1:7420,http://cas-2:7420",
    "stickycas-client log create orders --roster ann,bob,eve --principal alice",
    "stickycas-client log append orders tea --principal ann",
    "stickycas-client elect support captain bob --principal ann",
    "stickycas-client elect leader captain --follow --principal ann",
    "stickycas-client completions bash",
    "stickycas-client completions zsh",
    "stickycas-client man man1",
    "stickycas-client man /usr/local/share/man/man1",
];

/// Play one process of a StickyCAS instance, or work on instances by hand.
#[derive(Debug, Parser)]
#[command(name = "stickycas-client", version = stickycas_program::VERSION)]
pub struct Cli {
    #[command(flatten)]
    common: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Call(CallCommand),
    /// Write completions for a shell to standard output.
    Completions(Completions),
    /// Write man pages to a folder.
    Man(ManPages),
}

/// The subcommands that call the server.
#[derive(Debug, Subcommand)]
enum CallCommand {
    /// Play one process to its decision.
    Propose(propose::Propose),
    /// Create an instance (needs the coordinator role).
    Create(Box<create::Create>),
    /// Close an instance for good (its creator only).
    Close(instances::InstanceArg),
    /// Append a value in one's next phase.
    Append(access::Append),
    /// Read some entries in one's next phase.
    Read(access::Read),
    /// Report a decision, and thereby leave.
    Decide(access::Decide),
    /// Tell how an instance stands, and why it is stuck.
    Get(instances::InstanceArg),
    /// List the instances that one may look at, the newest last: those that have ended as long as they are
    /// kept.
    List,
    /// Follow what happens at an instance, to its end.
    Watch(instances::Watch),
    /// Tell what the server has counted of its callers' conduct (coordinators and observers).
    Counts(instances::Counts),
    /// List the servers of the cluster, and which shards each of them owns.
    Cluster(cluster::Cluster),
    /// An ordered log, of which some members may be Byzantine.
    #[command(subcommand)]
    Log(series::Log),
    /// Leaders, epoch by epoch, of members of whom some may be Byzantine.
    #[command(subcommand)]
    Elect(series::Elect),
    /// Says who prints links to the live page now.
    #[command(hide = true)]
    PageLink {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _rest: Vec<String>,
    },
}

impl CallCommand {
    /// How long to wait for a server that was never reached.
    fn patience(&self) -> Patience {
        match self {
            Self::Propose(propose) if propose.is_repeated() => Patience::Endless,
            Self::Cluster(cluster) if cluster.is_repeated() => Patience::Endless,
            Self::Propose(_) | Self::Log(_) | Self::Elect(_) => Patience::Long,
            _ => Patience::Short,
        }
    }
}

/// The command line, with its examples.
fn command_line() -> clap::Command {
    stickycas_program::with_examples(Cli::command(), EXAMPLES)
}

/// Runs the command line, program name first. Prints to `out`, and what went wrong to `err`.
pub async fn run_from<I>(args: I, out: &mut (dyn Write + Send), err: &mut (dyn Write + Send)) -> Exit
where
    I: IntoIterator<Item: Into<OsString> + Clone>,
{
    let parsed =
        command_line().try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => {
            if let Err(unknown) = stickycas_program::check_variables(|_| None) {
                let _ = writeln!(err, "error: {unknown}");
                return Exit::Usage;
            }
            trace_to_stderr(cli.common.verbose);
            run(cli, out, err).await
        }
        Err(usage) if usage.use_stderr() => {
            let _ = write!(err, "{}", usage.render());
            Exit::Usage
        }
        // --help and --version.
        Err(wanted) => {
            let _ = writeln!(out, "{}", wanted.render().to_string().trim_end());
            Exit::Done
        }
    }
}

/// Runs a parsed command line. Prints to `out`, and what went wrong to `err`. Sets up no tracing.
pub async fn run(cli: Cli, out: &mut (dyn Write + Send), err: &mut (dyn Write + Send)) -> Exit {
    let Cli { common, command } = cli;
    let mut output = Output::new(out, common.json);
    let performed = match command {
        Command::Call(command) => perform(&common, command, &mut output).await,
        Command::Completions(completions) => {
            let written = completions.write(command_line(), output.writer());
            written.map(|()| Exit::Done).map_err(Failure::Output)
        }
        Command::Man(pages) => pages.write(command_line()).map(|()| Exit::Done).map_err(Failure::Output),
    };
    match performed {
        Ok(exit) => exit,
        // The reader of the output has gone, as `head` does: not a failure.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
        Err(failure) => {
            // If stderr is gone, there is no reader for the error.
            let _ = writeln!(err, "error: {failure}{}", failure.advice());
            match failure {
                Failure::Client(error) => Exit::of(&error),
                Failure::Unanswered(_) => Exit::Unreachable,
                Failure::Series(_) | Failure::Input(_) | Failure::Output(_) => Exit::Refused,
            }
        }
    }
}

async fn perform(
    common: &GlobalArgs,
    command: CallCommand,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let client = common.cluster_client(command.patience())?;
    match command {
        CallCommand::Propose(propose) => Box::pin(propose.run(common, client, output)).await,
        CallCommand::Create(create) => create.run(&client, output).await,
        CallCommand::Close(of) => instances::close(of, &client, output).await,
        CallCommand::Append(append) => append.run(&client, output).await,
        CallCommand::Read(read) => read.run(&client, output).await,
        CallCommand::Decide(decide) => decide.run(&client, output).await,
        CallCommand::Get(of) => instances::get(of, &client, output).await,
        CallCommand::List => instances::list(&client, output).await,
        CallCommand::Watch(watch) => watch.run(&client, output).await,
        CallCommand::Counts(counts) => counts.run(&client, output).await,
        CallCommand::Cluster(cluster) => cluster.run(&client, output).await,
        CallCommand::Log(command) => Box::pin(command.run(&client, output)).await,
        CallCommand::Elect(command) => Box::pin(command.run(&client, output)).await,
        CallCommand::PageLink { .. } => {
            let why =
                "the live page and its links come from `stickycas-loadgen view --server URL`".to_owned();
            Err(stickycas_client::Error::InvalidArgument(why).into())
        }
    }
}

/// What is waited for, in plain lines; the whole log, if asked for more. A program that has its own
/// subscriber keeps it.
fn trace_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_ansi(stickycas_program::log_has_colours())
        .with_writer(std::io::stderr)
        .with_max_level(level);
    let _ = match verbose {
        0 => log.without_time().with_level(false).with_target(false).try_init(),
        _ => log.try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run_with(args: &[&str]) -> (Exit, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = std::iter::once("stickycas-client").chain(args.iter().copied());
        let exit = run_from(args, &mut out, &mut err).await;
        (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_variable_stands_in_the_list_of_all() {
        let variables = stickycas_program::variables_of(&Cli::command());
        assert!(variables.iter().any(|name| name == "STICKYCAS_PRINCIPAL"), "{variables:?}");
        for name in variables {
            assert!(stickycas_program::is_variable(&name), "{name}");
        }
    }

    #[tokio::test]
    async fn help_documents_the_exit_codes_and_is_no_failure() {
        let (exit, out, err) = run_with(&["--help"]).await;
        assert_eq!(exit, Exit::Done);
        assert!(out.contains("Exit codes, the same") && err.is_empty());
    }

    #[test]
    fn every_command_has_two_examples_that_can_be_typed() {
        for line in EXAMPLES {
            let parsed = command_line().try_get_matches_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for command in command_line().get_subcommands().filter(|command| !command.is_hide_set()) {
            let start = format!("stickycas-client {} ", command.get_name());
            assert_eq!(EXAMPLES.iter().filter(|line| line.starts_with(&start)).count(), 2, "{start}");
        }
    }

    #[tokio::test]
    async fn help_lists_every_strategy_in_a_line_of_its_own() {
        let (_, out, _) = run_with(&["propose", "--help"]).await;
        for name in stickycas_model::byzantine::Strategy::ALL_NAMES {
            let described = stickycas_model::byzantine::Strategy::describe(name).unwrap();
            assert!(out.lines().any(|line| line.trim() == described), "{described} is not in:\n{out}");
        }
    }

    #[tokio::test]
    async fn bad_usage_is_told_without_asking_a_server() {
        for args in [
            &["frobnicate"][..],
            &["list"],
            &["list", "--principal", "p1", "--server", "nowhere"],
            &["propose", "--principal", "p1", "--instance", "demo"],
            &["propose", "--principal", "p1", "--instance", "demo", "--value", ""],
            &["propose", "--principal", "p1", "--instance", "demo", "--strategy", "frobnicate"],
            &["propose", "--principal", "p1", "--instance", "demo", "--attack", "frobnicate"],
            &["propose", "--principal", "p1", "--instance", "demo", "--attack", "flood", "--value", "v"],
            &[
                "propose",
                "--principal",
                "p1",
                "--instance",
                "demo",
                "--attack",
                "flood",
                "--strategy",
                "silent",
            ],
            &["get", "--principal", "p1", "no/name"],
            &["get", "--principal", "p1", "demo", "--keep-alive", "0s"],
            &[
                "propose",
                "--principal",
                "p1",
                "--instance",
                "0123456789abcdef0123456789abcdef",
                "--value",
                "v",
                "--again",
            ],
            &["propose", "--principal", "p1", "--instance", "demo", "--value", "v", "--report-to", "nowhere"],
        ] {
            let (exit, out, err) = run_with(args).await;
            assert_eq!(exit, Exit::Usage, "{args:?}: {err}");
            assert!(out.is_empty() && !err.is_empty(), "{args:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_given_up() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = format!("http://127.0.0.1:{port}");
        let (exit, _, err) =
            run_with(&["list", "--principal", "p1", "--server", &server, "--give-up-after", "0s"]).await;
        assert_eq!(exit, Exit::Refused, "{err}");
        let told = format!("no answer from {server}: Connection refused; is there a server?");
        assert!(err.starts_with("error: gave up after 1 try in ") && err.contains(&told), "{err}");
    }
}
