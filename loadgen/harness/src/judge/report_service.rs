//! Where processes report: the judge's end of `JudgeService`.
//!
//! A [`ReportService`] knows which instance is being judged and which were lately. It keeps one report of
//! each process of the current one, the newest, and holds the call until there is a verdict. Between two
//! instances, and before a judge that was restarted knows which one it goes on with, calls wait: that an
//! instance is unknown is a final answer. A process has one call that waits, the newest: so many processes,
//! so many calls.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
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
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use stickycas_server::{ClientAcceptor, CredentialFolder};

use super::connection_limit::{self, Places, ProvenReporter, own_places};
use crate::run::principal;

/// Instances whose verdict is still told.
pub(super) const RECENT: usize = 16;
/// Of a report, beyond its values.
const REST_OF_A_REPORT: usize = 64 * 1024;
/// The most calls at a time on one connection.
const CALLS_PER_CONNECTION: u32 = 8;
/// The most connections at a time, beyond one of each process, or beyond those that each has for itself.
const SPARE_CONNECTIONS: usize = 64;
/// How often a connection is asked whether it lives, and how long it has to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// So long the last answers may take on their way.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The service to which processes report. Serves as long as it is not dropped.
#[derive(Debug)]
pub struct ReportService {
    shared: Shared,
    address: SocketAddr,
    close: oneshot::Sender<()>,
    serving: JoinSet<()>,
    /// Reads the credentials again when they change.
    _following: JoinSet<()>,
}

/// The channels that the judge and all calls share.
#[derive(Clone, Debug)]
struct Shared {
    /// Calls that wait for an instance or a verdict hear when there is one, and not of every report.
    state: watch::Sender<ReportState>,
    /// How often something new was reported; the judge hears of each change.
    heard: watch::Sender<u64>,
}

/// The state that all calls share.
#[derive(Debug, Default)]
struct ReportState {
    current: Option<Current>,
    /// Of each process what ends its newest call when a newer one takes its place.
    newest: BTreeMap<ProcessId, CancellationToken>,
    judged: VecDeque<(InstanceId, Outcome)>,
    /// Calls of each process in another's name.
    impersonations: BTreeMap<ProcessId, u64>,
}

#[derive(Debug)]
struct Current {
    instance: InstanceId,
    params: Arc<Params>,
    said: BTreeMap<ProcessId, ProcessReport>,
}

