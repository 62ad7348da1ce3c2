//! Wire attacks: the acts of a Byzantine process below the protocol, over real sockets (SPEC section 8).
//!
//! [`play`] plays one process of an instance that carries out an attack. An attack that needs the process's
//! own session and access numbers comes first, on a session of its own; one that needs neither goes on beside
//! the rest. The rest is that of strategy `distinct`, performed by the same driver as a correct process: it
//! appends a value of its own, reads, and leaves by the true mode, so that no patience is spent on it and it
//! commits no offence that is not the attack's.
//!
//! Every attack is bounded, in count by its argument and in time by [`LONGEST`]. Its own report is evidence
//! against it and never a result (V5): the server and the judge say whether it has fired.
//!
//! Where the server believes names (SPEC section 10), a client that gives the name of another is that other,
//! and cannot be told from it; so no attack steals a name there. Where the server knows callers by
//! certificates, `impersonate` does.

mod connections;
mod context;
mod frames;
mod identity;
mod sessions;
mod stream;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use stickycas_client::{Client, Error, InstanceId, Played};
use stickycas_model::byzantine::{WireAttack, WireAttackKind};

pub use self::context::AttackReport;
use self::context::{AttackContext, Tally};

/// The longest that an attack goes on, whatever is left of its count.
pub const LONGEST: Duration = Duration::from_secs(30);

/// The outcome of [`play`].
#[derive(Debug)]
pub struct Attacked {
    /// The acts of the attack.
    pub attack: AttackReport,
    /// The rest of the process. Without a report if it was stopped before.
    pub played: Played,
}

/// The targets of an attack beside the listener to which the attacker is connected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Targets<'a> {
    /// Where the process reports its end.
    pub judge: Option<&'a Client>,
    /// The server's listener for tokens: a client of its address, with credentials by which the server is
    /// known.
    pub token_server: Option<&'a Client>,
}

/// Plays a process of an instance that carries out this attack, to its end or until `stop` resolves. `seed`:
/// that of all random choices.
pub async fn play(
    client: &Client,
    instance: InstanceId,
    attack: WireAttack,
    seed: u64,
    targets: Targets<'_>,
    stop: impl Future<Output = ()>,
) -> Attacked {
    let tally = Arc::<Tally>::default();
    let attack_and_play = async {
        // Of a cluster, the server that has the instance is attacked; any other one would only name that.
        let at_owner = client.at_owner(instance).await;
        let attacked = at_owner.as_ref().unwrap_or(client).connection();
        let config = |client: &Client| client.connection().config().clone();
        let context = AttackContext {
            client: client.clone(),
            connection: attacked.clone(),
            instance,
            count: attack.count(),
            seed,
            judge: targets.judge.map(config),
            token_server: targets.token_server.map(config),
            tally: tally.clone(),
        };
        carry_out(&context, attack.kind()).await
    };
    let played = tokio::select! {
        biased;
        // Its state is far larger than that of a process.
        played = Box::pin(attack_and_play) => Some(played),
        () = stop => None,
    };
    Attacked { attack: tally.report(), played: played.unwrap_or_else(Played::unseen) }
}

async fn carry_out(context: &AttackContext, attack: WireAttackKind) -> Played {
    match attack {
        WireAttackKind::Impersonate => beside(context, identity::impersonate).await,
        WireAttackKind::OutOfTurn => first(context, sessions::out_of_turn).await,
        WireAttackKind::Double => first(context, sessions::double).await,
        WireAttackKind::Replay => {
            let kept = bounded(context, sessions::replay).await;
            let played = context.play().await;
            if let Some(kept) = kept {
                bounded(context, async |context| sessions::replay_after_leaving(context, kept).await).await;
            }
            played
        }
        WireAttackKind::Flood => first(context, sessions::flood).await,
        WireAttackKind::Oversize => first(context, sessions::oversize).await,
        WireAttackKind::Garbage => beside(context, connections::garbage).await,
        WireAttackKind::SlowRead => first(context, sessions::slow_read).await,
        WireAttackKind::SlowOpen => beside(context, connections::slow_open).await,
        WireAttackKind::ResetFlood => beside(context, frames::reset_flood).await,
        WireAttackKind::HandshakeFlood => beside(context, connections::handshake_flood).await,
        WireAttackKind::FrameFlood => beside(context, frames::frame_flood).await,
        WireAttackKind::BadTokenFlood => beside(context, identity::bad_token_flood).await,
    }
}

/// The attack, and then the rest of the process. Streams that the attack holds open stay open until the end.
async fn first<T>(
    context: &AttackContext,
    attack: impl AsyncFnOnce(&AttackContext) -> Result<T, Error>,
) -> Played {
    let _held = bounded(context, attack).await;
    context.play().await
}

/// The rest of the process as soon as an effect of the attack was seen, and the attack beside it.
async fn beside(
    context: &AttackContext,
    attack: impl AsyncFnOnce(&AttackContext) -> Result<(), Error>,
) -> Played {
    let attack = async {
        bounded(context, attack).await;
        context.tally.effect();
    };
    let rest = async {
        context.tally.first_effect().await;
        context.play().await
    };
    tokio::join!(attack, rest).1
}

/// The attack, no longer than may be. That it broke off is noted and no failure of the process.
async fn bounded<T>(
    context: &AttackContext,
    attack: impl AsyncFnOnce(&AttackContext) -> Result<T, Error>,
) -> Option<T> {
    // Boxed: unoptimised, the stack has a place for every attack of `carry_out`, several times each.
    match tokio::time::timeout(LONGEST, Box::pin(attack(context))).await {
        Ok(Ok(held)) => Some(held),
        Ok(Err(error)) => {
            context.tally.broke_off(&error.to_string());
            None
        }
        Err(_) => {
            context.tally.broke_off("its time was over");
            None
        }
    }
}
