//! Where processes report: the judge's end of `JudgeService`.
//!
//! A [`ReportService`] knows which instance is being judged and which were lately. It keeps one report of each process
//! of the current one, the newest, and holds the call until there is a verdict. Between two instances, and before a
//! judge that was restarted knows which one it goes on with, calls wait: that an instance is unknown is a final
//! answer. A process has one call that waits, the newest: so many processes, so many calls.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use stickycas_model::judge::Outcome;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::report::ProcessReport;
use stickycas_proto::names::InstanceId;
use stickycas_proto::principal::{PRINCIPAL_KEY, principal_from_metadata};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;
use stickycas_proto::v1::judge_service_server::{JudgeService, JudgeServiceServer};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use stickycas_server::{ClientAcceptor, CredentialFolder};

use super::connection_limit::{self, ProvenReporter};
use crate::run::principal;

/// Instances whose verdict is still told.
pub(super) const RECENT: usize = 16;
/// Of a report, beyond its values.
const REST_OF_A_REPORT: usize = 64 * 1024;
/// The most calls at a time on one connection.
const CALLS_PER_CONNECTION: u32 = 8;
/// The most connections at a time, beyond one of each process.
const SPARE_CONNECTIONS: usize = 64;
/// How often a connection is asked whether it lives, and how long it has to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// So long the last answers may take on their way.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The service to which processes report. Serves as long as it is not dropped.
#[derive(Debug)]
pub struct ReportService {
    state: watch::Sender<ReportState>,
    address: SocketAddr,
    close: oneshot::Sender<()>,
    serving: JoinSet<()>,
    /// Reads the credentials again when they change.
    _following: JoinSet<()>,
}

/// The state that all calls share.
#[derive(Debug, Default)]
struct ReportState {
    current: Option<Current>,
    /// The newest call of each process that has waited for something: all older ones are replaced.
    newest: BTreeMap<ProcessId, Call>,
    judged: VecDeque<(InstanceId, Outcome)>,
    /// Calls of each process in another's name.
    impersonations: BTreeMap<ProcessId, u64>,
}

/// A call, by its number in the order in which they came.
type Call = u64;

#[derive(Debug)]
struct Current {
    instance: InstanceId,
    params: Arc<Params>,
    said: BTreeMap<ProcessId, ProcessReport>,
}

