//! `InstanceService`: create, get, list, watch, close.

use std::collections::HashSet;
use std::sync::Arc;

use prost_types::Timestamp;
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::params::Params;
use stickycas_model::types::{Phase, ProcessId};
use stickycas_proto::NEXT_EVENT_KEY;
use stickycas_proto::convert::params::spec_from_wire;
use stickycas_proto::convert::state::{state_from_wire, state_to_wire};
use stickycas_proto::convert::{WireError, duration_to_wire};
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};
use stickycas_proto::status::{RefusalDetails, RpcRefusal};
use stickycas_proto::v1::instance_service_server::InstanceService;
use stickycas_proto::v1::{
    self, CloseRequest, CloseResponse, CreateRequest, CreateResponse, GetRequest, GetResponse, ListOrder,
    ListRequest, ListResponse, RefusalReason, WatchRequest,
};
use tonic::{Request, Response, Status};

use super::Service;
use super::authorization::{ViewBasis, authorize_view};
use super::instance_table::{Filter, Place, Query};
use super::status::{own_to_wire, status_to_wire};
use super::streams::StreamEnd;
use super::watch::WatchStream;
use crate::call_layer::Caller;
use crate::instances::{CreateSpec, Instance, Summary, draw_seed};
use crate::limits::Limits;
use crate::quota::Quota;

// The costs of a call beyond the usual, in frames of Attach: about as many as the server handles in the same
// time.

/// Names of a roster that are checked, sorted and entered.
const NAMES_PER_FRAME: usize = 4;
/// Processes whose state and name, or whose entry, are shown.
const MEMBERS_PER_FRAME: usize = 16;
/// Bytes of an ended instance, which is made from its archive again for each view.
const RESTORED_PER_FRAME: usize = 16 * 1024;
/// Instances that are looked at for a page of List.
const LISTED_PER_FRAME: usize = 4;
/// Bytes of decisions behind which a page of List ends.
const LIST_BYTES: usize = 1024 * 1024;

