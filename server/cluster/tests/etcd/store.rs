use std::time::Duration;

use stickycas_cluster::etcd::{Client, EtcdWatch};
use stickycas_cluster::model::{Faults, Model};
use stickycas_cluster::store::{KeyRange, LeaseId, RangeAnswer, Revision, Store, StoreError, Txn, TxnAnswer};
use stickycas_cluster::testing::conformance::{compare, conforms, put, unconditional};

use super::{get, single};

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn etcd_does_what_every_store_does() {
    let (_etcd, client) = single().await;
    conforms(&client, "/conforms/").await.unwrap();
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn two_clusters_answer_random_requests_alike() {
    let ((_first, a), (_second, b)) = (single().await, single().await);
    for seed in 0..20 {
        compare(seed, 200, &format!("/{seed}/"), (&a, &b)).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn the_model_answers_random_requests_like_etcd() {
    let (_etcd, client) = single().await;
    let model = Model::new(0, Faults::default()).connect();
    for seed in 0..50 {
        compare(seed, 200, &format!("/{seed}/"), (&client, &model)).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn the_comparison_finds_a_store_that_forgets_to_compare() {
    let ((_first, a), (_second, b)) = (single().await, single().await);
    let error = compare(1, 200, "/x/", (&a, &Unconditional(b))).await.unwrap_err();
    assert!(format!("{error:#}").contains("seed 1"), "{error:#}");
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_request_that_is_too_large_is_refused_and_the_next_one_is_taken() {
    let (_etcd, client) = single().await;
    // Above etcd's limit of 1.5 MiB, and above that of its gRPC, 0.5 MiB more.
    for bytes in [(3 << 19) + 1, 3 << 20] {
        let answer = client.txn(unconditional(vec![put("large", vec![0; bytes])])).await;
        assert!(matches!(answer, Err(StoreError::Refused(_))), "{bytes}: {answer:?}");
    }
    let large = client.txn(unconditional(vec![put("large", vec![0; 1 << 20]), get("large")])).await.unwrap();
    assert_eq!(large.found[0][0].value.len(), 1 << 20);
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn an_answer_may_be_larger_than_the_default_limit_of_grpc() {
    let (_etcd, client) = single().await;
    for key in 0..6 {
        client.txn(unconditional(vec![put(format!("k/{key}"), vec![7; 1 << 20])])).await.unwrap();
    }
    let answer = client.range(KeyRange::prefix("k/"), 0).await.unwrap();
    assert_eq!(answer.found.iter().map(|kv| kv.value.len()).sum::<usize>(), 6 << 20);
}

/// A store whose transactions always succeed.
#[derive(Debug)]
struct Unconditional(Client);

impl Store for Unconditional {
    type Watch = EtcdWatch;

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, StoreError> {
        self.0.txn(Txn { compare: Vec::new(), ..txn }).await
    }

    async fn range(&self, range: KeyRange, limit: usize) -> Result<RangeAnswer, StoreError> {
        self.0.range(range, limit).await
    }

    async fn grant(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        self.0.grant(time_to_live).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        self.0.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.0.revoke(lease).await
    }

    async fn watch(&self, range: KeyRange, from: Revision) -> Result<EtcdWatch, StoreError> {
        self.0.watch(range, from).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.0.compact(revision).await
    }
}
