//! `InstanceService`: create, get, list, watch, close.

use std::collections::HashSet;

use prost_types::Timestamp;
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::Phase;
use stickycas_proto::NEXT_EVENT_KEY;
use stickycas_proto::convert::params::spec_from_wire;
use stickycas_proto::convert::{WireError, duration_to_wire};
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};
use stickycas_proto::status::{RefusalDetails, RpcRefusal};
use stickycas_proto::v1::instance_service_server::InstanceService;
use stickycas_proto::v1::{
    self, CloseRequest, CloseResponse, CreateRequest, CreateResponse, GetRequest, GetResponse, ListRequest,
    ListResponse, RefusalReason, WatchRequest,
};
use tonic::{Request, Response, Status};

use super::Service;
use super::authorization::{ViewBasis, authorize_view};
use super::status::{own_to_wire, state_to_wire, status_to_wire};
use super::watch::WatchStream;
use crate::call_layer::Caller;
use crate::instances::{CreateSpec, Instance, draw_seed};
use crate::limits::Limits;
use crate::quota::Quota;

// What a call costs beyond the usual, in frames of Attach: about as many as the server handles in the same time.

/// Names of a roster that are checked, sorted and entered.
const NAMES_PER_FRAME: usize = 4;
/// Processes whose state and name, or whose entry, are shown.
const MEMBERS_PER_FRAME: usize = 16;
/// Bytes of an ended instance, which is made from its archive again for each view.
const RESTORED_PER_FRAME: usize = 16 * 1024;
/// Instances that are looked at for a page of List.
const LISTED_PER_FRAME: usize = 4;