#[tonic::async_trait]
impl InstanceService for Service {
    async fn create(&self, request: Request<CreateRequest>) -> Result<Response<CreateResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        if !caller.rights.coordinator {
            let why =
                format!("{:?} may not create instances: it is no coordinator", caller.principal.as_str());
            // A caller with a token of a narrower scope has claimed nothing.
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
        let (instance, created) = self.0.instances.create(&caller.principal, spec).await?.committed().await?;
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
        let basis = authorize_view(&caller, &instance)?;
        caller.account.charge_work(view_cost(&instance))?;
        if basis.touches() {
            instance.touch();
        }
        let process = instance.process_of(&caller.principal);
        let (status, own) = instance.status(process).shown(self.0.instances.gates()).await??;
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
        let filter = filter_from_wire(&request)?;
        caller.account.charge_work(size / LISTED_PER_FRAME)?;
        let page = match ListOrder::try_from(request.order) {
            Ok(ListOrder::Unspecified | ListOrder::Id) => {
                self.page_by_id(&caller, &request.page_token, size)?
            }
            Ok(ListOrder::StateAndAge) => {
                self.page_of_table(&caller, &request.page_token, size, filter.clone()).await?
            }
            Err(_) => {
                let error = WireError::UnknownEnum { field: "order", value: request.order };
                return Err(RpcRefusal::from(&error).into());
            }
        };
        let restored: usize = page.instances.iter().map(|(instance, _)| instance.restored_bytes()).sum();
        caller.account.charge_work(restored / RESTORED_PER_FRAME)?;
        // All views are taken now, and shown when they are committed.
        let views = page.instances.into_iter().map(|(instance, place)| {
            let summary = instance.summary();
            (instance, place, summary)
        });
        let views: Vec<_> = views.collect();
        let (mut instances, mut next, mut bytes) = (Vec::new(), page.next, 0);
        for (instance, place, summary) in views {
            let summary = match summary.shown(self.0.instances.gates()).await.flatten() {
                Ok(summary) => summary,
                // An instance that is gone by now is not listed.
                Err(gone) if gone.reason == RefusalReason::InstanceUnknown => continue,
                Err(refused) => return Err(refused.into()),
            };
            if !filter.takes(&instance, summary.brief.state) {
                continue;
            }
            bytes += summary.decision.as_ref().map_or(0, |decision| decision.as_bytes().len());
            instances.push(summary_to_wire(&instance, summary));
            if bytes > LIST_BYTES {
                next = Some(place);
                break;
            }
        }
        // That there are no others.
        self.0.instances.gates().ownership().await?;
        let placement = self.0.instances.placement();
        let (shards, mut other_servers) = (placement.shard_count(), Vec::new());
        if next.is_none() {
            other_servers = placement.other_servers();
        }
        let next_page_token = match next {
            Some(place) => self.0.page_tokens.seal(&place, caller.principal.as_str())?,
            None => String::new(),
        };
        let listed_shards = page.shards;
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
        let end = StreamEnd::new(self, &caller, basis == ViewBasis::Observer)?;
        let next_event = instance.next_event();
        let stream = if request.snapshot_first {
            caller.account.charge_work(view_cost(&instance))?;
            if basis.touches() {
                instance.touch();
            }
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

/// Instances that the caller may view, each with its place in the order.
struct ListPage {
    instances: Vec<(Arc<Instance>, Vec<u8>)>,
    /// Behind this place there may be more.
    next: Option<Vec<u8>>,
    /// The shards that the page is of.
    shards: Vec<u32>,
}

impl Service {
    fn page_by_id(&self, caller: &Caller, token: &str, size: usize) -> Result<ListPage, RpcRefusal> {
        let read = |bytes: &[u8]| bytes.try_into().ok().map(|id| InstanceId::new(u128::from_be_bytes(id)));
        let after = self.open_page_token(caller, token, read)?;
        let (page, shards) = self.0.instances.page_after(after, size);
        let place = |instance: &Instance| instance.config().id.get().to_be_bytes().to_vec();
        let next = page.last().filter(|_| page.len() == size).map(|last| place(last));
        let seen = page.into_iter().filter(|instance| authorize_view(caller, instance).is_ok());
        let instances = seen.map(|instance| (instance.clone(), place(&instance))).collect();
        Ok(ListPage { instances, next, shards })
    }

    async fn page_of_table(
        &self,
        caller: &Caller,
        token: &str,
        size: usize,
        filter: Filter,
    ) -> Result<ListPage, RpcRefusal> {
        let after = self.open_page_token(caller, token, Place::from_bytes)?;
        let query = Query { filter, after, limit: size };
        let mut shards = self.0.instances.served_shards();
        let viewer = caller.clone();
        let may_see = move |instance: &Instance| authorize_view(&viewer, instance).is_ok();
        let found = self.0.tables.find(query, may_see).await?;
        let served = self.0.instances.served_shards();
        shards.retain(|shard| served.contains(shard));
        let instances = found.lines.into_iter().map(|line| {
            let place = line.place.to_bytes().to_vec();
            (line.instance, place)
        });
        Ok(ListPage {
            instances: instances.collect(),
            next: found.next.map(|place| place.to_bytes().to_vec()),
            shards,
        })
    }

    fn open_page_token<T>(
        &self,
        caller: &Caller,
        token: &str,
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, RpcRefusal> {
        if token.is_empty() {
            return Ok(None);
        }
        self.0.page_tokens.open(token, caller.principal.as_str(), read).map(Some)
    }
}

/// The instances that a List asks for.
fn filter_from_wire(request: &ListRequest) -> Result<Filter, RpcRefusal> {
    let states: Result<_, _> = request.states.iter().map(|state| state_from_wire(*state)).collect();
    Filter::new(states.map_err(|error: WireError| RpcRefusal::from(&error))?, &request.text)
}

/// The cost of a view of an instance, in frames.
fn view_cost(instance: &Instance) -> usize {
    instance.params().processes() as usize / MEMBERS_PER_FRAME
        + instance.restored_bytes() / RESTORED_PER_FRAME
}

/// Files a refused call as an offence at its instance, if the caller is a process of it; else at the
/// instances where the caller is known as one.
fn file_offence(caller: &Caller, instance: &Instance, kind: OffenceKind, refused: &RpcRefusal) {
    match instance.process_of(&caller.principal) {
        Some(process) => {
            let detail = refused.message.clone();
            instance.file_offence(Offence { process, kind, number: None, phase: None, detail });
        }
        None => caller.account.file_offence(kind, &refused.message),
    }
}

/// The content of a Create, checked.
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
    let longest = longest_read(params);
    if longest > limit {
        let (values, entries) = (values_of_read(params), params.list_limit());
        let why = format!(
            "a read could return {longest} bytes: {values} values (read_size, or all {entries} that the list may hold) of \
             max_value_bytes; {limit} are the most (read_bytes): give less of either"
        );
        return Err(RpcRefusal::new(RefusalReason::BadParameters, why));
    }
    Ok(())
}

/// The most bytes of values that a read of an instance returns.
pub(super) fn longest_read(params: &Params) -> usize {
    values_of_read(params).saturating_mul(params.spec().max_value_bytes as usize)
}

fn values_of_read(params: &Params) -> usize {
    params.read_size().min(params.list_limit()) as usize
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

/// Bytes of a roster that is shown, each name with what frames it: the message stays below the 4 MiB that
/// clients take unless told otherwise.
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

fn summary_to_wire(instance: &Instance, summary: Summary) -> v1::InstanceSummary {
    let (config, brief) = (instance.config(), summary.brief);
    v1::InstanceSummary {
        instance_id: config.id.to_string(),
        name: config.name.as_ref().map_or(String::new(), ToString::to_string),
        creator: config.shared.creator.as_str().to_owned(),
        processes: config.shared.params.processes(),
        state: state_to_wire(brief.state).into(),
        create_time: Some(Timestamp::from(config.created())),
        decided: summary.decided,
        decision: summary.decision.map(|value| value.as_bytes().to_vec().into()),
        phase: brief.phase.map_or(0, Phase::get),
        list_length: brief.length,
        awaited: brief.awaited,
        first_awaited: brief.first_awaited.map_or(0, ProcessId::get),
        offences: brief.offences,
    }
}
