//! The process that `propose` plays: the flags that say which part it has, one play of it, and the report of
//! its end.

use std::sync::OnceLock;

use clap::Args;
use stickycas_attacks::{Attacked, Targets};
use stickycas_client::info::InstanceView;
use stickycas_client::{Client, Error, InstanceEnd, ProcessSpec};
use stickycas_model::byzantine::{Strategy, WireAttack, WireAttackError};
use stickycas_model::ground_truth::seed_of;
use stickycas_model::types::Value;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use super::record::{CORRECT, EndedPlay, PlayRecord};

/// The flags that say which part the process has.
#[derive(Debug, Args)]
pub(super) struct ProcessArgs {
    /// The value to propose: text, or 0x and hex digits. With --strategy, what it proposes where it follows
    /// the algorithm for a while; without, byzantine-PROCESS.
    #[arg(long, value_name = "V", value_parser = parse_value, allow_hyphen_values = true,
          required_unless_present_any = ["strategy", "attack"])]
    value: Option<Value>,
    /// Be Byzantine: a strategy with its arguments, for example collude(value=x); --help lists them all
    #[arg(long, value_name = "S", value_parser = parse_strategy, long_help = strategy_help())]
    strategy: Option<Strategy>,
    /// Be Byzantine below the protocol: a wire attack, for example flood(frames=5000); --help lists them all
    #[arg(long, value_name = "A", value_parser = parse_attack, conflicts_with_all = ["strategy", "value"],
          long_help = attack_help())]
    attack: Option<WireAttack>,
    /// With --attack and --credentials: the server's listener for tokens, which bad-token-flood attacks;
    /// without it, it attacks that of --server
    #[arg(long, value_name = "URL", requires = "attack")]
    token_server: Option<String>,
    /// Seed of the random choices of a strategy or attack. Without it 0, or with --again the seed of the
    /// instance, so that a judge can foresee them.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
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

fn attack_help() -> String {
    format!(
        "Be Byzantine below the protocol: a wire attack. K is how much of it; without, it has a count of its own:{}",
        attacks()
    )
}

fn strategy_help() -> String {
    format!(
        "Be Byzantine: a strategy with its arguments. V and U are values, K is a number, S another strategy:{}",
        strategies()
    )
}

fn attacks() -> String {
    WireAttack::ALL_NAMES.iter().filter_map(|name| WireAttack::describe(name)).map(line).collect()
}

fn strategies() -> String {
    Strategy::ALL_NAMES.iter().filter_map(|name| Strategy::describe(name)).map(line).collect()
}

fn line(described: &str) -> String {
    format!("\n  {described}")
}

