//! The gRPC services: each decodes a request, finds the caller and the instance, hands the request to the
//! instance and encodes the answer. No rule of the algorithm is decided here.

mod attach;
mod authorization;
mod blocking_pool;
mod channels;
mod counts;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod instance_table;
mod instances;
mod page_token;
mod status;
mod streams;
mod unary;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_model::history::OffenceKind;
use stickycas_model::types::ProcessId;
use stickycas_proto::attach::StickyCasServiceServer;
use stickycas_proto::convert::WireError;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use stickycas_proto::v1::instance_service_server::InstanceServiceServer;
use stickycas_proto::v1::server_service_server::ServerServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::Extensions;

use crate::auth::CredentialStore;
use crate::call_layer::Caller;
use crate::gate::Uncommitted;
use crate::instances::{Instance, Instances};
use crate::limits::Limits;
use crate::quota::Principals;

use channels::Channel;
use instance_table::Tables;
use page_token::PageTokens;
use streams::OpenStreams;

/// The data that all services share.
#[derive(Clone, Debug)]
pub(crate) struct Service(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    instances: Arc<Instances>,
    limits: Limits,
    /// Cancelled when draining begins.
    drain: CancellationToken,
    principals: Principals,
    streams: OpenStreams,
    /// `None`: nothing is proven here.
    credentials: Option<Arc<CredentialStore>>,
    page_tokens: PageTokens,
    tables: Arc<Tables>,
    /// Whether the instances are recovered. Before, nobody knows which there are.
    recovered: AtomicBool,
}

impl Service {
    pub(crate) fn new(
        instances: Arc<Instances>,
        limits: Limits,
        drain: CancellationToken,
        principals: Principals,
        credentials: Option<Arc<CredentialStore>>,
    ) -> Self {
        let (streams, recovered) = (OpenStreams::default(), AtomicBool::new(false));
        let (page_tokens, tables) = (PageTokens::new(), Tables::new(instances.clone()));
        Self(Arc::new(Shared {
            instances,
            limits,
            drain,
            principals,
            streams,
            credentials,
            page_tokens,
            tables,
            recovered,
        }))
    }

    /// The instances are recovered: calls are taken from now on.
    pub(crate) fn set_recovered(&self) {
        self.0.recovered.store(true, Ordering::Release);
    }

    /// Drops the table that nobody asks for, for ever.
    pub(crate) async fn run_upkeep(&self) {
        self.0.tables.forget_unused().await;
    }

    /// Frames that wait on all Attach streams for their clients, and on the stream with the most.
    pub(crate) fn unread_frames(&self) -> (usize, usize) {
        self.0.streams.unread()
    }

    /// The service of instances: create, get, list, watch, close.
    pub(crate) fn instances(&self) -> InstanceServiceServer<Self> {
        let bytes = self.0.limits.message_bytes;
        InstanceServiceServer::new(self.clone()).max_decoding_message_size(bytes)
    }

    /// The service of the list: append, read, decide, attach.
    pub(crate) fn list(&self) -> StickyCasServiceServer<Self> {
        let bytes = self.0.limits.message_bytes;
        StickyCasServiceServer::new(self.clone()).max_decoding_message_size(bytes)
    }

    /// The service of the server: counts.
    pub(crate) fn server(&self) -> ServerServiceServer<Self> {
        let bytes = self.0.limits.message_bytes;
        ServerServiceServer::new(self.clone()).max_decoding_message_size(bytes)
    }

    /// The caller of a request; refused if the server takes nothing new.
    fn caller(&self, extensions: &Extensions) -> Result<Caller, RpcRefusal> {
        self.check_serving()?;
        caller(extensions)
    }

    /// Fails while the server takes nothing.
    pub(crate) fn check_serving(&self) -> Result<(), RpcRefusal> {
        self.check_open()?;
        if !self.0.recovered.load(Ordering::Acquire) {
            let why = "the server reads its log or, in a cluster, waits for its lease: try again";
            return Err(RpcRefusal::new(RefusalReason::Recovering, why));
        }
        Ok(())
    }

    /// Fails when the server takes nothing any more.
    fn check_open(&self) -> Result<(), RpcRefusal> {
        if let Some(failure) = self.0.instances.log_failure() {
            return Err(failure);
        }
        if self.0.drain.is_cancelled() {
            return Err(self.draining());
        }
        Ok(())
    }

    /// The reason for which a call that waited gets no answer: the server drains, told once everything is
    /// committed, or a log has failed.
    async fn interrupted(&self) -> RpcRefusal {
        self.0.instances.gates().everything_committed().await.err().unwrap_or_else(draining)
    }

    /// The reason for which the server takes nothing new any more.
    fn draining(&self) -> RpcRefusal {
        self.0.instances.log_failure().unwrap_or_else(draining)
    }

    /// The refusal of calls for an instance that is gone. After the log has failed nobody knows that it is.
    fn expired(&self) -> RpcRefusal {
        let expired = || RpcRefusal::new(RefusalReason::InstanceUnknown, "the instance has expired");
        self.0.instances.log_failure().unwrap_or_else(expired)
    }

    /// The refusal of frames on a channel whose instance is gone: it has expired, or another server has it.
    fn gone(&self, channel: &Channel) -> Uncommitted<RpcRefusal> {
        match self.0.instances.owner_lost(channel.shard()) {
            Some(lost) => lost.into(),
            None => Uncommitted::new(self.expired(), channel.shard().ownership()),
        }
    }

    /// The instance with this id, at which the caller is about to act, and the process of it that the caller
    /// is. `id`: `None` if the text of the request is no id.
    fn member(
        &self,
        caller: &Caller,
        id: Option<InstanceId>,
    ) -> Result<(Arc<Instance>, ProcessId), RpcRefusal> {
        let id = id.ok_or_else(|| {
            caller.account.file_offence(OffenceKind::Malformed, &WireError::InstanceId.to_string());
            RpcRefusal::from(&WireError::InstanceId)
        })?;
        let instance = self.0.instances.get(id)?;
        if !caller.rights.process {
            let why = "the scope of the token has no `process`";
            return Err(RpcRefusal::new(RefusalReason::NotAMember, why));
        }
        match instance.process_of(&caller.principal) {
            Some(process) => {
                caller.account.remember_instance(&instance, process);
                Ok((instance, process))
            }
            None => {
                tracing::warn!(instance = %id, principal = ?caller.principal.as_str(), "foreign identity");
                let why = format!("{:?} is no process of instance {id}", caller.principal.as_str());
                caller.account.file_offence(OffenceKind::ForeignIdentity, &why);
                Err(RpcRefusal::new(RefusalReason::NotAMember, why))
            }
        }
    }
}

fn caller(extensions: &Extensions) -> Result<Caller, RpcRefusal> {
    let caller = extensions.get::<Caller>().cloned();
    debug_assert!(caller.is_some(), "the call layer is around every service");
    caller.ok_or_else(RpcRefusal::internal)
}

fn draining() -> RpcRefusal {
    RpcRefusal::new(RefusalReason::Draining, "the server is shutting down")
}
