//! Servers of a cluster as clients reach them: by gRPC.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use stickycas_cluster::model::{Faults, Model};
use stickycas_cluster::shard::{ShardCount, shard_of};
use stickycas_cluster::store::{Op, Store as _, Txn};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    AppendRequest, AttachRequest, ClientFrame, CreateRequest, EndlessPatience, GetClusterRequest, GetRequest,
    Hello, ListRequest, Parameters, RefusalReason, client_frame, get_request, parameters,
};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::super::Cluster;
use crate::config::{ClusterConfig, Config};
use crate::storage::Storage;
use crate::{PRINCIPAL_KEY, ServerParts, serve_in};

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
        let config = Config { cluster: Some(member.clone()), ..Config::insecure(["judge".to_owned()]) };
        let cluster = Cluster::with(model.connect(), &member, &config.limits, true).unwrap();
        let storage = Storage::Cluster(cluster.clone());
        let environment =
            ServerParts { grpc: listener, tokens: None, http: None, credentials: None, storage };
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

/// Why a call was refused. It does not wait for space.
async fn refused<T: std::fmt::Debug>(
    call: impl Future<Output = Result<T, Status>>,
) -> (RefusalReason, String) {
    let told = tokio::time::timeout(Duration::from_secs(30), call).await.expect("it is told at once");
    let refused = RpcRefusal::from_status(&told.expect_err("it is refused")).unwrap();
    (refused.reason, refused.message)
}

impl Server {
    /// Creates an instance with one process, each of whose accesses is executed at once; its id.
    async fn create(&self, name: &str) -> Result<String, Status> {
        let patience = parameters::PatienceChoice::EndlessPatience(EndlessPatience {});
        let parameters = Parameters {
            processes: 1,
            warp_size: 1,
            read_size: 1,
            patience_choice: Some(patience),
            max_value_bytes: 64,
            pipeline: 4,
            ..Parameters::default()
        };
        let create = CreateRequest {
            name: name.to_owned(),
            roster: vec!["p1".to_owned()],
            parameters: Some(parameters),
        };
        let mut client = InstanceServiceClient::new(self.channel.clone());
        let created = client.create(request(create, Some("judge"))).await?;
        Ok(created.into_inner().instance.unwrap().instance_id)
    }

    async fn append(&self, instance_id: &str, access_number: u64) -> Result<(), Status> {
        let append = AppendRequest {
            instance_id: instance_id.to_owned(),
            access_number,
            value: "x".into(),
            no_wait: false,
        };
        let mut client = StickyCasServiceClient::new(self.channel.clone());
        client.append(request(append, Some("p1"))).await.map(drop)
    }

    async fn find(&self, which: get_request::Instance) -> Result<(), Status> {
        let get = GetRequest { instance: Some(which) };
        InstanceServiceClient::new(self.channel.clone()).get(request(get, Some("judge"))).await.map(drop)
    }

    /// How many instances there are.
    async fn list(&self) -> Result<usize, Status> {
        let mut client = InstanceServiceClient::new(self.channel.clone());
        let listed = client.list(request(ListRequest::default(), Some("judge"))).await?;
        Ok(listed.into_inner().instances.len())
    }
}

#[tokio::test]
async fn without_space_calls_are_refused_at_once_and_told_why() {
    const AT_ONCE: usize = 20;
    let model = Model::new(3, Faults { delay: Duration::from_millis(5), ..Faults::default() });
    let server = Arc::new(Server::start(&model, "one").await);
    let first = loop {
        if let Ok(first) = server.create("first").await {
            break first;
        }
    };
    let idle = server.create("idle").await.unwrap();
    // What crosses the quota is applied: the servers do not know of it yet.
    model.set_quota(Some(1));
    let put = Op::Put { key: "other".into(), value: "x".into(), lease: None };
    model.connect().txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap_err();

    let creates: Vec<_> = (0..AT_ONCE)
        .map(|number| {
            let (server, name) =
                (server.clone(), if number % 2 == 0 { format!("new-{number}") } else { String::new() });
            tokio::spawn(async move { refused(server.create(&name)).await })
        })
        .collect();
    for create in creates {
        let (reason, why) = create.await.unwrap();
        assert_eq!(reason, RefusalReason::TooManyInstances, "{why}");
        assert!(why.contains("full"), "{why}");
    }
    let unknown = || server.find(get_request::Instance::Name("new-0".to_owned()));
    assert_eq!(refused(unknown()).await.0, RefusalReason::InstanceUnknown);
    assert_eq!(server.list().await.unwrap(), 2);

    // An access waits for space, and nothing else does.
    let waiting = tokio::spawn({
        let (server, first) = (server.clone(), first.clone());
        async move { server.append(&first, 1).await }
    });
    // Until it is taken, the instance is shown as before.
    while server.find(get_request::Instance::InstanceId(first.clone())).await.is_ok() {}
    assert_eq!(refused(server.create("late")).await.0, RefusalReason::TooManyInstances);
    assert_eq!(refused(unknown()).await.0, RefusalReason::InstanceUnknown);
    assert_eq!(refused(server.list()).await.0, RefusalReason::Recovering);
    let (reason, why) = refused(server.find(get_request::Instance::InstanceId(first.clone()))).await;
    assert_eq!(reason, RefusalReason::Recovering);
    assert!(why.contains("no space"), "{why}");
    server.find(get_request::Instance::InstanceId(idle)).await.unwrap();
    assert!(!waiting.is_finished());

    model.set_quota(None);
    waiting.await.unwrap().unwrap();
    while server.create("new-0").await.is_err() {}
    assert_eq!(server.list().await.unwrap(), 3, "nothing is left of what was refused");
}
