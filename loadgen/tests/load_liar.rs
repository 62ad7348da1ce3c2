//! A load is judged: a server that lies is caught, and one that does the same honestly is not accused.
//!
//! The server here is a few lines that answer unary calls for instances of two processes in one warp: both append in
//! phase 1 and read in phase 2.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use stickycas_loadgen::load::profile::Flags;
use stickycas_loadgen::load::{self, Measured, Profile};
use stickycas_loadgen::run::{COORDINATOR, Site};
use stickycas_model::judge::Outcome;
use stickycas_proto::names::PRINCIPAL_KEY;
use stickycas_proto::v1;
use stickycas_proto::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use stickycas_proto::v1::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
use tokio_stream::Pending;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    None,
    /// Both are told that they have won the phase.
    TwoWinners,
    /// The second is shown another entry than the first.
    TwoLists,
    /// The second is answered twice in one phase.
    LatePhase,
}

struct Liar {
    lie: Lie,
    lists: Mutex<HashMap<String, Bytes>>,
}

fn is_second<T>(request: &Request<T>) -> bool {
    request.metadata().get(PRINCIPAL_KEY).unwrap().to_str().unwrap().ends_with("-2")
}

#[tonic::async_trait]
impl StickyCasService for Liar {
    async fn append(
        &self,
        request: Request<v1::AppendRequest>,
    ) -> Result<Response<v1::AppendResponse>, Status> {
        let v1::AppendRequest { instance_id, value, .. } = request.into_inner();
        let mut lists = self.lists.lock().unwrap();
        let won = !lists.contains_key(&instance_id);
        lists.entry(instance_id).or_insert(value);
        let result = if won || self.lie == Lie::TwoWinners {
            v1::AppendResult { outcome: v1::AppendOutcome::Success.into(), position: Some(0) }
        } else {
            v1::AppendResult { outcome: v1::AppendOutcome::Failed.into(), position: None }
        };
        Ok(Response::new(v1::AppendResponse { phase: 1, result: Some(result) }))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<v1::ReadResponse>, Status> {
        let second = is_second(&request);
        let instance_id = request.into_inner().instance_id;
        let value = self.lists.lock().unwrap()[&instance_id].clone();
        let value = if second && self.lie == Lie::TwoLists { Bytes::from_static(b"another.") } else { value };
        let result = v1::ReadResult { start: 0, values: vec![value], length: 1, sealed: true };
        let phase = if second && self.lie == Lie::LatePhase { 1 } else { 2 };
        Ok(Response::new(v1::ReadResponse { phase, result: Some(result) }))
    }

    async fn decide(&self, _: Request<v1::DecideRequest>) -> Result<Response<v1::DecideResponse>, Status> {
        Ok(Response::new(v1::DecideResponse {}))
    }

    type AttachStream = Pending<Result<v1::AttachResponse, Status>>;

    async fn attach(
        &self,
        _: Request<Streaming<v1::AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        Err(Status::unimplemented("unary calls only"))
    }
}

/// Creates instances, and nothing else.
struct Creator(AtomicU64);

#[tonic::async_trait]
impl InstanceService for Creator {
    async fn create(&self, _: Request<v1::CreateRequest>) -> Result<Response<v1::CreateResponse>, Status> {
        let instance_id = format!("{:032x}", self.0.fetch_add(1, Ordering::Relaxed));
        let instance = v1::Instance { instance_id, ..v1::Instance::default() };
        Ok(Response::new(v1::CreateResponse { instance: Some(instance), created: true }))
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type WatchStream = Pending<Result<v1::WatchResponse, Status>>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn close(&self, _: Request<v1::CloseRequest>) -> Result<Response<v1::CloseResponse>, Status> {
        Ok(Response::new(v1::CloseResponse {}))
    }
}

const PROFILE: &str = r#"
name = "liar"
seed = 5
[instance]
processes = 2
warp_size = 2
read_size = 1
[load]
transport = "unary"
in_flight = 4
instances = 20
watch_share = 0.0
"#;

async fn under_load(lie: Lie) -> Measured {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder()
        .add_service(StickyCasServiceServer::new(Liar { lie, lists: Mutex::default() }))
        .add_service(InstanceServiceServer::new(Creator(AtomicU64::new(1))));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let profile = Profile::parse("liar.toml", PROFILE, &Flags::default()).unwrap();
    let site = Site::open(&url, COORDINATOR).await.unwrap();
    let loaded = load::run(&site, &profile, std::future::pending(), |_| {}).await.unwrap();
    Measured::of(&profile, loaded, None)
}

#[track_caller]
fn caught(measured: &Measured, rule: &str) {
    let result = &measured.result;
    assert_eq!((result.verdict, result.exit_code()), (Outcome::Violation, 1));
    assert_eq!(result.judged.violation, 20, "{:?}", result.judged);
    assert!(result.judged.reasons.iter().any(|reason| reason.contains(rule)), "{:?}", result.judged.reasons);
}

#[tokio::test]
async fn an_honest_server_is_not_accused() {
    let result = under_load(Lie::None).await.result;
    assert_eq!((result.verdict, result.judged.valid), (Outcome::Valid, 20), "{:?}", result.judged);
}

#[tokio::test]
async fn two_winners_of_one_phase_are_a_violation() {
    caught(&under_load(Lie::TwoWinners).await, "violation: A1: processes");
}

#[tokio::test]
async fn two_lists_are_a_violation_and_so_is_the_disagreement_that_follows() {
    let measured = under_load(Lie::TwoLists).await;
    caught(&measured, "violation: R2: at position 0");
    caught(&measured, "agreement");
}

#[tokio::test]
async fn an_answer_of_a_phase_that_has_passed_is_a_violation() {
    caught(&under_load(Lie::LatePhase).await, "violation: F7: process 2");
}
