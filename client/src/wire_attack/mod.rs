//! Wire attacks: what a Byzantine process does below the protocol, over real sockets (SPEC section 8).
//!
//! [`play`] plays one process of an instance that carries out an attack. What needs the process's own session
//! and access numbers comes first, on a session of its own; what needs neither goes on beside the rest. The
//! rest is that of strategy `distinct`, performed by the same driver as a correct process: it appends a value
//! of its own, reads, and leaves by the true mode, so that nobody's patience is spent on it and it commits no
//! offence that is not the attack's.
//!
//! Every attack is bounded, in count by its argument and in time by [`LONGEST`]. What it says that it did is
//! evidence against it and never a result (V5): whether it has fired, the server and the judge say.
//!
//! What is not here: to steal a name. As long as a caller's name is metadata that the server believes (SPEC
//! section 10), whoever says another's name is that other, and nobody can tell them apart.

mod double;
mod field;
mod flood;
mod garbage;
mod impersonate;
mod out_of_turn;
mod oversize;
mod raw;
mod replay;
mod reset_flood;
mod slow_open;
mod slow_read;
mod stream;
mod tally;

use std::time::Duration;

use stickycas_model::byzantine::{WireAttack, WireAttackKind};
use stickycas_proto::names::InstanceId;

use self::field::Field;
pub use self::tally::Done;
use crate::connection::Connection;
use crate::driver::Played;
use crate::error::Error;
use crate::retry::RetryPolicy;

/// The longest that an attack goes on, whatever is left of its count.
pub const LONGEST: Duration = Duration::from_secs(30);

/// How the play of an attacker ended.
#[derive(Debug)]
pub struct Attacked {
    /// What it did.
    pub done: Done,
    /// How the process fared beyond it. Without a report if it was stopped before.
    pub played: Played,
}

/// Plays a process of an instance that carries out this attack, to its end or until `stop` resolves. What is
/// drawn is drawn from `seed`.
pub async fn play(
    connection: &Connection,
    instance: InstanceId,
    attack: WireAttack,
    seed: u64,
    policy: RetryPolicy,
    stop: impl Future<Output = ()>,
) -> Attacked {
    let field = Field::new(connection.clone(), instance, attack.count(), seed, policy);
    let played = tokio::select! {
        biased;
        played = carry_out(&field, attack.kind()) => Some(played),
        () = stop => None,
    };
    let stopped = || Played { report: None, accesses: 0, reconnections: 0, error: None };
    Attacked { done: field.tally.done(), played: played.unwrap_or_else(stopped) }
}

async fn carry_out(field: &Field, attack: WireAttackKind) -> Played {
    match attack {
        WireAttackKind::Impersonate => beside(field, impersonate::attack(field)).await,
        WireAttackKind::OutOfTurn => first(field, out_of_turn::attack(field)).await,
        WireAttackKind::Double => first(field, double::attack(field)).await,
        WireAttackKind::Replay => {
            let kept = bounded(field, replay::before_it_leaves(field)).await;
            let played = field.play().await;
            if let Some(kept) = kept {
                bounded(field, replay::after_it_left(field, kept)).await;
            }
            played
        }
        WireAttackKind::Flood => first(field, flood::attack(field)).await,
        WireAttackKind::Oversize => first(field, oversize::attack(field)).await,
        WireAttackKind::Garbage => beside(field, garbage::attack(field)).await,
        WireAttackKind::SlowRead => first(field, slow_read::attack(field)).await,
        WireAttackKind::SlowOpen => beside(field, slow_open::attack(field)).await,
        WireAttackKind::ResetFlood => beside(field, reset_flood::attack(field)).await,
    }
}

/// The attack, and then the rest of the process. What the attack holds open stays open until the end.
async fn first<T>(field: &Field, attack: impl Future<Output = Result<T, Error>>) -> Played {
    let _held = bounded(field, attack).await;
    field.play().await
}

/// The rest of the process as soon as the attack has had an effect, and the attack beside it.
async fn beside(field: &Field, attack: impl Future<Output = Result<(), Error>>) -> Played {
    let attack = async {
        bounded(field, attack).await;
        field.tally.effect();
    };
    let rest = async {
        field.tally.first_effect().await;
        field.play().await
    };
    tokio::join!(attack, rest).1
}

/// The attack, no longer than may be. That it broke off is noted and no failure of the process.
async fn bounded<T>(field: &Field, attack: impl Future<Output = Result<T, Error>>) -> Option<T> {
    match tokio::time::timeout(LONGEST, attack).await {
        Ok(Ok(held)) => Some(held),
        Ok(Err(error)) => {
            field.tally.broke_off(&error.to_string());
            None
        }
        Err(_) => {
            field.tally.broke_off("its time was over");
            None
        }
    }
}