impl ReportService {
    /// Listens at this address for processes of instances with these parameters. It knows them by certificates with the
    /// `credentials` of a server; without, it believes the names that they give.
    ///
    /// # Errors
    /// If the address cannot be had, or the credentials cannot be used.
    pub async fn open(
        listen: SocketAddr,
        params: &Params,
        credentials: Option<CredentialFolder>,
    ) -> anyhow::Result<Self> {
        let acceptor = credentials.map(ClientAcceptor::new).transpose()?.map(Arc::new);
        let listener = stickycas_server::listen(listen);
        let listener =
            listener.with_context(|| format!("cannot listen at {listen}: give another --listen"))?;
        let address = listener.local_addr()?;
        let (state, roster) = (watch::Sender::new(ReportState::default()), roster(params));
        let connections =
            connection_limit::accept(listener, roster.len() + SPARE_CONNECTIONS, acceptor.clone());
        let handler = ReportHandler {
            state: state.clone(),
            roster,
            calls: AtomicU64::new(0),
            is_certified: acceptor.is_some(),
        };
        let service = JudgeServiceServer::new(handler).max_decoding_message_size(longest_report(params));
        let (close, closed) = oneshot::channel::<()>();
        let mut serving = JoinSet::new();
        let mut following = JoinSet::new();
        if let Some(acceptor) = acceptor {
            following.spawn(async move { acceptor.follow_files().await });
        }
        serving.spawn(async move {
            let served = Server::builder()
                .http2_keepalive_interval(Some(KEEP_ALIVE))
                .http2_keepalive_timeout(Some(KEEP_ALIVE))
                .max_concurrent_streams(Some(CALLS_PER_CONNECTION))
                .add_service(service)
                .serve_with_incoming_shutdown(connections, async {
                    // The sender is gone if the service was dropped, and this task with it.
                    let _ = closed.await;
                });
            if let Err(error) = served.await {
                tracing::error!(%error, "no more reports are heard");
            }
        });
        Ok(Self { state, address, close, serving, _following: following })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes reports of this instance from now on.
    pub(super) fn expect(&self, instance: InstanceId, params: &Arc<Params>) {
        let params = Arc::clone(params);
        self.state.send_modify(|state| {
            state.current = Some(Current { instance, params, said: BTreeMap::new() });
            state.impersonations.clear();
        });
    }

    /// Answers all calls for this instance, now and for a while.
    pub(super) fn judged(&self, instance: InstanceId, verdict: Outcome) {
        self.state.send_modify(|state| {
            state.current.take_if(|current| current.instance == instance);
            state.judged.truncate(RECENT - 1);
            state.judged.push_front((instance, verdict));
        });
    }

    /// The calls of each process in another's name, since the current instance is judged.
    pub(super) fn impersonations(&self) -> BTreeMap<ProcessId, u64> {
        self.state.borrow().impersonations.clone()
    }

    /// Hears when something is said.
    pub(super) fn listen(&self) -> Reports {
        Reports(self.state.subscribe())
    }

    /// Gives the last answers a moment to arrive, and listens no more.
    pub async fn close(mut self) {
        let _ = self.close.send(());
        let _ = timeout(LAST_ANSWERS, self.serving.join_next()).await;
    }
}

/// What has been reported of the current instance.
#[derive(Debug)]
pub(super) struct Reports(watch::Receiver<ReportState>);

impl Reports {
    /// Returns when something was said since the last look.
    pub(super) async fn something_new(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What each process has said last.
    pub(super) fn look<T>(&mut self, look: impl FnOnce(&BTreeMap<ProcessId, ProcessReport>) -> T) -> T {
        let nothing = BTreeMap::new();
        look(self.0.borrow_and_update().current.as_ref().map_or(&nothing, |current| &current.said))
    }
}

impl ReportState {
    fn verdict(&self, instance: InstanceId) -> Option<Outcome> {
        self.judged.iter().find(|(judged, _)| *judged == instance).map(|(_, verdict)| *verdict)
    }

    fn current(&self, instance: InstanceId) -> Option<&Current> {
        self.current.as_ref().filter(|current| current.instance == instance)
    }

    /// Whether it can be said if this instance is known.
    fn can_tell(&self, instance: InstanceId) -> bool {
        self.current.is_some() || self.verdict(instance).is_some()
    }

    /// Makes this call the newest of its process, unless a newer one was.
    fn admit(&mut self, process: ProcessId, call: Call) -> Result<(), RpcRefusal> {
        let newest = self.newest.entry(process).or_insert(call);
        *newest = call.max(*newest);
        self.stands(process, call)
    }

    /// Whether this call is still the newest of its process.
    fn stands(&self, process: ProcessId, call: Call) -> Result<(), RpcRefusal> {
        if self.newest.get(&process).is_none_or(|newest| *newest == call) {
            return Ok(());
        }
        let why = format!("a newer report of process {process} has replaced this one");
        Err(RpcRefusal::new(RefusalReason::SessionReplaced, why))
    }
}

/// Handles the calls.
#[derive(Debug)]
struct ReportHandler {
    state: watch::Sender<ReportState>,
    roster: BTreeMap<String, ProcessId>,
    /// How many calls there were.
    calls: AtomicU64,
    /// Whether reporters are known by certificates.
    is_certified: bool,
}

#[tonic::async_trait]
impl JudgeService for ReportHandler {
    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportResponse>, Status> {
        let process = self.process(&request)?;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let request = request.into_inner();
        let instance: InstanceId =
            request.instance_id.parse().map_err(|error: WireError| RpcRefusal::from(&error))?;
        let mut state = self.state.subscribe();
        self.until_one_can_tell(&mut state, instance, process, call).await?;
        let verdict = match self.take(instance, process, call, request)? {
            Receipt::JudgedInstance(verdict) => verdict,
            Receipt::Waits => {
                let answered = |state: &ReportState| {
                    state.current(instance).is_none() || state.stands(process, call).is_err()
                };
                let state = state.wait_for(answered).await.map_err(gone)?;
                match state.verdict(instance) {
                    Some(verdict) => verdict,
                    None => {
                        state.stands(process, call)?;
                        return Err(unknown(instance).into());
                    }
                }
            }
        };
        Ok(Response::new(v1::ReportResponse { verdict: v1::Verdict::from(verdict).into() }))
    }
}

/// How a report was received.
enum Receipt {
    JudgedInstance(Outcome),
    Waits,
}

impl ReportHandler {
    /// Which process calls.
    fn process<T>(&self, request: &Request<T>) -> Result<ProcessId, RpcRefusal> {
        let mut given = request.metadata().get_all(PRINCIPAL_KEY).iter().map(|name| name.to_str().ok());
        if !self.is_certified {
            return self.of_roster(principal_from_metadata(given)?);
        }
        let proven = request.extensions().get::<ProvenReporter>().and_then(|reporter| reporter.0.as_deref());
        let refuse = |why: String| RpcRefusal::new(RefusalReason::NoIdentity, why);
        let proven = proven.ok_or_else(|| refuse("the connection has shown no certificate".to_owned()))?;
        let process = self.of_roster(proven)?;
        if given.any(|name| name != Some(proven)) {
            self.state.send_modify(|state| *state.impersonations.entry(process).or_default() += 1);
            return Err(refuse(format!(
                "{PRINCIPAL_KEY} names another than the certificate, which names {proven}"
            )));
        }
        Ok(process)
    }

