//! `propose`: plays one process to its end.

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use stickycas_model::byzantine::{Strategy, WireAttack, WireAttackError};
use stickycas_model::cast::seed_of;
use stickycas_model::types::Value;
use stickycas_proto::names::{InstanceId, InstanceRef};
use stickycas_proto::v1::RefusalReason;
use tokio::time::Instant;

use super::again::again;
use super::ended::{CORRECT, EndedPlay};
use super::output::Output;
use super::{Common, Exit, Failure, asked_to_stop};
use crate::client::Client;
use crate::driver::Conduct;
use crate::error::Error;
use crate::hand::instance_ref;
use crate::info::Looked;
use crate::over::Over;
use crate::record::PlayRecord;
use crate::wire_attack::Attacked;

/// Between two looks for an instance that does not exist yet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Propose {
    /// The instance: its id, or its name.
    #[arg(long, env = "STICKYCAS_INSTANCE", value_name = "ID|NAME")]
    pub(super) instance: String,
    /// The value to propose: text, or 0x and hex digits. With --strategy, what it proposes where it follows the
    /// algorithm for a while; without, byzantine-PROCESS.
    #[arg(long, value_name = "V", value_parser = parse_value, required_unless_present_any = ["strategy", "attack"])]
    value: Option<Value>,
    /// Be Byzantine: a strategy with its arguments, for example collude(value=x); --help lists them all
    #[arg(long, value_name = "S", value_parser = parse_strategy, long_help = strategy_help())]
    strategy: Option<Strategy>,
    /// Be Byzantine below the protocol: a wire attack, for example flood(frames=5000); --help lists them all
    #[arg(long, value_name = "A", value_parser = parse_attack, conflicts_with_all = ["strategy", "value"],
          long_help = attack_help())]
    attack: Option<WireAttack>,
    /// What the strategy draws, it draws from this. Without it from 0, or with --again from the seed of the
    /// instance, so that a judge can foresee it.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Wait up to this long for an instance of this name to be created.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = humantime::parse_duration)]
    wait_for_instance: Duration,
    /// Play one instance after another: when this one has ended, wait for the next of the same name, until told
    /// to stop (SIGTERM or SIGINT: exit code 0). Prints a result for each. Waits for each as long as it takes,
    /// and does not give up while the server is away, or while the instance of this name is not for this
    /// process. An instance that the server has lost is reported as such, and the next one is looked for.
    #[arg(long, conflicts_with = "wait_for_instance")]
    again: bool,
    /// Report at the end of each instance how this process has ended, to the judge at this address, and wait
    /// until the instance has been judged (stickycas-loadgen judge). Empty: to nobody.
    #[arg(long, env = "STICKYCAS_REPORT_TO", value_name = "URL")]
    report_to: Option<String>,
}

pub(super) fn parse_value(text: &str) -> Result<Value, String> {
    Value::parse(text).ok_or_else(|| "give one byte or more: text, or 0x and hex digits".to_owned())
}

fn parse_strategy(text: &str) -> Result<Strategy, String> {
    text.parse().map_err(|error: stickycas_model::byzantine::StrategyError| {
        format!("{error}; the strategies are:{}", strategies())
    })
}

fn parse_attack(text: &str) -> Result<WireAttack, String> {
    text.parse().map_err(|error: WireAttackError| format!("{error}; the wire attacks are:{}", attacks()))
}

/// All wire attacks, a line each.
fn attacks() -> String {
    let known = WireAttack::ALL_NAMES.iter().filter_map(|name| WireAttack::describe(name));
    known.map(|line| format!("\n  {line}")).collect()
}

fn attack_help() -> String {
    format!(
        "Be Byzantine below the protocol: a wire attack. K is how much of it; without, it has a count of its own:{}",
        attacks()
    )
}

/// All strategies, a line each.
fn strategies() -> String {
    let known = Strategy::ALL_NAMES.iter().filter_map(|name| Strategy::describe(name));
    known.map(|line| format!("\n  {line}")).collect()
}

fn strategy_help() -> String {
    format!(
        "Be Byzantine: a strategy with its arguments. V and U are values, K is a number, S another strategy:{}",
        strategies()
    )
}

impl Propose {
    pub(super) async fn run(
        self,
        common: &Common,
        client: Client,
        output: &mut Output<'_>,
    ) -> Result<Exit, Failure> {
        instance_ref(&self.instance)?;
        self.part(0)?;
        let url = self.report_to.as_deref().filter(|url| !url.is_empty());
        let judge = url.map(|url| common.client(url)).transpose()?;
        if self.again {
            let judge = judge.map(Client::without_end);
            return again(&self, &client.without_end(), judge.as_ref(), output).await;
        }
        self.once(&client, judge.as_ref(), output).await
    }