#[tonic::async_trait]
impl InstanceService for Service {
    async fn create(&self, request: Request<CreateRequest>) -> Result<Response<CreateResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        if !caller.rights.coordinator {
            let why =
                format!("{:?} may not create instances: it is no coordinator", caller.principal.as_str());
            // Who shows a token of a narrower scope has claimed nothing.
            if caller.scope().coordinator {
                caller.account.file_offence(OffenceKind::ForeignIdentity, &why);
            }
            return Err(RpcRefusal::new(RefusalReason::NotCoordinator, why).into());
        }
        let request = request.into_inner();
        caller.account.charge_work(request.roster.len() / NAMES_PER_FRAME)?;
        let spec = create_spec(request, &self.0.limits)?;
        // Until it is committed.
        let roster = spec.roster.iter().map(String::len).sum();
        let _charge = caller.account.charge_log(roster)?;
        let (instance, created) =
            self.0.instances.create(&caller.principal, spec).await.committed().await??;
        let config = instance.config();
        if created {
            let processes = instance.params().processes();
            tracing::info!(instance = %config.id, name = ?config.name, processes, "created");
        }
        Ok(Response::new(CreateResponse { instance: Some(instance_to_wire(&instance)), created }))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        let which = InstanceRef::try_from(request.get_ref()).map_err(|error| RpcRefusal::from(&error))?;
        let instance = self.0.instances.find(&which).await?;
        authorize_view(&caller, &instance)?;
        caller.account.charge_work(view_cost(&instance))?;
        let process = instance.process_of(&caller.principal);
        let no_space = self.0.instances.logs().no_space();
        let (status, own) = instance.status(process).committed_or(no_space).await??;
        Ok(Response::new(GetResponse {
            instance: Some(instance_to_wire(&instance)),
            status: Some(status_to_wire(&status)),
            own: process.zip(own).map(|(process, own)| own_to_wire(process, own)),
        }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        let request = request.into_inner();
        let limit = self.0.limits.page;
        let size = match request.page_size as usize {
            0 => limit,
            size => size.min(limit),
        };
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(self.0.page_tokens.open_id(token, &caller.principal)?),
        };
        caller.account.charge_work(size / LISTED_PER_FRAME)?;
        let (page, listed_shards) = self.0.instances.page_after(after, size);
        let next_page_token = match page.last() {
            Some(last) if page.len() == size => {
                self.0.page_tokens.seal_id(last.config().id, &caller.principal)?
            }
            _ => String::new(),
        };
        // All views are taken now, and shown when they are committed.
        let seen = page.iter().filter(|instance| authorize_view(&caller, instance).is_ok());
        let states: Vec<_> = seen.map(|instance| (instance, instance.state())).collect();
        let mut instances = Vec::new();
        for (instance, state) in states {
            match state.committed_or(self.0.instances.logs().no_space()).await.flatten() {
                Ok(state) => instances.push(summary(instance, state)),
                // An instance that is gone by now is not listed.
                Err(gone) if gone.reason == RefusalReason::InstanceUnknown => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        // That there are no others.
        self.0.instances.confirmed().await?;
        let is_last = next_page_token.is_empty();
        let placement = self.0.instances.placement();
        let (shards, mut other_servers) = (placement.shard_count(), Vec::new());
        if is_last {
            other_servers = placement.other_servers();
        }
        Ok(Response::new(ListResponse { instances, next_page_token, other_servers, listed_shards, shards }))
    }

    type WatchStream = WatchStream;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<WatchStream>, Status> {
        let caller = self.caller(request.extensions())?;
        let request = request.into_inner();
        let id: InstanceId =
            request.instance_id.parse().map_err(|error: WireError| RpcRefusal::from(&error))?;
        let instance = self.0.instances.get(id)?;
        let basis = authorize_view(&caller, &instance)?;
        let from = Phase::new(request.from_phase);
        if request.snapshot_first && from.is_some() {
            let why = "snapshot_first goes with from_phase = 0 only";
            return Err(RpcRefusal::new(RefusalReason::Malformed, why).into());
        }
        let permit = caller.account.take(Quota::WatchStreams);
        let permit = permit.inspect_err(|none| {
            if let Some(offence) = none.offence() {
                file_offence(&caller, &instance, offence, &none.refused);
            }
        })?;
        let end = self.stream_end(&caller, basis == ViewBasis::Observer)?;
        let next_event = instance.next_event();
        let stream = if request.snapshot_first {
            caller.account.charge_work(view_cost(&instance))?;
            let snapshot = instance.snapshot().committed().await??;
            WatchStream::with_snapshot(self, instance, snapshot, end, permit)?
        } else {
            let index = instance.start_of(from).map_err(|truncated| {
                let why = format!(
                    "the oldest phase kept is {}: ask for it, or for a snapshot first",
                    truncated.oldest
                );
                let details =
                    RefusalDetails { oldest_phase: Some(truncated.oldest), ..RefusalDetails::default() };
                RpcRefusal::new(RefusalReason::PhaseNotKept, why).with_details(details)
            })?;
            WatchStream::from_index(self, instance, index, end, permit)
        };
        let mut response = Response::new(stream);
        if let Some(index) = next_event {
            response.metadata_mut().insert(NEXT_EVENT_KEY, index.into());
        }
        Ok(response)
    }

    async fn close(&self, request: Request<CloseRequest>) -> Result<Response<CloseResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        let id: InstanceId =
            request.get_ref().instance_id.parse().map_err(|error: WireError| RpcRefusal::from(&error))?;
        let instance = self.0.instances.get(id)?;
        if !caller.scope().coordinator {
            let why = "the scope of the token has no `coordinator`";
            return Err(RpcRefusal::new(RefusalReason::NotCreator, why).into());
        }
        if instance.config().shared.creator != caller.principal {
            let why = format!("only its creator closes instance {id}");
            let refused = RpcRefusal::new(RefusalReason::NotCreator, why);
            file_offence(&caller, &instance, OffenceKind::ForeignIdentity, &refused);
            return Err(refused.into());
        }
        instance.close().committed().await??;
        Ok(Response::new(CloseResponse {}))
    }
}

/// The cost of a view of an instance, in frames.
fn view_cost(instance: &Instance) -> usize {
    instance.params().processes() as usize / MEMBERS_PER_FRAME
        + instance.restored_bytes() / RESTORED_PER_FRAME
}

/// Files what was refused with the instance that it was tried at, if the caller is a process of it; else with those
/// where it is known as one.
fn file_offence(caller: &Caller, instance: &Instance, kind: OffenceKind, refused: &RpcRefusal) {
    match instance.process_of(&caller.principal) {
        Some(process) => {
            let detail = refused.message.clone();
            instance.file_offence(Offence { process, kind, number: None, phase: None, detail });
        }
        None => caller.account.file_offence(kind, &refused.message),
    }
}

/// What a Create asks for, checked.
pub(super) fn create_spec(request: CreateRequest, limits: &Limits) -> Result<CreateSpec, RpcRefusal> {
    let name = InstanceName::optional(&request.name).map_err(|error| RpcRefusal::from(&error))?;
    let missing = || RpcRefusal::from(&WireError::Missing("parameters"));
    let wire = request.parameters.ok_or_else(missing)?;
    let spec = spec_from_wire(&wire, draw_seed()).map_err(|error| RpcRefusal::from(&error))?;
    let params = Params::try_new(spec).map_err(|error| RpcRefusal::from(&error))?;
    check_reads(&params, limits.read_bytes)?;
    check_roster(&request.roster, params.processes())?;
    Ok(CreateSpec { name, params, seed_given: wire.seed.is_some(), roster: request.roster })
}

/// An answer to a read must be short enough to be sent.
fn check_reads(params: &Params, limit: usize) -> Result<(), RpcRefusal> {
    let entries = params.list_limit();
    let values = params.read_size().min(entries) as usize;
    let longest = values.saturating_mul(params.spec().max_value_bytes as usize);
    if longest > limit {
        let why = format!(
            "a read could return {longest} bytes: {values} values (read_size, or all {entries} that the list may hold) of \
             max_value_bytes; {limit} are the most (read_bytes): give less of either"
        );
        return Err(RpcRefusal::new(RefusalReason::BadParameters, why));
    }
    Ok(())
}

/// n different principals (P1).
fn check_roster(roster: &[String], processes: u32) -> Result<(), RpcRefusal> {
    let bad = |why: String| Err(RpcRefusal::new(RefusalReason::BadParameters, why));
    if roster.len() != processes as usize {
        return bad(format!("the roster has {} principals: give n = {processes}", roster.len()));
    }
    let mut seen = HashSet::with_capacity(roster.len());
    for (row, principal) in (1..).zip(roster) {
        if !is_principal_name(principal.as_bytes()) {
            return bad(format!(
                "roster, process {row}: {principal:?} is no name of a principal: give {PRINCIPAL_GRAMMAR}"
            ));
        }
        if !seen.insert(principal) {
            return bad(format!("roster, process {row}: {principal:?} is named twice"));
        }
    }
    Ok(())
}

/// Bytes of a roster that is shown, each name with what frames it: the message stays below the 4 MiB that clients take
/// unless told otherwise.
const SHOWN_ROSTER_BYTES: usize = 2 * 1024 * 1024;

fn instance_to_wire(instance: &Instance) -> v1::Instance {
    let config = instance.config();
    let lifetimes = &config.shared.lifetimes;
    let (roster, roster_left_out) = config.shared.roster.beginning(SHOWN_ROSTER_BYTES);
    v1::Instance {
        instance_id: config.id.to_string(),
        name: config.name.as_ref().map_or(String::new(), ToString::to_string),
        creator: config.shared.creator.as_str().to_owned(),
        parameters: Some((&config.params()).into()),
        roster,
        roster_left_out,
        retention: Some(duration_to_wire(lifetimes.retention)),
        idle_lifetime: Some(duration_to_wire(lifetimes.idle)),
        rejoin: Some(duration_to_wire(lifetimes.rejoin)),
        create_time: Some(Timestamp::from(config.created())),
    }
}

fn summary(instance: &Instance, state: State) -> v1::InstanceSummary {
    let config = instance.config();
    v1::InstanceSummary {
        instance_id: config.id.to_string(),
        name: config.name.as_ref().map_or(String::new(), ToString::to_string),
        creator: config.shared.creator.as_str().to_owned(),
        processes: config.shared.params.processes(),
        state: state_to_wire(state).into(),
        create_time: Some(Timestamp::from(config.created())),
    }
}
