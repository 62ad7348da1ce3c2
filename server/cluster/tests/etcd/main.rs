//! The client beside a real etcd. Each test starts its own, of one member or of three.

#![allow(clippy::unwrap_used, reason = "a test ends with what went wrong")]

mod access;
mod members;
mod proxies;
mod put_back;
mod space;
mod store;
mod watch;

use std::time::Duration;

use stickycas_cluster::etcd::{Client, Config};
use stickycas_cluster::store::{Compare, Op, Revision, Store, StoreError, Txn, TxnAnswer};
use stickycas_cluster::testing::conformance::{put, unconditional};
use stickycas_cluster::testing::etcd::{Etcd, Options, Program};

/// Starts a cluster in the directory for temporary files.
async fn start(options: &Options) -> Etcd {
    let program = Program::find(None, &std::env::temp_dir()).unwrap().expect("etcd is in PATH");
    let options = Options { fsync: !program.can_leave_fsync, ..options.clone() };
    program.start(&options).await.unwrap()
}

/// One member, and a client.
async fn single() -> (Etcd, Client) {
    let etcd = start(&Options::default()).await;
    let client = Client::new(&etcd.config()).unwrap();
    (etcd, client)
}

/// Sets a key.
async fn set(client: &Client, key: &str, value: &str) -> Result<TxnAnswer, StoreError> {
    client.txn(unconditional(vec![put(key.to_owned(), value.to_owned())])).await
}

/// Creates a key, however often that must be tried: what is unknown is found out by the comparison.
async fn create(client: &Client, key: &str) {
    let txn = Txn {
        compare: vec![Compare::Created(key.to_owned().into(), Revision(0))],
        then: vec![put(key.to_owned(), "")],
        otherwise: vec![],
    };
    let mut unknown = false;
    loop {
        match client.txn(txn.clone()).await {
            Ok(answer) => {
                assert!(answer.succeeded || unknown, "{key} was there, though nothing is unknown");
                return;
            }
            Err(StoreError::Unknown(_)) => unknown = true,
            Err(StoreError::NotDone(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{key}: {error}"),
        }
    }
}

/// Limits that are short enough for what never answers, and long enough for an etcd on a busy machine.
fn impatient(config: Config) -> Config {
    let limit = Duration::from_millis(1_500);
    let watch_idle = Duration::from_millis(100);
    Config { request_limit: limit, connect_limit: limit, watch_idle, ..config }
}

/// A get of one key.
fn get(key: &str) -> Op {
    Op::Get(stickycas_cluster::store::KeyRange::one(key.to_owned()))
}
