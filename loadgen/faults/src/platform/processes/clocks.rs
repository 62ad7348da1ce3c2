//! Programs whose clocks are ahead of this machine's, for a server that is started after a long outage.
//!
//! The monotonic clock is set ahead in a time namespace of the kernel (`unshare`, Linux 6.2, root): so
//! sleeping and waiting stay right, which they would not if only the program's view of that clock was
//! changed. The clock of the day is no part of time namespaces: `libfaketime` sets that one ahead, and leaves
//! the monotonic one alone.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use tokio::process::Command;

/// The library by which the clock of the day is set ahead, where Debian has it on any processor.
const LIBRARY: &str = "/usr/$LIB/faketime/libfaketimeMT.so.1";
/// How long it may take to look at a clock.
const LOOKING: Duration = Duration::from_secs(60);

/// How far the clocks of a program are ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockOffset(Duration);

impl ClockOffset {
    /// Whole seconds.
    pub(crate) const fn new(ahead: Duration) -> Self {
        Self(Duration::from_secs(ahead.as_secs()))
    }

    /// The command that starts this program with these clocks, by one process that becomes the program.
    pub(crate) fn command(self, program: &Path) -> Command {
        if self.0.is_zero() {
            return Command::new(program);
        }
        let seconds = self.0.as_secs().to_string();
        let mut command = Command::new("unshare");
        command.args(["--time", "--monotonic", &seconds, "--boottime", &seconds, "--", "env"]);
        command.args([&format!("LD_PRELOAD={LIBRARY}"), "FAKETIME_DONT_FAKE_MONOTONIC=1"]);
        command.arg(format!("FAKETIME=+{seconds}s")).arg(program);
        command
    }

    /// Whether both clocks of a program can be set ahead here.
    pub(crate) async fn check(self) -> anyhow::Result<()> {
        let ahead = self.ahead().await.and_then(|clocks| {
            for (clock, ahead) in clocks {
                ensure!(ahead.abs_diff(self.0) < LOOKING, "the {clock} is ahead by {ahead:?}");
            }
            Ok(())
        });
        ahead.with_context(|| {
            let wanted = humantime::format_duration(self.0);
            format!(
                "the clocks of a program cannot be set ahead by {wanted}: this needs root, Linux 6.2, unshare, and \
                 libfaketime (Debian: apt-get install libfaketime)"
            )
        })
    }

    /// How far the clocks of a program that is started like this are really ahead.
    async fn ahead(self) -> anyhow::Result<[(&'static str, Duration); 2]> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let up = seconds(&std::fs::read_to_string("/proc/uptime").context("/proc/uptime")?)?;
        let day = seconds(&self.output("date", "+%s").await?)?;
        let boottime = seconds(&self.output("cat", "/proc/uptime").await?)?;
        Ok([("clock of the day", day.saturating_sub(now)), ("monotonic clock", boottime.saturating_sub(up))])
    }

    async fn output(self, program: &str, argument: &str) -> anyhow::Result<String> {
        let mut command = self.command(Path::new(program));
        let output = command.arg(argument).stdin(Stdio::null()).output().await.context("unshare")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The number at the beginning, in seconds.
fn seconds(text: &str) -> anyhow::Result<Duration> {
    let number = text.split_whitespace().next().unwrap_or_default();
    let number: f64 = number.parse().with_context(|| format!("{text:?} is no number of seconds"))?;
    Ok(Duration::try_from_secs_f64(number)?)
}
