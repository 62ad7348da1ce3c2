//! The input of every attack, and the record of its acts: [`AttackContext`], [`AttackReport`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use stickycas_client::info::InstanceView;
use stickycas_client::raw::{ClientConfig, Connection};
use stickycas_client::{Client, Error, InstanceId, Played, ProcessSpec};
use stickycas_model::byzantine::{Distinct, Strategy};
use stickycas_model::types::AccessNumber;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use tokio::sync::watch;
use tonic::{Code, Status};

/// The input of every attack. Clones share the tally.
#[derive(Clone, Debug)]
pub(super) struct AttackContext {
    pub(super) client: Client,
    /// To the server that is attacked, which has the instance.
    pub(super) connection: Connection,
    pub(super) instance: InstanceId,
    /// The amount of the attack, as its argument gives it.
    pub(super) count: u32,
    pub(super) seed: u64,
    /// Where the judge hears how processes have ended, if there is one.
    pub(super) judge: Option<ClientConfig>,
    /// The server's listener for tokens, if it is known.
    pub(super) token_server: Option<ClientConfig>,
    pub(super) tally: Arc<Tally>,
}

impl AttackContext {
    pub(super) fn config(&self) -> &ClientConfig {
        self.connection.config()
    }

    /// The principal of the attacker.
    pub(super) fn principal(&self) -> &str {
        self.config().principal()
    }

    /// The attack in so many equal shares.
    pub(super) fn shares(&self, shares: u32) -> impl Iterator<Item = u32> + use<> {
        let count = self.count;
        (0..shares).map(move |share| count / shares + u32::from(share < count % shares))
    }

    /// Plays the rest of the process: see the header of the crate.
    pub(super) async fn play(&self) -> Played {
        let spec = ProcessSpec::byzantine(Strategy::Distinct(Distinct { value: None }), None, self.seed);
        self.client.play(self.instance, spec, std::future::pending()).await
    }

    /// The instance, among whose facts are the principals of others.
    pub(super) async fn view(&self) -> Result<InstanceView, Error> {
        self.client.get(self.instance).await
    }

    /// The principals of some other processes.
    pub(super) async fn others(&self) -> Result<Vec<String>, Error> {
        const SOME: usize = 2;
        let roster = self.view().await?.instance.roster;
        Ok(roster.into_iter().filter(|name| name != self.principal()).take(SOME).collect())
    }

    pub(super) fn get_request(&self) -> v1::GetRequest {
        v1::GetRequest { instance: Some(v1::get_request::Instance::InstanceId(self.instance.to_string())) }
    }

    pub(super) fn append_request(
        &self,
        number: AccessNumber,
        value: &[u8],
        no_wait: bool,
    ) -> v1::AppendRequest {
        v1::AppendRequest {
            instance_id: self.instance.to_string(),
            access_number: number.get(),
            value: value.to_vec().into(),
            no_wait,
        }
    }
}

/// The acts of an attack, as the attacker saw them: evidence and no result (V5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttackReport {
    /// Calls, frames, streams and connections that it tried.
    pub attempts: u64,
    /// Those that were refused, by the reason that the server gave.
    pub refusals: BTreeMap<String, u64>,
    /// Streams and connections that the server ended.
    pub cut: u64,
    /// Answers that it should not have had; the first of a kind in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub surprises: Vec<String>,
    /// Why it did not go on to its end, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broke_off: Option<String>,
}

impl fmt::Display for AttackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempts, {} ended by the server", self.attempts, self.cut)?;
        for (reason, count) in &self.refusals {
            write!(f, "\n  refused {count} times: {reason}")?;
        }
        for surprise in &self.surprises {
            write!(f, "\n  unexpected: {surprise}")?;
        }
        self.broke_off.iter().try_for_each(|why| write!(f, "\n  it broke off: {why}"))
    }
}

/// Counts what an attack does, while it goes on.
#[derive(Debug, Default)]
pub(super) struct Tally {
    report: Mutex<AttackReport>,
    effect: watch::Sender<bool>,
}

impl Tally {
    pub(super) fn report(&self) -> AttackReport {
        self.lock().clone()
    }

    /// So much is tried now.
    pub(super) fn attempts(&self, attempts: u64) {
        self.lock().attempts += attempts;
    }

    /// The server refused something.
    pub(super) fn refused(&self, refused: &RpcRefusal) {
        self.count(refused.reason.name());
    }

    /// A call ended with this status, and `true` if that is a refusal.
    pub(super) fn ended(&self, status: &Status) -> bool {
        if status.code() == Code::Ok {
            return false;
        }
        match RpcRefusal::from_status(status) {
            Some(refused) => self.refused(&refused),
            // No refusal of the service but of what carries it.
            None => self.count(&format!("{:?}", status.code())),
        }
        true
    }

    /// The server ended a stream or a connection.
    pub(super) fn cut(&self) {
        self.lock().cut += 1;
        self.effect();
    }

    /// An answer came that should not have come.
    pub(super) fn surprise(&self, what: &str) {
        let mut report = self.lock();
        if !report.surprises.iter().any(|known| known == what) {
            report.surprises.push(what.to_owned());
        }
    }

    pub(super) fn broke_off(&self, why: &str) {
        self.lock().broke_off.get_or_insert_with(|| why.to_owned());
    }

    /// An effect of the attack was seen, or there will be none any more.
    pub(super) fn effect(&self) {
        self.effect.send_replace(true);
    }

    /// Returns when an effect was seen, or the attack is over.
    pub(super) async fn first_effect(&self) {
        // The sender is in `self`.
        let _ = self.effect.subscribe().wait_for(|effect| *effect).await;
    }

    fn count(&self, reason: &str) {
        *self.lock().refusals.entry(reason.to_owned()).or_default() += 1;
        self.effect();
    }

    fn lock(&self) -> MutexGuard<'_, AttackReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
