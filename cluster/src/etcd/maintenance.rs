//! The state of the members, beside what [`Store`](crate::store::Store) asks.

use super::client::Client;
use super::failure::Kind;
use super::wire;
use super::wire::alarm_request::AlarmAction;
use super::wire::cluster_client::ClusterClient;
use super::wire::maintenance_client::MaintenanceClient;
use crate::store::StoreError;

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its version, as in `3.4.23`.
    pub version: String,
    /// Its id.
    pub member: u64,
    /// The id of the leader, if it knows one.
    pub leader: Option<u64>,
    /// Bytes of its file; a quota (`--quota-backend-bytes`) is about these.
    pub size: u64,
    /// Bytes of its file that are not free. Compaction frees space in the file; only defragmentation makes it smaller.
    pub size_in_use: u64,
    /// What is wrong: that it knows no leader, or the alarms.
    pub errors: Vec<String>,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name; empty: it was never started.
    pub name: String,
    /// The addresses for its clients.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
}

/// The alarm of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The id of the member.
    pub member: u64,
    /// What it is about.
    pub kind: AlarmKind,
}

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlarmKind {
    /// The quota is used up: the cluster takes only what frees space, until the alarm is disarmed.
    NoSpace,
    /// The members differ: the cluster takes nothing.
    Corrupt,
    /// One that this client does not know.
    Other(i32),
}

impl Client {
    /// Asks one of the endpoints of the configuration how its member is.
    ///
    /// # Errors
    /// See [`StoreError`]; never [`StoreError::Unknown`].
    pub async fn status(&self, endpoint: &str) -> Result<Status, StoreError> {
        let chosen = self.named(endpoint)?;
        let answer = self
            .call_at(
                &chosen,
                self.request_limit(),
                Kind::Read,
                wire::StatusRequest {},
                |channel, request| async move {
                    MaintenanceClient::new(channel).status(request).await.map(tonic::Response::into_inner)
                },
            )
            .await?;
        Ok(Status {
            version: answer.version,
            member: answer.header.map_or(0, |header| header.member_id),
            leader: (answer.leader != 0).then_some(answer.leader),
            size: u64::try_from(answer.db_size).unwrap_or(0),
            size_in_use: u64::try_from(answer.db_size_in_use).unwrap_or(0),
            errors: answer.errors,
        })
    }

    /// All members, as the member that is asked knows them.
    ///
    /// # Errors
    /// See [`StoreError`]; never [`StoreError::Unknown`].
    pub async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let answer = self
            .call(Kind::Read, wire::MemberListRequest {}, |channel, request| async move {
                ClusterClient::new(channel).member_list(request).await.map(tonic::Response::into_inner)
            })
            .await?;
        let member = |member: wire::Member| Member {
            id: member.id,
            name: member.name,
            client_urls: member.client_ur_ls,
            is_learner: member.is_learner,
        };
        Ok(answer.members.into_iter().map(member).collect())
    }

    /// All alarms.
    ///
    /// # Errors
    /// See [`StoreError`]; never [`StoreError::Unknown`].
    pub async fn alarms(&self) -> Result<Vec<Alarm>, StoreError> {
        let request = wire::AlarmRequest { action: AlarmAction::Get.into(), ..wire::AlarmRequest::default() };
        let answer = self.alarm(Kind::Read, request).await?;
        Ok(answer.alarms.iter().map(alarm).collect())
    }

    /// Disarms an alarm: the cluster takes everything again. If the cause is still there, it comes back.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn disarm(&self, alarm: Alarm) -> Result<(), StoreError> {
        let kind = match alarm.kind {
            AlarmKind::NoSpace => wire::AlarmType::Nospace.into(),
            AlarmKind::Corrupt => wire::AlarmType::Corrupt.into(),
            AlarmKind::Other(number) => number,
        };
        let request = wire::AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            member_id: alarm.member,
            alarm: kind,
        };
        self.alarm(Kind::Write, request).await.map(drop)
    }

    /// Makes the file of a member smaller by what is free in it. The member answers nothing meanwhile: one at a time.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn defragment(&self, endpoint: &str) -> Result<(), StoreError> {
        let chosen = self.named(endpoint)?;
        self.call_at(
            &chosen,
            self.defragment_limit(),
            Kind::Write,
            wire::DefragmentRequest {},
            |channel, request| async move {
                MaintenanceClient::new(channel).defragment(request).await.map(drop)
            },
        )
        .await
    }

    async fn alarm(
        &self,
        kind: Kind,
        request: wire::AlarmRequest,
    ) -> Result<wire::AlarmResponse, StoreError> {
        self.call(kind, request, |channel, request| async move {
            MaintenanceClient::new(channel).alarm(request).await.map(tonic::Response::into_inner)
        })
        .await
    }
}

fn alarm(alarm: &wire::AlarmMember) -> Alarm {
    let kind = match wire::AlarmType::try_from(alarm.alarm) {
        Ok(wire::AlarmType::Nospace) => AlarmKind::NoSpace,
        Ok(wire::AlarmType::Corrupt) => AlarmKind::Corrupt,
        Ok(wire::AlarmType::None) | Err(_) => AlarmKind::Other(alarm.alarm),
    };
    Alarm { member: alarm.member_id, kind }
}
