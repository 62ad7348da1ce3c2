//! The command line of the server.

mod config;
mod credentials;
mod health;
mod serve;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use stickycas_program::{Completions, ManPages, install_signals};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::config::ConfigCommand;
use self::credentials::CredentialsCommand;
use self::health::Health;
use crate::auth::CredentialsError;
use crate::data::{self, DataCommand};
use crate::settings::{self, Data, Setting, SettingsArgs, SettingsError};

/// Exit code: flags are wrong.
const USAGE: u8 = 2;
/// Exit code of a server: its log could not be written any more. Every answer that it gave follows from the
/// log, which a restart reads.
const LOG_FAILED: u8 = 5;

/// Examples for the helps.
pub(crate) const EXAMPLES: &[&str] = &[
    "stickycas-server serve --insecure-principals --coordinator alice",
    "stickycas-server serve --credentials creds/server --coordinator alice --data /var/lib/stickycas",
    "stickycas-server health",
    "stickycas-server health --server https://localhost:7420 --credentials creds/clients/alice",
    "stickycas-server data check --data /var/lib/stickycas",
    "stickycas-server data check --backup log.backup",
    "stickycas-server data dump --instance demo --out demo.dump",
    "stickycas-server data dump --backup log.backup --out all.dump",
    "stickycas-server data compact",
    "stickycas-server data compact --data /var/lib/stickycas",
    "stickycas-server data backup --out log.backup",
    "stickycas-server data backup --data /var/lib/stickycas --out log.backup",
    "stickycas-server data restore --from log.backup",
    "stickycas-server data restore --from log.backup --data /var/lib/stickycas",
    "stickycas-server credentials --out creds --principal alice --principal ann",
    "stickycas-server credentials --out creds --principals 16 --host cas.example.org --tokens",
    "stickycas-server config check --config server.toml",
    "stickycas-server config check --credentials creds/server",
    "stickycas-server config show --config server.toml",
    "stickycas-server config show --effective",
    "stickycas-server config reference",
    "stickycas-server descriptor",
    "stickycas-server completions bash",
    "stickycas-server completions zsh",
    "stickycas-server man man1",
    "stickycas-server man /usr/local/share/man/man1",
];

/// Flags are wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// The StickyCAS server: a write-once, totally ordered list guarded by a warp scheduler, over gRPC.
#[derive(Debug, Parser)]
#[command(name = "stickycas-server", version = stickycas_program::VERSION)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or SIGINT, then drain; a second signal ends it at once.
    #[command(after_help = SERVE_HELP)]
    Serve(SettingsArgs),
    /// Ask a server whether it serves; for probes.
    ///
    /// It has failed if the server answers that it does not serve.
    Health(Health),
    /// Check, dump, compact, back up or restore the log of a server.
    #[command(subcommand)]
    Data(DataCommand),
    /// Make certificates and keys for development and demos: a CA, a server, and principals.
    Credentials(CredentialsCommand),
    /// Check and show settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write the compiled .proto files to standard output: a google.protobuf.FileDescriptorSet with all that
    /// it imports.
    ///
    /// For clients and tools that read messages without generated code, as reflection does from a server.
    Descriptor,
    /// Write completions for a shell to standard output.
    Completions(Completions),
    /// Write man pages to a folder.
    Man(ManPages),
}

/// The help of `serve` behind its flags.
const SERVE_HELP: &str = "\
Each flag is a key of the file and a variable too: --drain is `drain` and STICKYCAS_DRAIN. `config reference` says more \
of each. It has failed if connections had to be cut off. With 5 it ends if its log cannot be written any more: what it has told is \
in the log, which the next start reads.";

/// The command line, with its examples.
#[must_use]
pub fn command_line() -> clap::Command {
    stickycas_program::with_examples(Cli::command(), EXAMPLES)
}

/// The same, whose helps have all settings but the limits, or only these.
pub(crate) fn help_of_settings(command: clap::Command, limits: bool) -> clap::Command {
    let shown = move |arg: Arg| {
        let is_limit = arg.get_help_heading() == Some(settings::LIMITS_HEADING);
        let hides = arg.is_hide_set() || is_limit != limits;
        arg.hide(hides)
    };
    let command = command.mut_subcommand("serve", |serve| serve.mut_args(shown));
    command.mut_subcommand("config", |config| {
        config
            .mut_subcommand("check", |check| check.mut_args(shown))
            .mut_subcommand("show", |show| show.mut_args(shown))
    })
}

