//! [`Store`] and [`Members`] by requests of the client of etcd.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_stream::StreamExt as _;
use tonic::{Response, Status};

use super::client::{Client, kv, malformed};
use super::convert;
use super::failure::Kind;
use super::watch::EtcdWatch;
use super::wire;
use super::wire::alarm_request::AlarmAction;
use super::wire::lease_client::LeaseClient;
use super::wire::maintenance_client::MaintenanceClient;
use crate::store::{
    KeyRange, LeaseId, MemberSpace, Members, Op, RangeAnswer, Revision, Store, StoreError, Txn, TxnAnswer,
};

impl Store for Client {
    type Watch = EtcdWatch;

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, StoreError> {
        let reads = txn.then.iter().chain(&txn.otherwise).all(|op| matches!(op, Op::Get(_)));
        let kind = if reads { Kind::Read } else { Kind::Write };
        let request = convert::txn_request(txn)?;
        let answer =
            self.call(kind, request, |channel, request| async move { kv(channel).txn(request).await });
        let answer = convert::txn_answer(answer.await?).map_err(malformed(kind))?;
        self.shared.newest.fetch_max(answer.revision.0, Ordering::Relaxed);
        Ok(answer)
    }

    async fn range(&self, range: KeyRange, limit: usize) -> Result<RangeAnswer, StoreError> {
        let request = convert::range_request(range, limit)?;
        let answer = self
            .call(Kind::Read, request, |channel, request| async move { kv(channel).range(request).await });
        let answer = convert::range_answer(answer.await?).map_err(malformed(Kind::Read))?;
        self.shared.newest.fetch_max(answer.revision.0, Ordering::Relaxed);
        Ok(answer)
    }

    async fn grant(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        let request = wire::LeaseGrantRequest { ttl: convert::seconds(time_to_live), id: 0 };
        let answer = self.call(Kind::Write, request, |channel, request| async move {
            LeaseClient::new(channel).lease_grant(request).await
        });
        let answer = answer.await?;
        if answer.id == 0 {
            return Err(StoreError::Unknown(format!("etcd has given no lease: {}", answer.error)));
        }
        Ok(LeaseId(answer.id))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        let request = wire::LeaseKeepAliveRequest { id: lease.0 };
        // A stream of its own: a stream for several would answer in order, so that one that waits holds up
        // the others. It stays open until the answer has come: a proxy of etcd (`etcd grpc-proxy`) answers
        // nothing on one that was closed.
        let answer = self
            .call(Kind::KeepAlive, request, |channel, request| async move {
                let request =
                    request.map(|request| tokio_stream::once(request).chain(tokio_stream::pending()));
                let mut answers = LeaseClient::new(channel).lease_keep_alive(request).await?.into_inner();
                let answer = answers.message().await?;
                answer.map(Response::new).ok_or_else(|| Status::unknown("the stream has ended"))
            })
            .await?;
        match u64::try_from(answer.ttl) {
            Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
            _ => Err(StoreError::NoLease),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let request = wire::LeaseRevokeRequest { id: lease.0 };
        let answer = self.call(Kind::Write, request, |channel, request| async move {
            LeaseClient::new(channel).lease_revoke(request).await
        });
        answer.await.map(drop)
    }

    async fn watch(&self, range: KeyRange, from: Revision) -> Result<EtcdWatch, StoreError> {
        EtcdWatch::open(self, range, from).await
    }

    fn newest(&self) -> Revision {
        Revision(self.shared.newest.load(Ordering::Relaxed))
    }

    fn forget_newest(&self) {
        self.shared.newest.store(0, Ordering::Relaxed);
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let number = convert::signed(revision)?;
        let request = wire::CompactionRequest { revision: number, physical: false };
        let answer = self
            .call(Kind::Write, request, |channel, request| async move { kv(channel).compact(request).await });
        answer.await.map(drop).map_err(|error| match error {
            StoreError::Compacted(_) => StoreError::Compacted(revision),
            other => other,
        })
    }
}

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
