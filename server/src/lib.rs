//! The StickyCAS server: the shared memory of the paper, as a gRPC service.
//!
//! It is thin. A call is decoded, its caller identified, and what it asks handed to the machine of its
//! instance ([`stickycas_model::machine`]), which decides everything in one synchronous step; what comes out
//! is encoded. The way of an append:
//!
//! ```text
//!   border ──> service ──> instances ──> machine ──> record ──> outbox or caller
//!  who calls    decode      one lock      one step    store      encode
//! ```
//!
//! [`run`] serves on a bound listener until a future says stop; the binary adds flags and signals.

mod auth;
mod call_layer;
pub mod cli;
mod config;
#[cfg(test)]
mod counting_waker;
mod instances;
pub mod limits;
mod quota;
mod server_info;
mod service;
mod shortcut;
mod store;
mod telemetry;
mod transport;

use std::sync::Arc;

use stickycas_proto::v1::{instance_service_server, server_service_server, sticky_cas_service_server};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tower::Layer as _;

pub use auth::AuthMode;
pub use cli::allow_all_files;
pub use config::Config;
pub use stickycas_proto::principal::PRINCIPAL_KEY;

use call_layer::CallLayer;
use instances::Instances;
use quota::Principals;
use service::Service;
use shortcut::ShortcutLayer;
use transport::{DeadlineLayer, Drain};

/// How a server that was told to stop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every connection has ended by itself.
    Clean,
    /// Some were cut off when the drain deadline passed.
    Forced,
}

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("serving failed")]
    Transport(#[from] tonic::transport::Error),
    /// The reflection service rejects our own descriptors.
    #[error("the service descriptors cannot be reflected")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves on `listener` until `shutdown` completes, then drains: health says NOT_SERVING, nothing new is
/// taken, open streams and waiting calls end with UNAVAILABLE, and after [`Config::drain`] what is still
/// open is cut off.
///
/// # Errors
/// If the transport fails.
pub async fn run(
    listener: TcpListener,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let limits = &config.limits;
    // Ends the accept loop and lets connections end.
    let stop = CancellationToken::new();
    let drain = Drain::default();
    let instances = Arc::new(Instances::new(limits.clone()));
    let timers = instances.clone();
    let _timers = AbortOnDropHandle::new(tokio::spawn(async move { timers.run_timers().await }));

    let pressure = instances.pressure().clone();
    let _pressure = AbortOnDropHandle::new(tokio::spawn(async move { pressure.run().await }));

    let principals = Principals::new(limits);
    let service = Service::new(instances.clone(), limits.clone(), drain.clone(), principals.clone());
    let readers = service.clone();
    let _readers = AbortOnDropHandle::new(tokio::spawn(async move { readers.run_readers().await }));
    let border = CallLayer::new(&config, principals.clone());
    let (mut health, health_service) = tonic_health::server::health_reporter();
    let reflection_v1 = config.reflection.then(|| reflection().build_v1()).transpose()?;
    let reflection_v1alpha = config.reflection.then(|| reflection().build_v1alpha()).transpose()?;

    let router = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .http2_max_pending_accept_reset_streams(Some(limits.pending_reset_streams))
        .http2_max_local_error_reset_streams(Some(limits.local_reset_streams))
        .http2_max_header_list_size(Some(limits.header_bytes))
        .max_concurrent_streams(Some(limits.streams_per_connection))
        .layer(DeadlineLayer)
        .layer(ShortcutLayer::to(border.layer(service.sticky_cas())))
        .add_service(border.layer(service.instances()))
        .add_service(border.layer(service.server()))
        .add_service(health_service)
        .add_optional_service(reflection_v1)
        .add_optional_service(reflection_v1alpha);

    // Whatever is open when this function ends, however it ends, breaks off.
    let cut = CancellationToken::new();
    let _cut = cut.clone().drop_guard();
    let connections = transport::accept(listener, limits, &principals, stop.clone(), cut);
    let serve = router.serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
    tokio::pin!(serve);
    health.set_service_status("", ServingStatus::Serving).await;
    tokio::select! {
        ended = &mut serve => return Ok(ended.map(|()| Stopped::Clean)?),
        () = shutdown => {}
    }
    health.set_service_status("", ServingStatus::NotServing).await;
    // Taken away for a moment, so that streams that watch it are told and end.
    health.clear_service_status("").await;
    health.set_service_status("", ServingStatus::NotServing).await;
    drain.begin();
    instances.dismiss_callers();
    stop.cancel();
    match tokio::time::timeout(config.drain, serve).await {
        Ok(ended) => Ok(ended.map(|()| Stopped::Clean)?),
        Err(_) => Ok(Stopped::Forced),
    }
}

/// How often an idle connection is asked whether it lives, and how long it has to answer.
const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(30);

/// What tools may learn of the services that are served here, health included. Older tools ask for v1alpha.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    // The descriptors also hold what others serve.
    let served = [
        instance_service_server::SERVICE_NAME,
        server_service_server::SERVICE_NAME,
        sticky_cas_service_server::SERVICE_NAME,
        tonic_health::pb::health_server::SERVICE_NAME,
    ];
    let builder = tonic_reflection::server::Builder::configure();
    served
        .into_iter()
        .fold(builder, tonic_reflection::server::Builder::with_service_name)
        .register_encoded_file_descriptor_set(stickycas_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
