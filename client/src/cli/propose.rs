//! `propose`: plays one process to its end.

use std::time::Duration;

use clap::Args;
use stickycas_model::byzantine::{Strategy, WireAttack, WireAttackError};
use stickycas_model::process::Ended;
use stickycas_model::types::Value;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;
use tokio::time::Instant;

use super::output::Output;
use super::{Exit, Failure, asked_to_stop};
use crate::client::Client;
use crate::driver::{Conduct, Played};
use crate::error::Error;
use crate::hand::instance_ref;
use crate::record::PlayRecord;
use crate::wire_attack::Attacked;

/// Between two looks for an instance that does not exist yet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Propose {
    /// The instance: its id, or its name.
    #[arg(long, value_name = "ID|NAME")]
    instance: String,
    /// The value to propose: text, or 0x and hex digits. With --strategy, what it proposes where it follows the
    /// algorithm for a while; without, byzantine-PROCESS.
    #[arg(long, value_name = "V", value_parser = parse_value, required_unless_present_any = ["strategy", "attack"])]
    value: Option<Value>,
    /// Be Byzantine: a strategy with its arguments, for example collude(value=x); --help lists them all
    #[arg(long, value_name = "S", value_parser = parse_strategy, long_help = strategy_help())]
    strategy: Option<Strategy>,
    /// Be Byzantine below the protocol: the name of a wire attack, with how much of it, for example
    /// flood(frames=5000).
    #[arg(long, value_name = "A", value_parser = parse_attack, conflicts_with_all = ["strategy", "value"],
          long_help = attack_help())]
    attack: Option<WireAttack>,
    /// What the strategy draws, it draws from this.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Wait up to this long for an instance of this name to be created.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = humantime::parse_duration)]
    wait_for_instance: Duration,
}

pub(super) fn parse_value(text: &str) -> Result<Value, String> {
    Value::parse(text).ok_or_else(|| "give one byte or more: text, or 0x and hex digits".to_owned())
}

fn parse_strategy(text: &str) -> Result<Strategy, String> {
    text.parse().map_err(|error: stickycas_model::byzantine::StrategyError| {
        format!("{error}; the strategies are:{}", strategies())
    })
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

fn parse_attack(text: &str) -> Result<WireAttack, String> {
    text.parse().map_err(|error: WireAttackError| format!("{error}; the wire attacks are:{}", attacks()))
}

/// Each attack in a line.
fn attacks() -> String {
    let known = WireAttack::ALL_NAMES.iter().filter_map(|name| WireAttack::describe(name));
    known.map(|line| format!("\n  {line}")).collect()
}

fn attack_help() -> String {
    let count = "Without an argument it has a count of its own";
    format!("Be Byzantine below the protocol: a wire attack. {count}. There are:{}", attacks())
}

impl Propose {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<Exit, Failure> {
        instance_ref(&self.instance)?;
        let part = self.part()?;
        let mut stop = std::pin::pin!(asked_to_stop());
        let instance = tokio::select! {
            found = find(client, &self.instance, self.wait_for_instance) => found?,
            () = &mut stop => {
                return Err(Error::Undecided("stopped before the instance was found".to_owned()).into());
            }
        };
        let principal = client.connection().target().principal();
        let (record, correct, played) = match part {
            Part::Player(conduct, strategy) => {
                let played = client.play(instance, conduct, stop).await;
                (PlayRecord::new(instance, principal, &strategy, &played), strategy == CORRECT, played)
            }
            Part::Attacker(attack) => {
                let Attacked { done, played } = client.attack(instance, attack, self.seed, stop).await;
                (PlayRecord::of_attack(instance, principal, attack, done, &played), false, played)
            }
        };
        output.result(&record, || text(&record))?;
        exit(correct, played)
    }

    /// What it is to be.
    fn part(&self) -> Result<Part, Error> {
        match (self.attack, &self.strategy, &self.value) {
            (Some(attack), _, _) => Ok(Part::Attacker(attack)),
            (None, Some(strategy), value) => {
                let text = strategy.to_string();
                Ok(Part::Player(Conduct::byzantine(strategy.clone(), value.clone(), self.seed), text))
            }
            (None, None, Some(value)) => {
                Ok(Part::Player(Conduct::correct(value.clone()), CORRECT.to_owned()))
            }
            (None, None, None) => Err(Error::Usage("give --value, --strategy or --attack".to_owned())),
        }
    }
}

/// What a correct process has in the place of a strategy.
const CORRECT: &str = "correct";

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

/// The error, if any, still has to be told; a Byzantine process ends well however it ends by itself.
fn exit(correct: bool, played: Played) -> Result<Exit, Failure> {
    match (played.error, played.report.map(|report| report.ended)) {
        (Some(error), _) => Err(error.into()),
        (None, Some(Ended::Decided)) => Ok(Exit::Done),
        (None, _) => Ok(if correct { Exit::Ended } else { Exit::Done }),
    }
}

fn text(record: &PlayRecord) -> String {
    let who = record.process.map_or_else(|| record.principal.clone(), |process| format!("process {process}"));
    let phase = record.phase.map_or_else(String::new, |phase| format!(" in phase {phase}"));
    if let Some(done) = &record.attack {
        return format!("{who}, {}: {done}", record.strategy);
    }
    match (&record.ended, &record.decision) {
        (Ended::Decided, Some(decision)) => {
            let from: Vec<String> = record.from.iter().map(ToString::to_string).collect();
            let from = if from.is_empty() {
                " (an earlier life of it did)".to_owned()
            } else {
                format!("{phase}, from: {}", from.join(" "))
            };
            format!("{decision}\n{who} decided{from}")
        }
        (Ended::Failed(why), _) => format!("{who} has no decision: {why}"),
        _ => format!("{who} ended without a decision{phase}"),
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::types::{Phase, ProcessId};

    use super::*;

    #[test]
    fn people_read_the_decision_first_and_then_where_it_came_from() {
        let value = |text| Value::parse(text).unwrap();
        let record = PlayRecord {
            instance: String::new(),
            principal: "p2".to_owned(),
            strategy: "correct".to_owned(),
            process: ProcessId::new(2),
            decision: Some(value("a")),
            phase: Phase::new(4),
            from: vec![value("a"), value("b"), value("a")],
            ended: Ended::Decided,
            accesses: 2,
            reconnections: 0,
            attack: None,
            error: None,
        };
        assert_eq!(text(&record), "a\nprocess 2 decided in phase 4, from: a b a");
        let failed = PlayRecord { process: None, ended: Ended::Failed("lost".to_owned()), ..record };
        assert_eq!(text(&failed), "p2 has no decision: lost");
    }

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