    async fn once(
        self,
        client: &Client,
        judge: Option<&Client>,
        output: &mut Output<'_>,
    ) -> Result<Exit, Failure> {
        let mut stop = std::pin::pin!(asked_to_stop());
        let instance = tokio::select! {
            found = find(client, &self.instance, self.wait_for_instance) => found?,
            () = &mut stop => {
                return Err(Error::Undecided("stopped before the instance was found".to_owned()).into());
            }
        };
        let mut stopped = false;
        let stopping = async {
            (&mut stop).await;
            stopped = true;
        };
        let ended = self.play(client, instance, self.seed.unwrap_or(0), stopping).await?;
        output.result(&ended.record, || ended.text())?;
        if let Some(judge) = judge.filter(|_| !stopped) {
            tokio::select! {
                () = report(judge, instance, &ended) => {}
                () = &mut stop => {}
            }
        }
        ended.exit()
    }

    /// Plays its part at this instance until the process has ended or the instance is over.
    pub(super) async fn play_until_over(&self, client: &Client, looked: &Looked) -> Result<EndedPlay, Error> {
        let Looked { instance, own, .. } = looked;
        let run_seed = instance.parameters.spec().seed.get();
        let seed = self.seed.or_else(|| Some(seed_of(own.as_ref()?.process, run_seed))).unwrap_or(run_seed);
        // A correct process always waits for an answer, by which it is told. A Byzantine one may not.
        if self.strategy.is_none() && self.attack.is_none() {
            return self.play(client, instance.id, seed, std::future::pending()).await;
        }
        let over = OnceLock::new();
        let stop = async {
            match client.over(instance.id).await {
                // An attack goes on when its process has left, and comes to its own end.
                Over::Finished if self.attack.is_some() => std::future::pending().await,
                how => over.get_or_init(|| how),
            };
        };
        let ended = self.play(client, instance.id, seed, stop).await?;
        match over.into_inner() {
            Some(Over::Unknown(error)) => return Ok(ended.failed(error)),
            Some(Over::Finished | Over::Closed) => return Ok(ended),
            None => {}
        }
        // One that had fallen silent does not ask why its stream broke.
        if ended.error.is_none() && ended.record.decision.is_none() {
            let looked = client.get(&InstanceRef::Id(instance.id)).await;
            if let Err(error) = looked
                && error.reason() == Some(RefusalReason::InstanceUnknown)
            {
                return Ok(ended.failed(error));
            }
        }
        Ok(ended)
    }

    async fn play(
        &self,
        client: &Client,
        instance: InstanceId,
        seed: u64,
        stop: impl Future<Output = ()>,
    ) -> Result<EndedPlay, Error> {
        let principal = client.connection().target().principal();
        let (record, played) = match self.part(seed)? {
            Part::Player(conduct, strategy) => {
                let played = client.play(instance, conduct, stop).await;
                (PlayRecord::new(instance, principal, &strategy, &played), played)
            }
            Part::Attacker(attack) => {
                let Attacked { done, played } = client.attack(instance, attack, seed, stop).await;
                (PlayRecord::of_attack(instance, principal, attack, done, &played), played)
            }
        };
        Ok(EndedPlay { record, proposal: self.value.clone(), error: played.error })
    }

    /// What it is to be.
    fn part(&self, seed: u64) -> Result<Part, Error> {
        match (self.attack, &self.strategy, &self.value) {
            (Some(attack), _, _) => Ok(Part::Attacker(attack)),
            (None, Some(strategy), value) => {
                let text = strategy.to_string();
                Ok(Part::Player(Conduct::byzantine(strategy.clone(), value.clone(), seed), text))
            }
            (None, None, Some(value)) => {
                Ok(Part::Player(Conduct::correct(value.clone()), CORRECT.to_owned()))
            }
            (None, None, None) => Err(Error::Usage("give --value, --strategy or --attack".to_owned())),
        }
    }
}

/// Tells a judge how a process has ended. That it cannot be told is no failure of the process.
pub(super) async fn report(judge: &Client, instance: InstanceId, ended: &EndedPlay) {
    let said = ended.record.said(ended.proposal.clone());
    match judge.report(instance, &said).await {
        Ok(verdict) => tracing::info!(%instance, %verdict, "judged"),
        Err(error) => tracing::warn!(%instance, %error, "the judge was not told"),
    }
}

/// What is played.
enum Part {
    /// A process, with the text of what it does.
    Player(Conduct, String),
    Attacker(WireAttack),
}

/// The id of the instance; if it is given by name, it may still have to be created.
async fn find(client: &Client, instance: &str, wait: Duration) -> Result<InstanceId, Error> {
    let end = Instant::now() + wait;
    loop {
        match client.find(instance).await {
            Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) && Instant::now() < end => {
                tokio::time::sleep(LOOK_AGAIN.min(end - Instant::now())).await;
            }
            found => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_strategy_is_answered_with_those_that_exist() {
        let error = parse_strategy("frobnicate").unwrap_err();
        assert!(error.contains("silent: joins, then says nothing"), "{error}");
        let error = parse_strategy("mimic").unwrap_err();
        assert!(error.starts_with("mimic lacks value: write mimic(value=V)"), "{error}");
    }

    #[test]
    fn an_unknown_attack_is_answered_with_those_that_exist_and_help_lists_them() {
        let error = parse_attack("frobnicate").unwrap_err();
        assert!(error.contains("slow-open(connections=K): opens K connections"), "{error}");
        for name in WireAttack::ALL_NAMES {
            assert!(attack_help().contains(&format!("\n  {name}(")), "{name}");
        }
    }
}
