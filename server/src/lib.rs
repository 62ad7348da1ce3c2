//! The StickyCAS server: the shared memory of the paper, as a gRPC service.
//!
//! It is thin. A call is identified and admitted, decoded, and handed to the machine of its instance
//! ([`stickycas_model::machine`]), which decides everything in one synchronous step; the answer is encoded.
//! The way of an append:
//!
//! ```text
//!  transport ──> call layer ──> service ──> instances ──> machine ──> effects
//!   HTTP/2       auth, quota    decode      one lock      one step    events
//!
//!  effects ──> commit log ──> event log ──> outbox or call
//!               commit         for Watch     encode
//! ```
//!
//! [`run`] serves on a bound listener until a future completes; the binary adds flags and signals.

#![cfg_attr(
    not(feature = "cluster"),
    allow(dead_code, reason = "a server that is alone uses less of its logs")
)]

mod auth;
mod call_layer;
pub mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod commit_log;
mod config;
#[cfg(test)]
mod counting_waker;
mod data;
mod event_log;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gate;
mod http;
mod instances;
pub mod limits;
mod logging;
mod memory;
mod metrics;
mod open_files;
mod poll_clock;
mod quota;
mod readiness;
mod service;
mod settings;
#[cfg(feature = "simulation")]
pub mod simulation;
mod storage;
mod transport;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;

use stickycas_proto::v1::{instance_service_server, server_service_server, sticky_cas_service_server};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::{Layer as _, service_fn};

pub use auth::CredentialsError;
pub use config::{Admission, AuthMode, ClusterConfig, Config, CredentialFolder, TokenConfig};
pub use open_files::allow_all_files;
pub use stickycas_proto::principal::PRINCIPAL_KEY;

use auth::{Authenticator, CredentialStore, Roles};
use call_layer::CallLayer;
#[cfg(feature = "cluster")]
pub use cluster::ClusterError;
pub use commit_log::EngineError;
use http::Sources;
pub use instances::RecoveryError;
pub use logging::{Guard as LogGuard, log_to_stderr};
use quota::{KnownPrincipals, Method, Principals};
use readiness::{Readiness, State, set_health};
use service::Service;
use storage::Storage;
pub use storage::StorageError;
pub use transport::{ClientAcceptor, Listener, ProvenClient, listen};
use transport::{GrpcListener, GrpcTimeout, Security};

/// The listeners of a server.
#[derive(Debug)]
pub struct Listeners {
    /// For clients: gRPC.
    pub grpc: TcpListener,
    /// For clients with tokens: gRPC; `None`: nowhere.
    pub tokens: Option<TcpListener>,
    /// For operators: `/livez`, `/readyz` and `/metrics` over HTTP; `None`: nowhere.
    pub http: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    /// For clients only.
    fn from(grpc: TcpListener) -> Self {
        Self { grpc, tokens: None, http: None }
    }
}

/// The outcome of a server that was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every connection has ended by itself.
    Clean,
    /// Some were cut off when the drain deadline passed.
    Forced,
    /// The log could not be written any more.
    LogFailed,
}

/// The reason for which a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The reflection service rejects our own descriptors.
    #[error("the service descriptors cannot be reflected")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// There is no log.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Serves on these listeners until `shutdown` completes, then drains: health says NOT_SERVING, nothing new is
/// taken, open streams and waiting calls end with UNAVAILABLE, and after [`Config::drain`] what is still open
/// is cut off.
///
/// # Errors
/// If reflection cannot be built, or the log cannot be opened or recovered.
pub async fn run(
    listeners: impl Into<Listeners>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let storage = Storage::new(&config)?;
    let credentials = CredentialStore::of(&config)?;
    let Listeners { grpc, tokens, http } = listeners.into();
    serve_in(ServerParts { grpc, tokens, http, credentials, storage }, config, shutdown).await
}

