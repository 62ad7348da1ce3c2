//! [`AttackContext`]: what every attack is given.

use std::sync::Arc;

use stickycas_client::raw::{ClientConfig, Connection};
use stickycas_client::{Client, Error, InstanceId, MemberState, Played, ProcessSpec};
use stickycas_model::byzantine::{Distinct, Strategy, own_value};
use stickycas_model::types::{AccessNumber, ProcessId, Value};
use stickycas_proto::v1;

use super::Targets;
use super::tally::Tally;

/// See the module. Clones share the tally.
#[derive(Clone, Debug)]
pub(super) struct AttackContext {
    client: Client,
    pub(super) connection: Connection,
    pub(super) instance: InstanceId,
    /// How much of the attack.
    pub(super) count: u32,
    pub(super) seed: u64,
    /// Where the judge hears how processes have ended, if there is one.
    pub(super) judge: Option<ClientConfig>,
    /// The server's listener for tokens, if it is known.
    pub(super) token_server: Option<ClientConfig>,
    pub(super) tally: Arc<Tally>,
}

impl AttackContext {
    /// `attacked`: the connection to the server that is attacked, which has the instance.
    pub(super) fn new(
        client: &Client,
        attacked: &Connection,
        instance: InstanceId,
        count: u32,
        seed: u64,
    ) -> Self {
        let (judge, token_server) = (None, None);
        Self {
            client: client.clone(),
            connection: attacked.clone(),
            instance,
            count,
            seed,
            judge,
            token_server,
            tally: Arc::default(),
        }
    }

    /// The same with more that can be attacked, and the tally to keep.
    pub(super) fn with(mut self, targets: Targets<'_>, tally: &Arc<Tally>) -> Self {
        let Targets { judge, token_server } = targets;
        self.judge = judge.map(|judge| judge.connection().config().clone());
        self.token_server = token_server.map(|server| server.connection().config().clone());
        self.tally = tally.clone();
        self
    }

    pub(super) fn config(&self) -> &ClientConfig {
        self.connection.config()
    }

    /// The principal of the attacker.
    pub(super) fn principal(&self) -> &str {
        self.config().principal()
    }

    /// Plays the rest of the process: see the header of the crate.
    pub(super) async fn play(&self) -> Played {
        let spec = ProcessSpec::byzantine(Strategy::Distinct(Distinct { value: None }), None, self.seed);
        self.client.play(self.instance, spec, std::future::pending()).await
    }

    /// What the process appends, in the attack and after it.
    pub(super) fn value(process: ProcessId) -> Value {
        own_value(process)
    }

    /// The state of the process at the instance, without a session.
    pub(super) async fn own(&self) -> Result<MemberState, Error> {
        let view = self.client.get(self.instance).await?;
        view.own.ok_or_else(|| Error::Protocol("the state of the process is missing".to_owned()))
    }

    /// The principal that alone may close the instance.
    pub(super) async fn creator(&self) -> Result<String, Error> {
        Ok(self.client.get(self.instance).await?.instance.creator)
    }

    /// The principals of some other processes.
    pub(super) async fn others(&self) -> Result<Vec<String>, Error> {
        const SOME: usize = 2;
        let roster = self.client.get(self.instance).await?.instance.roster;
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
