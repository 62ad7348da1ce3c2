//! A server for one test, generated clients for it, and correct processes that play an instance to its end.

pub(crate) mod fixtures;
pub(crate) mod frames;
pub(crate) mod raw;
pub(crate) mod slow_disk;
pub(crate) mod stream;

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{Counts, GetCountsRequest, GetCountsResponse, RefusalReason};
use stickycas_server::simulation::{self, Disk};
use stickycas_server::{Config, Listeners, PRINCIPAL_KEY, ServeError, Stopped, run};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

/// The principal that may create instances in these tests.
pub(crate) const COORDINATOR: &str = "coordinator";
/// The principal that may look at every instance.
pub(crate) const OBSERVER: &str = "observer";

/// A server that runs in the runtime of its test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Where operators look.
    pub(crate) http: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<Stopped, ServeError>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    /// A server with a changed configuration, once it serves.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::try_with(change).await.unwrap()
    }

    /// A server with a changed configuration, once it serves.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) async fn try_with(change: impl FnOnce(&mut Config)) -> Result<Self, ServeError> {
        let mut server = Self::begin(change, |Listeners { grpc, http, .. }, config, stopped| {
            tokio::spawn(run(Listeners { http, ..Listeners::from(grpc) }, config, async {
                let _ = stopped.await;
            }))
        });
        server.until_it_serves().await.map(|()| server)
    }

    /// A server whose log is on this disk, once it serves.
    pub(crate) async fn on(disk: impl Disk) -> Self {
        let mut server = Self::begin_on(disk, |_| ());
        server.until_it_serves().await.unwrap();
        server
    }

    /// A server with a changed configuration whose log is on this disk. It may not serve yet.
    pub(crate) fn begin_on(disk: impl Disk, change: impl FnOnce(&mut Config)) -> Self {
        Self::begin(change, |Listeners { grpc, http, .. }, config, stopped| {
            tokio::spawn(simulation::serve(grpc, http, Some(disk), config, async {
                let _ = stopped.await;
            }))
        })
    }

    fn begin(
        change: impl FnOnce(&mut Config),
        serve: impl FnOnce(Listeners, Config, oneshot::Receiver<()>) -> JoinHandle<Result<Stopped, ServeError>>,
    ) -> Self {
        let mut config = Config::insecure([COORDINATOR.to_owned()]);
        config.observers.insert(OBSERVER.to_owned());
        config.drain = Duration::from_millis(200);
        change(&mut config);
        let bind = || stickycas_server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (grpc, operators) = (bind(), bind());
        let [address, http] = [&grpc, &operators].map(|listener| listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let listeners = Listeners { http: Some(operators), ..Listeners::from(grpc) };
        let serving = serve(listeners, config, stopped);
        Self { address, http, stop, serving }
    }

    async fn until_it_serves(&mut self) -> Result<(), ServeError> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let mut health = HealthClient::new(endpoint.connect_lazy());
        with_timeout(async {
            loop {
                if self.serving.is_finished() {
                    return Err((&mut self.serving).await.unwrap().expect_err("it has not served yet"));
                }
                let status = health.check(HealthCheckRequest::default()).await;
                if status.is_ok_and(|status| status.get_ref().status() == ServingStatus::Serving) {
                    return Ok(());
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Ends the server in the middle of what it does, without a drain.
    pub(crate) async fn kill(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }

    /// Tells the server to stop, and waits until it has.
    pub(crate) async fn stop(self) -> Stopped {
        self.begin_shutdown().stopped().await
    }

    /// Tells the server to stop.
    pub(crate) fn begin_shutdown(self) -> ShuttingDown {
        self.stop.send(()).expect("the server runs");
        ShuttingDown(self.serving)
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// A client on a connection of its own.
    pub(crate) async fn client(&self, principal: &str) -> Client {
        Client::on(self.connect().await, principal)
    }
}

/// The counts of the server, as an observer sees them.
impl Server {
    pub(crate) async fn counts(&self) -> GetCountsResponse {
        self.client(OBSERVER).await.counts().await
    }

    /// What the metrics tell of the use of a limit.
    pub(crate) async fn limit_used(&self, limit: &str) -> usize {
        let (_, body) = crate::operators::get(self.http, "/metrics").await;
        let name = format!("stickycas_limit_used{{limit=\"{limit}\"}} ");
        body.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    /// The counts of one principal; zeros if it has none.
    pub(crate) async fn counts_of(&self, principal: &str) -> Counts {
        let all = self.counts().await.principals.into_iter();
        all.filter(|row| row.principal == principal).filter_map(|row| row.counts).next().unwrap_or_default()
    }

    /// The counts of all, once they meet the condition. Each poll lets the server go on.
    pub(crate) async fn counts_until(&self, condition: impl Fn(&Counts) -> bool) -> Counts {
        let mut observer = self.client(OBSERVER).await;
        with_timeout(async {
            loop {
                let all = observer.counts().await.all.unwrap();
                if condition(&all) {
                    return all;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

/// Refusals for this reason.
pub(crate) fn refusals(counts: &Counts, reason: RefusalReason) -> u64 {
    counts.refusals.iter().filter(|row| row.reason() == reason).map(|row| row.count).sum()
}

/// A server that was told to stop.
pub(crate) struct ShuttingDown(JoinHandle<Result<Stopped, ServeError>>);

impl ShuttingDown {
    pub(crate) async fn stopped(self) -> Stopped {
        with_timeout(self.0).await.unwrap().unwrap()
    }
}

/// The generated clients of one principal on one connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub list: StickyCasServiceClient<InterceptedService<Channel, PrincipalInterceptor>>,
    pub instances: InstanceServiceClient<InterceptedService<Channel, PrincipalInterceptor>>,
    pub server: ServerServiceClient<InterceptedService<Channel, PrincipalInterceptor>>,
}

impl Client {
    pub(crate) fn on(channel: Channel, principal: &str) -> Self {
        Self::with(channel, PrincipalInterceptor(vec![principal.parse().unwrap()]))
    }

    /// With any number of names in the metadata.
    pub(crate) fn with(channel: Channel, names: PrincipalInterceptor) -> Self {
        Self {
            list: StickyCasServiceClient::with_interceptor(channel.clone(), names.clone()),
            instances: InstanceServiceClient::with_interceptor(channel.clone(), names.clone()),
            server: ServerServiceClient::with_interceptor(channel, names),
        }
    }
}

impl Client {
    async fn counts(&mut self) -> GetCountsResponse {
        with_timeout(self.server.get_counts(GetCountsRequest::default())).await.unwrap().into_inner()
    }
}

/// Puts principals into the metadata.
#[derive(Clone)]
pub(crate) struct PrincipalInterceptor(pub(crate) Vec<MetadataValue<Ascii>>);

impl Interceptor for PrincipalInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for name in &self.0 {
            request.metadata_mut().append(PRINCIPAL_KEY, name.clone());
        }
        Ok(request)
    }
}

/// The metadata of the ErrorInfo of a refusal.
#[derive(Debug)]
pub(crate) struct ErrorMetadata(pub(crate) HashMap<String, String>);

impl ErrorMetadata {
    #[track_caller]
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.0.get(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.0)).parse().unwrap()
    }
}

/// The reasons whose refusals say when to try again (SPEC section 11).
const WITH_RETRY_INFO: [&str; 11] = [
    "RECOVERING",
    "RATE_EXCEEDED",
    "TOO_MANY_CONNECTIONS",
    "TOO_MANY_WAITING",
    "TOO_MANY_INSTANCES",
    "TOO_MANY_STREAMS",
    "WATCHER_TOO_SLOW",
    "READER_TOO_SLOW",
    "REQUEST_TOO_SLOW",
    "TOO_MANY_BYTES",
    "DRAINING",
];

/// Asserts that the call was refused with this code and reason, and with RetryInfo exactly if the rules
/// promise it.
#[track_caller]
pub(crate) fn assert_refused<T: Debug>(
    outcome: Result<Response<T>, Status>,
    code: Code,
    reason: &str,
) -> ErrorMetadata {
    assert_status(&outcome.expect_err("the call should be refused"), code, reason)
}

/// As [`assert_refused`], of a status.
#[track_caller]
pub(crate) fn assert_status(status: &Status, code: Code, reason: &str) -> ErrorMetadata {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!((status.code(), info.reason.as_str()), (code, reason), "{status:?}");
    assert_eq!(info.domain, "stickycas.v1");
    assert!(!status.message().is_empty());
    let retry = status.get_details_retry_info().and_then(|retry| retry.retry_delay);
    assert_eq!(retry.is_some(), WITH_RETRY_INFO.contains(&reason), "{status:?}");
    ErrorMetadata(info.metadata)
}

/// Fails if the future does not complete. The timeout is long enough for any machine: only a server that
/// hangs reaches it.
pub(crate) async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("the server hangs")
}