/// The resources of the machine that a server uses. Beside them there are only the clock and the random
/// numbers of the operating system.
struct ServerParts<L> {
    grpc: L,
    tokens: Option<L>,
    http: Option<TcpListener>,
    /// `None`: connections are not secured.
    credentials: Option<Arc<CredentialStore>>,
    storage: Storage,
}

/// The response to a call of a service that does not exist.
fn unknown_service<B>(_: ::http::Request<B>) -> Ready<Result<::http::Response<Body>, Infallible>> {
    ready(Ok(Status::unimplemented("there is no such service").into_http()))
}

async fn serve_in<L: Listener>(
    environment: ServerParts<L>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let ServerParts { grpc, tokens, http, credentials, storage } = environment;
    let limits = &config.limits;
    // A log that has something to recover begins with State::Recovering, and serves afterwards. Without a log
    // on disk there is nothing to recover.
    let recovers = storage.recovers();
    let readiness = Readiness::new(if recovers { State::Recovering } else { State::Serving });
    // Ends the accept loop, connections, streams and waiting calls.
    let drain = CancellationToken::new();
    // They end with this future.
    let mut tasks = JoinSet::new();
    let known = KnownPrincipals::default();
    let roles = Roles::of_settings(&config);
    known.set_roles(roles.coordinators(), roles.observers());
    if let Some(store) = credentials.clone() {
        let known = known.clone();
        let set = move |roles: &Roles| known.set_roles(roles.coordinators(), roles.observers());
        tasks.spawn(store.clone().with_roles(set));
        tasks.spawn(store.run());
    }
    let instances = storage.instances(limits.clone(), known.clone());
    let load = instances.load().clone();
    tasks.spawn(async move { load.run().await });
    let timed = instances.clone();
    let timers = AbortOnDropHandle::new(tokio::spawn(async move { timed.run_timers().await }));

    let principals = Principals::with(limits, config.admission, known);
    let service = Service::new(
        instances.clone(),
        limits.clone(),
        drain.clone(),
        principals.clone(),
        credentials.clone(),
    );
    if !recovers {
        service.set_recovered();
    }
    let upkeep = service.clone();
    tasks.spawn(async move { upkeep.run_upkeep().await });
    let authenticator =
        credentials.clone().map_or_else(|| Authenticator::Insecure(roles), Authenticator::Proven);
    let call_layer = CallLayer::new(authenticator, limits, principals.clone(), instances.gates().clone());
    let (mut health, health_service) = tonic_health::server::health_reporter();
    let (report, reporter) = (readiness.clone(), health.clone());
    tasks.spawn(async move { report.report(reporter, HEALTH_NAMES).await });
    let sources = Arc::new(Sources {
        instances: instances.clone(),
        principals: principals.clone(),
        service: service.clone(),
        readiness: readiness.clone(),
        credentials: credentials.clone(),
        limits: limits.clone(),
        commit_log: storage.metrics(),
        #[cfg(feature = "cluster")]
        cluster: storage.cluster(),
    });
    if let Some(http) = http {
        let names = config.http_hosts.clone();
        tasks.spawn(async move { http::serve(http, &names, sources).await });
    }

    let mut routes = Routes::builder();
    routes
        .add_service(call_layer.layer(service.list()))
        .add_service(call_layer.layer(service.instances()))
        .add_service(call_layer.layer(service.server()))
        .add_service(call_layer.open_to_all(Method::Health).layer(health_service));
    if config.reflection {
        let layer = call_layer.open_to_all(Method::Reflection);
        routes
            .add_service(layer.layer(reflection().build_v1()?))
            .add_service(layer.layer(reflection().build_v1alpha()?));
    }
    let mut routes = routes.routes();
    let router = routes.axum_router_mut();
    *router = std::mem::take(router)
        .fallback_service(call_layer.open_to_all(Method::Unknown).layer(service_fn(unknown_service)));
    let calls = GrpcTimeout::new(routes.prepare(), instances.gates().clone());
    #[cfg(feature = "otlp")]
    let calls = transport::CallSpans(calls);

    let serve = transport::serve(
        grpc_listeners(grpc, tokens, credentials),
        calls,
        limits,
        &principals,
        drain.clone(),
    );
    tokio::pin!(serve, shutdown);
    set_health(&mut health, HEALTH_NAMES, readiness.state()).await;
    tokio::select! {
        () = &mut serve => return Ok(Stopped::Clean),
        () = &mut shutdown => return Ok(Stopped::Clean),
        recovered = storage.recover(&instances) => recovered?,
    }
    // These hold the log.
    let mut log_tasks = JoinSet::new();
    let checkpoints = (storage.clone(), instances.clone());
    let checkpoints = log_tasks.spawn(async move { checkpoints.0.keep_short(&checkpoints.1).await });
    if let Some((folder, engine)) = storage.folder().map(|(folder, engine)| (folder.to_owned(), engine)) {
        let end = drain.child_token();
        log_tasks.spawn(async move {
            if let Err(error) = data::socket::serve(&folder, engine, end).await {
                tracing::warn!("no backup can be made while the server runs: {error:#}");
            }
        });
    }
    service.set_recovered();
    readiness.set(State::Serving);
    let follows = (storage.clone(), readiness.clone());
    tasks.spawn(async move { follows.0.follow_readiness(&follows.1).await });
    let failed = tokio::select! {
        () = &mut serve => return Ok(Stopped::Clean),
        () = &mut shutdown => false,
        _ = storage.failed() => true,
    };
    if failed {
        readiness.set(State::LogFailed);
    } else {
        storage.hand_over(config.drain).await;
    }
    instances.logs().stop_clock();
    storage.write_last_served_time();
    // First health says NOT_SERVING, so that load balancers look elsewhere, and clients are told before their
    // streams end. Then time of all instances stands still, since nobody is served from here on (F3). Then
    // nothing new is accepted, and open streams and waiting calls end with UNAVAILABLE; their accesses stay
    // (F8a).
    readiness.set(State::Draining);
    set_health(&mut health, HEALTH_NAMES, State::Draining).await;
    timers.abort();
    // Waits for the end of the task; an aborted task has no other result.
    let _ = timers.await;
    drain.cancel();
    instances.cancel_waiters();
    let drained = tokio::time::timeout(config.drain, serve).await;
    // So that the folder of the log is free for another server when this one has ended.
    checkpoints.abort();
    while log_tasks.join_next().await.is_some() {}
    storage.close().await;
    Ok(match drained {
        _ if failed => Stopped::LogFailed,
        Ok(()) => Stopped::Clean,
        Err(_) => Stopped::Forced,
    })
}

