//! `log` and `elect`: an ordered log and the election of leaders, over series of instances.

use std::io::BufRead as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::{Args, Subcommand};
use stickycas_client::Client;
use stickycas_log::{Delivered, Elected, Election, LogError, Member, Place, Reader, Series, SeriesSpec};
use stickycas_model::printable::printable;
use stickycas_model::types::Value;
use stickycas_program::asked_to_stop;
use tokio::sync::{mpsc, watch};

use super::output::{Exit, Failure, Output};
use super::process::parse_value;

#[derive(Debug, Subcommand)]
pub(super) enum Log {
    /// Be the coordinator of a log, which creates its slots ahead, until told to stop.
    Create(Create),
    /// Take part in a log, and append values one after the other. Every slot waits for members that are away.
    Append(Append),
    /// Read the values of a log.
    Read(Read),
}

#[derive(Debug, Subcommand)]
pub(super) enum Elect {
    /// Be the coordinator of an election, which creates the next epoch ahead, until told to stop.
    Create(Create),
    /// Support a member as the leader of an epoch, and wait for the outcome.
    Support(Support),
    /// Tell the leader of the current epoch.
    Leader(Leader),
}

#[derive(Debug, Args)]
pub(super) struct Create {
    #[command(flatten)]
    of: SeriesArg,
    /// The principals of members 1, 2, 3, ...
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', required = true)]
    roster: Vec<String>,
    /// p, the number of members in a warp.
    #[arg(long, short = 'p', value_name = "P", default_value_t = 1)]
    warp_size: u32,
    /// The time for which an instance is held up by a silent member.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = stickycas_program::parse_duration)]
    patience: Duration,
    /// How long an instance waits, from the first join, for all to join.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = stickycas_program::parse_duration)]
    join_timeout: Duration,
}

/// The series that a command is for.
#[derive(Debug, Args)]
struct SeriesArg {
    /// Its name; its instances are NAME.1, NAME.2, ...
    #[arg(value_name = "NAME")]
    series: String,
}

#[derive(Debug, Args)]
pub(super) struct Append {
    #[command(flatten)]
    of: SeriesArg,
    /// The values: text, or 0x and hex digits. Without any, the lines of standard input as they are, to its
    /// end.
    #[arg(value_name = "V", value_parser = parse_value)]
    values: Vec<Value>,
}

#[derive(Debug, Args)]
pub(super) struct Read {
    #[command(flatten)]
    of: SeriesArg,
    /// The first slot wanted.
    #[arg(long, value_name = "SLOT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    from: u64,
    /// Go on with what comes, until told to stop.
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Args)]
pub(super) struct Support {
    #[command(flatten)]
    of: SeriesArg,
    /// The principal of the member.
    #[arg(value_name = "MEMBER")]
    candidate: String,
    /// The epoch. Without it, the one after the current one.
    #[arg(long, value_name = "EPOCH", value_parser = clap::value_parser!(u64).range(1..))]
    epoch: Option<u64>,
    /// Wait until another member has begun the epoch.
    #[arg(long)]
    when_begun: bool,
}

#[derive(Debug, Args)]
pub(super) struct Leader {
    #[command(flatten)]
    of: SeriesArg,
    /// Of this epoch, once it has an outcome, and not of the current one.
    #[arg(long, value_name = "EPOCH", value_parser = clap::value_parser!(u64).range(1..))]
    epoch: Option<u64>,
    /// Tell those of later epochs too, until told to stop.
    #[arg(long)]
    follow: bool,
}

impl Log {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        match self {
            Self::Create(create) => create.run(client, stickycas_log::MAX_WINDOW / 2).await,
            Self::Append(append) => append.run(client, output).await,
            Self::Read(read) => until_stopped(read.run(client, output)).await,
        }
    }
}

impl Elect {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        match self {
            Self::Create(create) => create.run(client, 1).await,
            Self::Support(support) => until_stopped(support.run(client, output)).await,
            Self::Leader(leader) => until_stopped(leader.run(client, output)).await,
        }
    }
}

/// To be told to stop is no failure.
async fn until_stopped(running: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    tokio::select! {
        ended = running => ended,
        () = asked_to_stop() => Ok(Exit::Done),
    }
}

impl SeriesArg {
    fn of(&self, client: &Client) -> Result<Series, Failure> {
        Ok(Series::new(client, &self.series)?)
    }
}

impl Create {
    async fn run(self, client: &Client, window: u64) -> Result<Exit, Failure> {
        let policy = client.retry_policy().without_end();
        let series = self.of.of(&client.clone().with_retry(policy))?;
        let Self { roster, warp_size, patience, join_timeout, .. } = self;
        let spec = SeriesSpec { warp_size, window, patience, join_timeout, ..SeriesSpec::new(roster) };
        until_stopped(async { match series.coordinate(&spec).await? {} }).await
    }
}