impl ReportService {
    /// Listens at this address for processes of instances with these parameters. It knows them by
    /// certificates with the `credentials` of a server; without, it believes the names that they give.
    ///
    /// # Errors
    /// If the address cannot be had, or the credentials cannot be used.
    pub async fn open(
        listen: SocketAddr,
        params: &Params,
        credentials: Option<CredentialFolder>,
    ) -> anyhow::Result<Self> {
        let roster = Arc::new(roster(params));
        let limit = roster.len() + SPARE_CONNECTIONS;
        // As many handshakes at a time from one address as there may be connections.
        let acceptor = credentials.map(|folder| ClientAcceptor::new(folder, 2 * limit));
        let acceptor = acceptor.transpose()?.map(Arc::new);
        let listener = stickycas_server::listen(listen);
        let listener =
            listener.with_context(|| format!("cannot listen at {listen}: give another --listen"))?;
        let address = listener.local_addr()?;
        let shared = Shared { state: watch::Sender::default(), heard: watch::Sender::default() };
        let places = match acceptor.clone() {
            Some(acceptor) => {
                let of = roster.keys().map(|name| (name.clone(), own_places())).collect();
                Places::Proven { acceptor, of }
            }
            None => Places::Shared(Arc::new(Semaphore::new(limit))),
        };
        let connections = connection_limit::accept(listener, places);
        let handler = ReportHandler { shared: shared.clone(), roster, is_certified: acceptor.is_some() };
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
        Ok(Self { shared, address, close, serving, _following: following })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes reports of this instance from now on.
    pub(super) fn expect(&self, instance: InstanceId, params: &Arc<Params>) {
        let params = Arc::clone(params);
        self.shared.state.send_modify(|state| {
            state.current = Some(Current { instance, params, said: BTreeMap::new() });
            state.impersonations.clear();
        });
    }

    /// Answers all calls for this instance, now and for a while.
    pub(super) fn judged(&self, instance: InstanceId, verdict: Outcome) {
        self.shared.state.send_modify(|state| {
            state.current.take_if(|current| current.instance == instance);
            state.judged.truncate(RECENT - 1);
            state.judged.push_front((instance, verdict));
        });
    }

    /// The calls of each process in another's name, since the current instance is judged.
    pub(super) fn impersonations(&self) -> BTreeMap<ProcessId, u64> {
        self.shared.state.borrow().impersonations.clone()
    }

    /// Hears when something is said.
    pub(super) fn listen(&self) -> Reports {
        Reports { heard: self.shared.heard.subscribe(), state: self.shared.state.subscribe() }
    }

    /// Gives the last answers a moment to arrive, and listens no more.
    pub async fn close(mut self) {
        let _ = self.close.send(());
        let _ = timeout(LAST_ANSWERS, self.serving.join_next()).await;
    }
}

/// The reports of the current instance.
#[derive(Debug)]
pub(super) struct Reports {
    heard: watch::Receiver<u64>,
    state: watch::Receiver<ReportState>,
}

impl Reports {
    /// Returns when something was said since the last look.
    pub(super) async fn something_new(&mut self) {
        if self.heard.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Shows the last report of each process.
    pub(super) fn look<T>(&mut self, look: impl FnOnce(&BTreeMap<ProcessId, ProcessReport>) -> T) -> T {
        let nothing = BTreeMap::new();
        // A report after this is new.
        self.heard.mark_unchanged();
        look(self.state.borrow().current.as_ref().map_or(&nothing, |current| &current.said))
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
}

/// Handles the calls.
#[derive(Debug)]
struct ReportHandler {
    shared: Shared,
    roster: Arc<BTreeMap<String, ProcessId>>,
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
        let request = request.into_inner();
        let instance: InstanceId =
            request.instance_id.parse().map_err(|error: WireError| RpcRefusal::from(&error))?;
        let replaced = self.newest(process);
        let verdict = tokio::select! {
            biased;
            () = replaced.cancelled() => {
                let why = format!("a newer report of process {process} has replaced this one");
                Err(RpcRefusal::new(RefusalReason::SessionReplaced, why))
            }
            verdict = self.verdict(instance, process, request, &replaced) => verdict,
        };
        Ok(Response::new(v1::ReportResponse { verdict: v1::Verdict::from(verdict?).into() }))
    }
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
            self.change(|state| *state.impersonations.entry(process).or_default() += 1);
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

    /// Makes a call the newest of its process. The token is cancelled when a newer one comes.
    fn newest(&self, process: ProcessId) -> CancellationToken {
        let newest = CancellationToken::new();
        self.change(|state| {
            if let Some(older) = state.newest.insert(process, newest.clone()) {
                older.cancel();
            }
        });
        newest
    }

    /// Changes the state in a way for which no call waits: it makes no verdict.
    fn change(&self, change: impl FnOnce(&mut ReportState)) {
        self.shared.state.send_if_modified(|state| {
            change(state);
            false
        });
    }

    /// The verdict on the instance, which may take until it is judged. The report is put where the judge sees
    /// it.
    async fn verdict(
        &self,
        instance: InstanceId,
        process: ProcessId,
        request: v1::ReportRequest,
        replaced: &CancellationToken,
    ) -> Result<Outcome, RpcRefusal> {
        let mut state = self.shared.state.subscribe();
        let params = {
            let known = state.wait_for(|state| state.can_tell(instance)).await.map_err(gone)?;
            known.current(instance).map(|current| Arc::clone(&current.params))
        };
        if let Some(params) = params {
            // Not under the lock: it may be long.
            let said =
                ProcessReport::from_wire(&request, &params).map_err(|error| RpcRefusal::from(&error))?;
            drop(request);
            self.take(instance, process, said, replaced);
        }
        let judged = state.wait_for(|state| state.current(instance).is_none()).await.map_err(gone)?;
        judged.verdict(instance).ok_or_else(|| unknown(instance))
    }

    /// Puts a report where the judge sees it, unless its call is replaced or its instance is judged.
    fn take(
        &self,
        instance: InstanceId,
        process: ProcessId,
        said: ProcessReport,
        replaced: &CancellationToken,
    ) {
        let mut is_new = false;
        self.change(|state| {
            let current = state.current.as_mut().filter(|current| current.instance == instance);
            if let Some(current) = current.filter(|_| !replaced.is_cancelled()) {
                is_new = current.said.get(&process) != Some(&said);
                current.said.insert(process, said);
            }
        });
        if is_new {
            self.shared.heard.send_modify(|heard| *heard += 1);
        }
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

#[cfg(test)]
mod tests {
    use stickycas_model::params::ParamsSpec;

    use super::*;

    const CALLERS: [&str; 2] = ["process-1", "process-2"];

    /// A handler for an instance that is judged.
    fn handler(is_certified: bool) -> (ReportHandler, InstanceId, Shared) {
        let params = Arc::new(Params::try_new(ParamsSpec::new(3, 1, 1)).unwrap());
        let shared = Shared { state: watch::Sender::default(), heard: watch::Sender::default() };
        let instance = InstanceId::new(1);
        let handler =
            ReportHandler { shared: shared.clone(), roster: Arc::new(roster(&params)), is_certified };
        shared.state.send_modify(|state| {
            state.current = Some(Current { instance, params, said: BTreeMap::new() });
        });
        (handler, instance, shared)
    }

    fn said(handler: &ReportHandler, phase: u64) -> ProcessReport {
        let request =
            v1::ReportRequest { end: v1::ReportedEnd::NothingToDecide.into(), phase, ..Default::default() };
        let params = Arc::clone(&handler.shared.state.borrow().current.as_ref().unwrap().params);
        ProcessReport::from_wire(&request, &params).unwrap()
    }

    #[test]
    fn what_was_said_before_wakes_nobody() {
        let (handler, instance, shared) = handler(false);
        let (mut waiting, mut judge) = (shared.state.subscribe(), shared.heard.subscribe());
        waiting.mark_unchanged();
        let process = handler.of_roster(CALLERS[0]).unwrap();
        let mut calls = Vec::new();
        for (phase, is_new) in [(1, true), (1, false), (1, false), (2, true)] {
            let replaced = handler.newest(process);
            handler.take(instance, process, said(&handler, phase), &replaced);
            calls.push(replaced);
            assert_eq!(judge.has_changed().unwrap(), is_new, "call {}", calls.len());
            judge.mark_unchanged();
            assert!(!waiting.has_changed().unwrap(), "only a verdict is waited for");
        }
        let replaced: Vec<_> = calls.iter().map(CancellationToken::is_cancelled).collect();
        assert_eq!(replaced, [true, true, true, false], "the newest call of a process waits");
        handler.take(instance, process, said(&handler, 1), &calls[0]);
        assert!(!judge.has_changed().unwrap(), "what a call brings that was replaced counts no more");
    }

    #[test]
    fn a_name_of_another_is_counted_and_wakes_nobody() {
        let (handler, _, shared) = handler(true);
        let mut waiting = shared.state.subscribe();
        waiting.mark_unchanged();
        let mut request = Request::new(());
        request.extensions_mut().insert(ProvenReporter(Some(CALLERS[0].into())));
        request.metadata_mut().insert(PRINCIPAL_KEY, CALLERS[1].parse().unwrap());
        for _ in 0..3 {
            handler.process(&request).unwrap_err();
        }
        assert_eq!(shared.state.borrow().impersonations[&handler.of_roster(CALLERS[0]).unwrap()], 3);
        assert!(!waiting.has_changed().unwrap());
    }
}
