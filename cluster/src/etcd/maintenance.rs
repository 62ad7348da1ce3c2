//! What a cluster asks of the members of etcd ([`Members`]), as requests of its client.

use super::client::Client;
use super::failure::Kind;
use super::wire;
use super::wire::alarm_request::AlarmAction;
use super::wire::maintenance_client::MaintenanceClient;
use crate::store::{MemberSpace, Members, StoreError};

impl Members for Client {
    fn endpoints(&self) -> Vec<String> {
        self.shared.endpoints.urls()
    }

    async fn space(&self, endpoint: &str) -> Result<MemberSpace, StoreError> {
        let (chosen, limit) = (self.named(endpoint)?, self.shared.config.request_limit);
        let answer = self
            .call_at(&chosen, limit, Kind::Read, wire::StatusRequest {}, |channel, request| async move {
                MaintenanceClient::new(channel).status(request).await
            })
            .await?;
        let member = answer.header.map_or(0, |header| header.member_id);
        Ok(MemberSpace {
            size: u64::try_from(answer.db_size).unwrap_or(0),
            size_in_use: u64::try_from(answer.db_size_in_use).unwrap_or(0),
            is_leader: answer.leader != 0 && answer.leader == member,
        })
    }

    async fn defragment(&self, endpoint: &str) -> Result<(), StoreError> {
        let (chosen, limit) = (self.named(endpoint)?, self.shared.config.defragment_limit);
        let request = wire::DefragmentRequest {};
        let answer = self.call_at(&chosen, limit, Kind::Write, request, |channel, request| async move {
            MaintenanceClient::new(channel).defragment(request).await
        });
        answer.await.map(drop)
    }

    async fn alarm(&self) -> Result<bool, StoreError> {
        let request = wire::AlarmRequest { action: AlarmAction::Get.into(), ..wire::AlarmRequest::default() };
        let answer = self
            .call(Kind::Read, request, |channel, request| async move {
                MaintenanceClient::new(channel).alarm(request).await
            })
            .await?;
        Ok(answer.alarms.iter().any(|alarm| alarm.alarm == i32::from(wire::AlarmType::Nospace)))
    }
}
