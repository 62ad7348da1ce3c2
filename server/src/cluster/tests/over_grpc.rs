//! Servers of a cluster as clients reach them: by gRPC.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use stickycas_cluster::model::{Faults, Model};
use stickycas_cluster::shard::{ShardCount, shard_of};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    AttachRequest, ClientFrame, GetClusterRequest, GetRequest, Hello, RefusalReason, client_frame,
    get_request,
};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::super::Cluster;
use crate::config::{ClusterConfig, Config};
use crate::storage::Storage;
use crate::{Environment, PRINCIPAL_KEY, serve_in};

const SHARDS: u32 = 6;

/// A server of a cluster, on a port of its own.
struct Server {
    address: String,
    cluster: Arc<Cluster>,
    channel: Channel,
    _serves: AbortOnDropHandle<()>,
}

impl Server {
    async fn start(model: &Model, name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let member = ClusterConfig {
            etcd: Vec::new(),
            etcd_credentials: None,
            etcd_quota: 0,
            name: "demo".to_owned(),
            server: name.to_owned(),
            advertise: address.clone(),
            lease: Duration::from_secs(60),
            shards: SHARDS,
        };
        let config = Config { cluster: Some(member.clone()), ..Config::insecure([]) };
        let cluster = Cluster::with(model.connect(), &member, &config.limits, true).unwrap();
        let storage = Storage::Cluster(cluster.clone());
        let environment =
            Environment { grpc: listener, tokens: None, http: None, page: None, credentials: None, storage };
        let serves = tokio::spawn(async move {
            serve_in(environment, config, pending()).await.unwrap();
        });
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self { address, cluster, channel, _serves: AbortOnDropHandle::new(serves) }
    }

    async fn get(&self, id: InstanceId, principal: Option<&str>) -> Status {
        let get = GetRequest { instance: Some(get_request::Instance::InstanceId(id.to_string())) };
        let got = InstanceServiceClient::new(self.channel.clone()).get(request(get, principal)).await;
        got.expect_err("there is no instance")
    }

    /// What comes on a stream with one message.
    async fn attach(&self, message: AttachRequest, principal: Option<&str>) -> Result<Vec<Frame>, Status> {
        let (count, messages) = (message.frames.len(), tokio_stream::iter([message]));
        let mut client = StickyCasServiceClient::new(self.channel.clone());
        let mut responses = client.attach(request(messages, principal)).await?.into_inner();
        let mut frames = Vec::new();
        while frames.len() < count {
            let message = responses.message().await?.expect("each is answered");
            frames.extend(message.frames.into_iter().filter_map(|frame| frame.frame));
        }
        Ok(frames)
    }

    /// An id of no instance, in a shard of this server according to the other one.
    async fn unknown(&self, other: &Self) -> InstanceId {
        loop {
            for id in (1..=u128::from(SHARDS)).map(InstanceId::new) {
                let refused = RpcRefusal::from_status(&other.get(id, Some("p1")).await);
                let owner = refused.and_then(|refused| refused.owner);
                if owner.is_some_and(|owner| owner.address == self.address) && self.serves(id).await {
                    return id;
                }
            }
        }
    }

    async fn serves(&self, id: InstanceId) -> bool {
        let refused = RpcRefusal::from_status(&self.get(id, Some("p1")).await);
        refused.is_some_and(|refused| refused.reason == RefusalReason::InstanceUnknown)
    }
}

fn request<T>(message: T, principal: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(principal) = principal {
        request.metadata_mut().insert(PRINCIPAL_KEY, principal.parse().unwrap());
    }
    request
}

fn hello(channel: u32, id: InstanceId) -> ClientFrame {
    let hello = Hello { channel, instance_id: id.to_string(), ..Hello::default() };
    ClientFrame { frame: Some(client_frame::Frame::Hello(hello)) }
}

#[tokio::test]
async fn the_owner_is_named_to_callers_with_an_identity_only() {
    let model = Model::new(1, Faults::default());
    let [one, two] = [Server::start(&model, "one").await, Server::start(&model, "two").await];
    let id = two.unknown(&one).await;
    let message = AttachRequest { frames: vec![hello(0, id)] };

    // With an identity it is, by each of these.
    let got = RpcRefusal::from_status(&one.get(id, Some("p1")).await).unwrap();
    assert_eq!(got.owner.map(|owner| owner.address), Some(two.address.clone()));
    match &one.attach(message.clone(), Some("p1")).await.unwrap()[..] {
        [Frame::Refusal(refusal)] => {
            assert_eq!((refusal.reason(), &refusal.owner), (RefusalReason::NotOwner, &two.address));
        }
        other => panic!("{other:?}"),
    }
    let mut of_server = ServerServiceClient::new(one.channel.clone());
    let asked = of_server.get_cluster(request(GetClusterRequest {}, Some("p1"))).await.unwrap();
    assert!(asked.get_ref().servers.iter().any(|server| server.address == two.address));

    let gets = one.get(id, None).await;
    let attaches = one.attach(message, None).await.unwrap_err();
    let asks = of_server.get_cluster(request(GetClusterRequest {}, None)).await.unwrap_err();
    for (what, status) in [("Get", gets), ("Attach", attaches), ("GetCluster", asks)] {
        let refused = RpcRefusal::from_status(&status).unwrap();
        assert_eq!(
            (status.code(), refused.reason, &refused.owner),
            (Code::Unauthenticated, RefusalReason::NoIdentity, &None),
            "{what}"
        );
        let port = two.address.rsplit_once(':').unwrap().1;
        assert!(
            !format!("{status:?} {}", String::from_utf8_lossy(status.details())).contains(port),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_hello_of_no_instance_is_confirmed_by_its_shard_alone() {
    const HELLOS: u32 = 1_000;
    let model = Model::new(2, Faults::default());
    let server = Server::start(&model, "one").await;
    let ids = (1..=u128::from(SHARDS)).map(InstanceId::new);
    for id in ids {
        while !server.serves(id).await {}
    }
    let id = InstanceId::new(1);
    assert_eq!(shard_of(id.get(), ShardCount::new(SHARDS).unwrap()).get(), 1);
    let before = server.cluster.confirmer.confirmations();
    let frames = (0..HELLOS).map(|channel| hello(channel, id)).collect();
    let told = server.attach(AttachRequest { frames }, Some("p1")).await.unwrap();
    for frame in told {
        assert!(
            matches!(&frame, Frame::Refusal(refusal) if refusal.reason() == RefusalReason::InstanceUnknown),
            "{frame:?}"
        );
    }
    let after = server.cluster.confirmer.confirmations();
    assert_eq!(after.confirmed - before.confirmed, u64::from(HELLOS), "and not of each of {SHARDS} shards");
    assert!(after.reads - before.reads < u64::from(HELLOS), "{before:?}, {after:?}");
}