impl ProcessArgs {
    /// # Errors
    /// The flags give the process no part.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.part(0).map(drop)
    }

    /// Plays its part at this instance until the process has ended or the instance is over.
    pub(super) async fn play_until_over(
        &self,
        client: &Client,
        judge: Option<&Client>,
        view: InstanceView,
    ) -> Result<EndedPlay, Error> {
        let run_seed = view.instance.parameters.spec().seed.get();
        let seed = view.own.as_ref().map_or(run_seed, |own| seed_of(own.process, run_seed));
        let (instance, found) = (view.instance.id, Found::Seen(Box::new(view)));
        // A correct process always waits for an answer, by which it is told. A Byzantine one may not.
        if self.strategy.is_none() && self.attack.is_none() {
            return self.play(client, judge, &found, seed, std::future::pending()).await;
        }
        let end = OnceLock::new();
        let stop = async {
            match client.wait_for_end(instance).await {
                // An attack goes on when its process has left, and comes to its own end.
                Ok(InstanceEnd::Finished) if self.attack.is_some() => std::future::pending().await,
                Ok(how) => end.get_or_init(|| how),
                // The watch was refused or broke: the process itself learns why.
                Err(_) => std::future::pending().await,
            };
        };
        let ended = self.play(client, judge, &found, seed, stop).await?;
        match end.into_inner() {
            Some(InstanceEnd::Unknown(error)) => return Ok(ended.failed(error)),
            Some(_) => return Ok(ended),
            None => {}
        }
        // One that had fallen silent does not ask why its stream broke.
        if ended.error.is_none() && ended.record.decision.is_none() {
            let view = client.get(instance).await;
            if let Err(error) = view
                && error.reason() == Some(RefusalReason::InstanceUnknown)
            {
                return Ok(ended.failed(error));
            }
        }
        Ok(ended)
    }

    /// Plays its part at this instance until the process has ended or `stop` resolves. `seed`: that of its
    /// random choices, unless a flag gives one.
    pub(super) async fn play(
        &self,
        client: &Client,
        judge: Option<&Client>,
        found: &Found,
        seed: u64,
        stop: impl Future<Output = ()>,
    ) -> Result<EndedPlay, Error> {
        let (instance, principal, seed) = (found.id(), client.principal(), self.seed.unwrap_or(seed));
        let (record, played) = match self.part(seed)? {
            Part::Player(spec, strategy) => {
                let spec = match found {
                    Found::Id(_) => spec,
                    Found::Seen(view) => spec.having_seen(view),
                };
                let played = client.play(instance, spec, stop).await;
                (PlayRecord::new(instance, principal, &strategy, &played), played)
            }
            Part::Attacker(attack) => {
                let token_server = self.token_server(client)?;
                let targets = Targets { judge, token_server: token_server.as_ref() };
                let Attacked { attack: report, played } =
                    stickycas_attacks::play(client, instance, attack, seed, targets, stop).await;
                let record = PlayRecord::new(instance, principal, &attack.to_string(), &played);
                (PlayRecord { attack: Some(report), ..record }, played)
            }
        };
        Ok(EndedPlay { record, proposal: self.value.clone(), error: played.error })
    }

    /// A client of the listener for tokens that trusts the servers that this client trusts.
    fn token_server(&self, client: &Client) -> Result<Option<Client>, Error> {
        let Some(url) = &self.token_server else { return Ok(None) };
        let credentials = client.connection().config().credentials().cloned();
        let credentials = credentials
            .ok_or_else(|| Error::InvalidArgument("--token-server: give --credentials as well".to_owned()))?;
        let builder = Client::builder(url).principal(client.principal()).credentials(credentials);
        builder.connect_lazy().map(Some)
    }

    /// The part that the flags give the process.
    fn part(&self, seed: u64) -> Result<Part, Error> {
        match (self.attack, &self.strategy, &self.value) {
            (Some(attack), _, _) => Ok(Part::Attacker(attack)),
            (None, Some(strategy), value) => {
                let text = strategy.to_string();
                Ok(Part::Player(ProcessSpec::byzantine(strategy.clone(), value.clone(), seed), text))
            }
            (None, None, Some(value)) => {
                Ok(Part::Player(ProcessSpec::correct(value.clone()), CORRECT.to_owned()))
            }
            (None, None, None) => {
                Err(Error::InvalidArgument("give --value, --strategy or --attack".to_owned()))
            }
        }
    }
}

/// Tells a judge how a process has ended. That it cannot be told is no failure of the process.
pub(super) async fn report(judge: &Client, instance: InstanceId, ended: &EndedPlay) {
    let report = ended.record.report(ended.proposal.clone());
    match judge.report(instance, &report).await {
        Ok(verdict) => tracing::info!(%instance, %verdict, "judged"),
        Err(error) => tracing::warn!("the judge of {instance} was not told: {error}"),
    }
}

/// An instance that is to be played in.
pub(super) enum Found {
    /// It was given by its id.
    Id(InstanceId),
    /// It was looked up by its name.
    Seen(Box<InstanceView>),
}

impl Found {
    pub(super) fn id(&self) -> InstanceId {
        match self {
            Self::Id(id) => *id,
            Self::Seen(view) => view.instance.id,
        }
    }
}

/// The part of a process.
enum Part {
    /// It follows the algorithm or a strategy, whose text this is.
    Player(ProcessSpec, String),
    Attacker(WireAttack),
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
    fn an_unknown_attack_is_answered_with_the_known_ones() {
        let error = parse_attack("frobnicate").unwrap_err();
        assert!(error.contains("slow-open(connections=K): opens K connections"), "{error}");
        for name in WireAttack::ALL_NAMES {
            assert!(attack_help().contains(&format!("\n  {name}(")), "{name}");
        }
    }
}
