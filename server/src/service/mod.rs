//! The gRPC services: decode, ask who calls, hand to the instance, encode. No rules live here.

mod attach;
mod calls;
mod channels;
mod counts;
mod grpc_framing;
mod instances;
mod readers;
mod status;
mod watch;

use std::sync::Arc;

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use stickycas_proto::v1::instance_service_server::InstanceServiceServer;
use stickycas_proto::v1::server_service_server::ServerServiceServer;
use tonic::Extensions;

use crate::call_layer::Caller;
use crate::instances::Instances;
use crate::limits::Limits;
use crate::quota::Principals;
use crate::transport::Drain;

use grpc_framing::UnaryEndpoint;
use readers::Readers;

/// What the services need.
#[derive(Clone, Debug)]
pub(crate) struct Service(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    instances: Arc<Instances>,
    limits: Limits,
    drain: Drain,
    principals: Principals,
    readers: Readers,
}

impl Service {
    pub(crate) fn new(
        instances: Arc<Instances>,
        limits: Limits,
        drain: Drain,
        principals: Principals,
    ) -> Self {
        Self(Arc::new(Shared { instances, limits, drain, principals, readers: Readers::default() }))
    }

    /// Cuts off clients that do not read, for ever.
    pub(crate) async fn run_readers(&self) {
        self.0.readers.run(self.0.limits.unread_for).await;
    }

    /// The list itself: append, read, decide, attach.
    pub(crate) fn sticky_cas(&self) -> UnaryEndpoint {
        UnaryEndpoint::new(self.clone(), &self.0.limits)
    }

    /// Instances: create, get, list, watch, close.
    pub(crate) fn instances(&self) -> InstanceServiceServer<Self> {
        let bytes = self.0.limits.message_bytes;
        InstanceServiceServer::new(self.clone()).max_decoding_message_size(bytes)
    }

    /// The server itself: counts.
    pub(crate) fn server(&self) -> ServerServiceServer<Self> {
        let bytes = self.0.limits.message_bytes;
        ServerServiceServer::new(self.clone()).max_decoding_message_size(bytes)
    }

    /// Who calls, unless the server takes nothing new.
    fn caller(&self, extensions: &Extensions) -> Result<Caller, RpcRefusal> {
        self.check_serving()?;
        caller(extensions)
    }

    /// Fails once the server takes nothing new.
    fn check_serving(&self) -> Result<(), RpcRefusal> {
        if self.0.drain.has_begun() { Err(draining()) } else { Ok(()) }
    }
}

fn caller(extensions: &Extensions) -> Result<Caller, RpcRefusal> {
    let caller = extensions.get::<Caller>().cloned();
    debug_assert!(caller.is_some(), "the border is around every service");
    caller.ok_or_else(RpcRefusal::internal)
}

fn draining() -> RpcRefusal {
    RpcRefusal::new(RefusalReason::Draining, "the server is shutting down")
}
