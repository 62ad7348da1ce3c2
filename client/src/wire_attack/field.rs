//! What every attack has at hand.

use std::sync::Arc;

use stickycas_model::byzantine::{Distinct, Strategy, own_value};
use stickycas_model::types::{AccessNumber, ProcessId, Value};
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;

use super::tally::Tally;
use crate::connection::{Connection, Target};
use crate::driver::{self, Conduct, Played};
use crate::error::Error;
use crate::info::InstanceInfo;
use crate::retry::RetryPolicy;

/// See the module. Clones share the tally.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) connection: Connection,
    pub(super) instance: InstanceId,
    /// How much of the attack.
    pub(super) count: u32,
    pub(super) seed: u64,
    pub(super) tally: Arc<Tally>,
    policy: RetryPolicy,
}

impl Field {
    pub(super) fn new(
        connection: Connection,
        instance: InstanceId,
        count: u32,
        seed: u64,
        policy: RetryPolicy,
    ) -> Self {
        Self { connection, instance, count, seed, tally: Arc::default(), policy }
    }

    pub(super) fn target(&self) -> &Target {
        self.connection.target()
    }

    /// As whom.
    pub(super) fn principal(&self) -> &str {
        self.target().principal()
    }

    /// Plays what is left of the process: see the module above.
    pub(super) async fn play(&self) -> Played {
        let conduct = Conduct::byzantine(Strategy::Distinct(Distinct { value: None }), None, self.seed);
        driver::play(&self.connection, self.instance, conduct, self.policy, std::future::pending()).await
    }

    /// What the process appends, in the attack and after it.
    pub(super) fn value(process: ProcessId) -> Value {
        own_value(process)
    }

    /// Where the process stands, without a session.
    pub(super) async fn own(&self) -> Result<MemberState, Error> {
        let response = self.connection.instances().get(self.get_request()).await;
        let response = response.map_err(|status| self.connection.error(&status))?.into_inner();
        let instance: InstanceInfo =
            response.instance.as_ref().ok_or(WireError::Missing("instance"))?.try_into()?;
        let own = response.own.as_ref().ok_or(WireError::Missing("own"))?;
        Ok(MemberState::from_wire(own, &instance.parameters)?)
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