/// Runs the program with these arguments, the first being its name.
pub fn run_from(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // A server has its handlers before anything else; other commands end by signals as programs do.
    let serves = arguments.get(1).is_some_and(|command| command == "serve");
    let handlers = install_signals(|| serves.then(install_handlers).transpose());
    let limits = arguments.iter().any(|argument| argument == "--help-limits");
    let parsed = help_of_settings(command_line(), limits).try_get_matches_from(arguments);
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    let done = handlers.context("cannot handle signals").and_then(|handlers| match parsed {
        Ok(cli) => cli.perform(handlers),
        Err(error) if let Some(removed) = removed_flag(&error) => Err(UsageError(removed).into()),
        Err(error) => {
            let _ = error.print();
            Ok(if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS })
        }
    });
    done.unwrap_or_else(|error| {
        print_error(format!("error: {error:#}"));
        let files = error.downcast_ref().is_some_and(CredentialsError::is_final);
        let is_usage = files || error.is::<UsageError>() || error.is::<SettingsError>();
        if is_usage { USAGE } else { data::exit_code(&error) }.into()
    })
}

/// The message about a flag that no command has, if it was that of a setting once.
fn removed_flag(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    Some(format!("{flag} {}", settings::removed(name, Setting::flag)?))
}

/// The message about an environment variable that no program has, if it was that of a setting once.
#[must_use]
pub fn removed_variable(variable: &str) -> Option<String> {
    settings::removed(variable, Setting::variable)
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Two futures: one completes with the first signal, one with the second.
    fn split(mut self) -> (impl Future<Output = ()>, impl Future<Output = ()>) {
        let (first, first_received) = tokio::sync::oneshot::channel();
        let (second, second_received) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            self.next().await;
            tracing::info!("told to stop: draining; a second signal ends it at once");
            let _ = first.send(());
            self.next().await;
            let _ = second.send(());
        });
        let wait = |signal: tokio::sync::oneshot::Receiver<()>| async { signal.await.unwrap_or_default() };
        (wait(first_received), wait(second_received))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The handlers of a server: of the signals that end it, and of SIGHUP, by which it reads its credentials
/// again.
type Handlers = (Signals, Signal);

fn install_handlers() -> io::Result<Handlers> {
    Ok((Signals::install()?, signal(SignalKind::hangup())?))
}

impl Cli {
    /// Runs the command. `handlers`: those of a server, if they are installed.
    fn perform(self, handlers: Option<Handlers>) -> anyhow::Result<ExitCode> {
        let variables = stickycas_program::check_variables(removed_variable);
        variables.map_err(|unknown| UsageError(unknown.to_string()))?;
        if matches!(self.command, Command::Serve(_) | Command::Data(_)) {
            // Only the owner may read files of the log, also in a folder that is open to others.
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        }
        match self.command {
            Command::Serve(args) => args.load().map_err(Into::into).and_then(|effective| {
                effective.check_files(false)?;
                let handlers = handlers.map_or_else(|| install_signals(install_handlers), Ok)?;
                let runtime = runtime(effective.settings.workers)?;
                let served = runtime.block_on(serve::serve(effective, handlers));
                // A log that is being read, or a disk that does not answer, is not waited for.
                runtime.shutdown_background();
                served
            }),
            Command::Health(health) => runtime(Some(1)).and_then(|runtime| runtime.block_on(health.run())),
            Command::Data(command) => {
                let usual = Data::Auto.folder().ok().flatten();
                runtime(None).and_then(|runtime| runtime.block_on(command.run(usual)))
            }
            Command::Credentials(credentials) => {
                runtime(Some(1)).and_then(|runtime| runtime.block_on(credentials.run()))
            }
            Command::Config(command) => command.run(),
            Command::Descriptor => {
                io::stdout().write_all(stickycas_proto::FILE_DESCRIPTOR_SET).context("standard output")?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Completions(completions) => {
                let written = completions.write(command_line(), &mut io::stdout());
                written.map(|()| ExitCode::SUCCESS).map_err(Into::into)
            }
            Command::Man(pages) => {
                pages.write(command_line()).map(|()| ExitCode::SUCCESS).map_err(Into::into)
            }
        }
    }
}

/// A runtime of this number of threads, or of one for each processor.
fn runtime(workers: Option<u16>) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers.into());
    }
    builder.enable_all().build().context("cannot start the threads that serve")
}

/// The time that the end of the program waits for its last output to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Prints an error. If nobody reads standard error, the program ends without.
fn print_error(message: String) {
    let (done, written) = mpsc::channel();
    std::thread::spawn(move || {
        // Without standard error there is nowhere to write.
        let _ = writeln!(io::stderr(), "{message}");
        let _ = done.send(());
    });
    let _ = written.recv_timeout(LAST_WORDS);
}