impl Append {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let (member, driver) = Member::join(&self.of.of(client)?).await?;
        let mut driver = std::pin::pin!(driver.run());
        let unanswered = AtomicBool::new(false);
        let (stop, stopped) = watch::channel(false);
        let acting = async {
            tokio::select! {
                appended = self.append(member, &unanswered, stopped, output) => appended?,
                // It ends before the member does only because of an error.
                ended = &mut driver => return Ok(ended),
            }
            // The slots in flight do not wait for this member.
            Ok::<_, Failure>(driver.await)
        };
        let stopping = async {
            asked_to_stop().await;
            stop.send_replace(true);
            asked_to_stop().await;
        };
        tokio::select! {
            ended = acting => match ended? {
                Err(error) if unanswered.load(Relaxed) => Err(may_stand_there(&error.to_string())),
                ended => Ok(ended.map(|()| Exit::Done)?),
            },
            () = stopping => match unanswered.load(Relaxed) {
                true => Err(may_stand_there("stopped before the log has answered")),
                false => Ok(Exit::Done),
            },
        }
    }

    /// `unanswered`: whether a value was given to the log, and has no place yet. `stopped`: no other value is
    /// to be given to it.
    async fn append(
        self,
        member: Member,
        unanswered: &AtomicBool,
        mut stopped: watch::Receiver<bool>,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let mut show = async |value: &[u8]| -> Result<(), Failure> {
            unanswered.store(true, Relaxed);
            let place = member.append(value).await?;
            unanswered.store(false, Relaxed);
            Ok(output.result(&place, || at(&place))?)
        };
        for value in &self.values {
            if *stopped.borrow() {
                return Ok(());
            }
            show(value.as_bytes()).await?;
        }
        if !self.values.is_empty() {
            return Ok(());
        }
        let mut lines = lines_of_input();
        loop {
            let line = tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
                line = lines.recv() => line,
            };
            match line {
                Some(line) => show(&line.map_err(Failure::Input)?).await?,
                None => return Ok(()),
            }
        }
    }
}

fn may_stand_there(why: &str) -> Failure {
    let outcome = "what was appended may stand there or not: read before you append it again";
    Failure::Unanswered(format!("{why}; {outcome}"))
}

/// The lines of standard input. A thread of its own reads them: the program does not wait for it at its end.
fn lines_of_input() -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().split(b'\n') {
            let line = line.map(|line| line.strip_suffix(b"\r").unwrap_or(&line).to_vec());
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Read {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let mut reader = Reader::new(&self.of.of(client)?, self.from);
        loop {
            let values = if self.follow { reader.next().await? } else { reader.read().await? };
            for value in &values {
                show(value, output)?;
            }
            if !self.follow {
                return Ok(Exit::Done);
            }
        }
    }
}

fn at(place: &Place) -> String {
    format!("slot {} position {}", place.slot, place.position)
}

fn show(delivered: &Delivered, output: &mut Output<'_>) -> std::io::Result<()> {
    let value = Value::new(&delivered.value).map_or_else(String::new, |value| value.to_string());
    let place = &delivered.place;
    let record = serde_json::json!({
        "slot": place.slot, "position": place.position, "member": delivered.member, "value": value,
    });
    output.result(&record, || format!("{}  member {}  {}", at(place), delivered.member, printable(&value)))
}

impl Support {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let election = Election::new(&self.of.of(client)?);
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => election.next().await?,
        };
        if self.when_begun {
            election.begun(epoch).await?;
        }
        let elected = election.support(epoch, &self.candidate).await.map_err(|error| match error {
            LogError::Replaced(_) => {
                let outcome = "the support of one of them counts: elect leader tells the outcome";
                Failure::Unanswered(format!("{error}; {outcome}"))
            }
            other => other.into(),
        })?;
        show_leader(&elected, output)?;
        Ok(Exit::Done)
    }
}

impl Leader {
    async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        let election = Election::new(&self.of.of(client)?);
        let mut current = match self.epoch {
            Some(epoch) => election.outcome(epoch).await?,
            None => self.current(&election).await?,
        };
        loop {
            show_leader(&current, output)?;
            if !self.follow {
                return Ok(Exit::Done);
            }
            current = election.outcome(current.epoch + 1).await?;
        }
    }

    async fn current(&self, election: &Election) -> Result<Elected, LogError> {
        // In this order: an epoch may get its outcome meanwhile.
        let next = election.next().await?;
        match election.current().await {
            Ok(None) | Err(LogError::Nothing(_)) if self.follow => election.outcome(next).await,
            current => Ok(current?.unwrap_or(Elected { epoch: next - 1, leader: None })),
        }
    }
}

fn show_leader(elected: &Elected, output: &mut Output<'_>) -> std::io::Result<()> {
    let leader = elected.leader.as_deref().unwrap_or("none");
    output.result(elected, || format!("epoch {}  leader {leader}", elected.epoch))
}