/// The listeners for clients, each with what its connections prove. Without credentials there are no tokens.
fn grpc_listeners<L>(
    grpc: L,
    tokens: Option<L>,
    credentials: Option<Arc<CredentialStore>>,
) -> Vec<GrpcListener<L>> {
    let Some(store) = credentials else {
        return vec![GrpcListener { listener: grpc, security: Security::Plain }];
    };
    let tokens = tokens.map(|listener| (listener, Security::Tokens(store.clone())));
    let grpc = (grpc, Security::ClientCertificates(store));
    [grpc].into_iter().chain(tokens).map(|(listener, security)| GrpcListener { listener, security }).collect()
}

/// The services of ours; the descriptors also hold services that other programs serve.
const SERVED: [&str; 3] = [
    instance_service_server::SERVICE_NAME,
    server_service_server::SERVICE_NAME,
    sticky_cas_service_server::SERVICE_NAME,
];
/// The names that health can be asked for: the server as a whole, and each service.
const HEALTH_NAMES: &[&str] = &["", SERVED[0], SERVED[1], SERVED[2]];

/// The reflection service, for the services that are served here, health included. Older tools ask for
/// v1alpha.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    let builder = tonic_reflection::server::Builder::configure();
    SERVED
        .into_iter()
        .chain([tonic_health::pb::health_server::SERVICE_NAME])
        .fold(builder, tonic_reflection::server::Builder::with_service_name)
        .register_encoded_file_descriptor_set(stickycas_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