    fn of_roster(&self, name: &str) -> Result<ProcessId, RpcRefusal> {
        self.roster.get(name).copied().ok_or_else(|| {
            let n = self.roster.len();
            let why = format!("{name:?} is no process of this run: they are process-1 to process-{n}");
            RpcRefusal::new(RefusalReason::NotAMember, why)
        })
    }

    /// Waits until it can be said if this instance is known.
    async fn until_one_can_tell(
        &self,
        state: &mut watch::Receiver<ReportState>,
        instance: InstanceId,
        process: ProcessId,
        call: Call,
    ) -> Result<(), RpcRefusal> {
        let mut admitted = Ok(());
        self.state.send_if_modified(|state| {
            let waits = !state.can_tell(instance);
            if waits {
                admitted = state.admit(process, call);
            }
            waits
        });
        admitted?;
        let over = |state: &ReportState| state.can_tell(instance) || state.stands(process, call).is_err();
        let told = state.wait_for(over).await.map_err(gone)?;
        if told.can_tell(instance) { Ok(()) } else { told.stands(process, call) }
    }

    /// Puts a report where the judge sees it.
    fn take(
        &self,
        instance: InstanceId,
        process: ProcessId,
        call: Call,
        request: v1::ReportRequest,
    ) -> Result<Receipt, RpcRefusal> {
        let params = self.state.borrow().current(instance).map(|current| Arc::clone(&current.params));
        // Not under the lock: it may be long.
        let said = params.map(|params| ProcessReport::from_wire(&request, &params));
        drop(request);
        let mut taken = Err(unknown(instance));
        self.state.send_if_modified(|state| {
            if let Some(verdict) = state.verdict(instance) {
                taken = Ok(Receipt::JudgedInstance(verdict));
                return false;
            }
            let Some(said) = said.filter(|_| state.current(instance).is_some()) else { return false };
            taken = said.map_err(|error| RpcRefusal::from(&error)).and_then(|said| {
                state.admit(process, call)?;
                state.current.as_mut().map(|current| current.said.insert(process, said));
                Ok(Receipt::Waits)
            });
            taken.is_ok()
        });
        taken
    }
}

fn unknown(instance: InstanceId) -> RpcRefusal {
    let why = format!("instance {instance} is not the one that is judged here");
    RpcRefusal::new(RefusalReason::InstanceUnknown, why)
}

fn gone(_: watch::error::RecvError) -> RpcRefusal {
    RpcRefusal::new(RefusalReason::Draining, "the judge ends")
}

/// The processes by their principals.
fn roster(params: &Params) -> BTreeMap<String, ProcessId> {
    ProcessId::all(params.processes()).map(|process| (principal(process), process)).collect()
}

/// The most bytes that a report can have: a whole list and some words.
fn longest_report(params: &Params) -> usize {
    const OF_A_FIELD: usize = 8;
    let value = params.spec().max_value_bytes as usize + OF_A_FIELD;
    (params.processes() as usize).saturating_mul(value).saturating_add(2 * value + REST_OF_A_REPORT)
}
