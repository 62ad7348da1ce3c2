//! The metrics of `/metrics`: the name, the explanation and the source of each.
//!
//! This is the only list of names: the table in `docs/operate/operations.md` is compared with what it tells.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use stickycas_proto::v1::RefusalReason;

use crate::auth::CredentialStore;
#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::instances::Instances;
use crate::limits::Limits;
use crate::logging;
use crate::metrics::{CommitLogMetrics, Exposition, StepCounter, StepCounters, process};
use crate::quota::{Bound, Buffer, Counter, FrameType, Method, Principals, Quota};
use crate::readiness::{Readiness, State};
use crate::service::Service;

/// The parts of the server from which metrics are read.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) instances: Arc<Instances>,
    pub(crate) principals: Principals,
    pub(crate) service: Service,
    pub(crate) readiness: Readiness,
    pub(crate) limits: Limits,
    /// `None`: the log is in memory, and measures nothing.
    pub(crate) commit_log: Option<Arc<CommitLogMetrics>>,
    /// `None`: the server is alone.
    #[cfg(feature = "cluster")]
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// `None`: nothing is proven here.
    pub(crate) credentials: Option<Arc<CredentialStore>>,
}

impl Sources {
    /// The text of all metrics.
    pub(crate) fn text(self: &Arc<Self>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(self)));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn server(&self, out: &mut Exposition<'_>) -> fmt::Result {
        out.gauges_of(
            "stickycas_build_info",
            "1; the labels say which build of the server it is",
            [([("version", env!("CARGO_PKG_VERSION")), ("commit", stickycas_program::COMMIT)], 1)],
        )?;
        let state = self.readiness.state();
        out.gauges(
            "stickycas_readiness",
            "1 for the state that the server is in, 0 for the others",
            "state",
            State::ALL.map(|each| (each.name(), u64::from(each == state))),
        )?;
        let started = self.principals.start_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        out.gauge(
            "stickycas_start_time_seconds",
            "When the server started, in seconds since 1970",
            started.as_secs_f64(),
        )?;
        out.gauge(
            "stickycas_busy_ratio",
            "Share of their time for which the threads were busy; measured while many instances are live",
            self.instances.load().busy(),
        )?;
        let runtime = tokio::runtime::Handle::current().metrics();
        let tasks = runtime.num_alive_tasks() as u64;
        out.gauge("stickycas_runtime_tasks", "Tasks of the runtime", tasks)?;
        let queue = runtime.global_queue_depth() as u64;
        out.gauge("stickycas_runtime_queue", "Tasks in the common queue of the runtime", queue)?;
        let log = &logging::COUNTS;
        let lines = [("written", &log.written), ("dropped", &log.dropped), ("left_out", &log.left_out)];
        out.counters(
            "stickycas_logging_lines",
            "Lines of the program's log: written; dropped, because standard error was not read; left out, \
             because there were too many of their kind",
            "outcome",
            lines.map(|(outcome, count)| (outcome, count.load(Ordering::Relaxed))),
        )
    }

    fn phases(&self, out: &mut Exposition<'_>) -> fmt::Result {
        use StepCounter as C;
        let steps = self.steps();
        let (executed, won) = (steps.get(C::PhaseExecuted), steps.get(C::PhaseWon));
        out.counter(
            "stickycas_phases_opened",
            "Phases that opened; one that closes because no access waits any more counts again when it \
             opens again",
            steps.get(C::PhaseOpened),
        )?;
        out.counters(
            "stickycas_phases",
            "Phases that were executed: won, if an append took a position of the list, else empty",
            "outcome",
            [("won", won), ("empty", executed.saturating_sub(won))],
        )?;
        out.counter(
            "stickycas_phases_timed_out",
            "Phases that were executed without a process whose patience was spent",
            steps.get(C::PhaseTimedOut),
        )?;
        out.counter(
            "stickycas_patience_spent",
            "Processes that are not awaited any more",
            steps.get(C::PatienceSpent),
        )?;
        out.counters(
            "stickycas_accesses_accepted",
            "Accesses that were accepted, by kind",
            "kind",
            [("append", steps.get(C::AcceptedAppend)), ("read", steps.get(C::AcceptedRead))],
        )?;
        out.counters(
            "stickycas_accesses_answered",
            "Accesses that were executed, by answer: an append wins, fails or comes too late, a read \
             returns entries",
            "answer",
            [
                ("success", steps.get(C::AnsweredSuccess)),
                ("failed", steps.get(C::AnsweredFailed)),
                ("limit_reached", steps.get(C::AnsweredLimitReached)),
                ("read", steps.get(C::AnsweredRead)),
            ],
        )?;
        out.counter(
            "stickycas_accesses_withdrawn",
            "Accesses that were withdrawn because their process left or the instance was closed",
            steps.get(C::Withdrawn),
        )?;
        out.gauge("stickycas_accesses_waiting", "Accesses that wait for their phase", steps.waiting())
    }

    fn instances(&self, out: &mut Exposition<'_>) -> fmt::Result {
        use StepCounter as C;
        let (steps, load, usage) = (self.steps(), self.instances.load(), self.instances.usage());
        let (held, live) = (usage.held as u64, load.live() as u64);
        let (gathering, ended) = (load.gathering() as u64, held.saturating_sub(live));
        let closed = (usage.closed as u64).min(ended);
        out.gauges(
            "stickycas_instances",
            "Instances by state: gathering processes, running, or still readable after all processes have \
             left or after its creator has closed it",
            "state",
            [
                ("gathering", gathering),
                ("running", live.saturating_sub(gathering)),
                ("finished", ended - closed),
                ("closed", closed),
            ],
        )?;
        let counts = |counter| steps.get(counter);
        out.counters(
            "stickycas_instance_events",
            "What happened to instances",
            "event",
            [
                ("created", usage.created),
                ("gathered", counts(C::GatheringEnded)),
                ("sealed", counts(C::Sealed)),
                ("finished", counts(C::Finished)),
                ("closed", counts(C::Closed)),
                ("removed", usage.removed),
            ],
        )?;
        out.counters(
            "stickycas_process_events",
            "What processes did: joined, opened a session, decided",
            "event",
            [
                ("joined", counts(C::Joined)),
                ("session", counts(C::SessionOpened)),
                ("decided", counts(C::Decided)),
            ],
        )?;
        out.counters(
            "stickycas_offences",
            "Offences that instances have recorded, by kind; only the first of each process and kind are",
            "kind",
            steps.offences(),
        )
    }

    fn clients(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let (usage, all) = (self.principals.totals(), self.principals.all());
        out.counters(
            "stickycas_refusals",
            "Calls and frames that were refused, by reason",
            "reason",
            RefusalReason::all().map(|reason| (reason.name(), all.refusals(reason))),
        )?;
        out.counters(
            "stickycas_client_faults",
            "What clients did on the wire that no correct client does, or seldom",
            "kind",
            Counter::ALL.map(|counter| (counter.name(), all.get(counter))),
        )?;
        out.counters(
            "stickycas_calls",
            "Calls by method, streams and refused ones included",
            "method",
            Method::ALL.map(|method| (method.name(), usage.calls[method as usize].load(Ordering::Relaxed))),
        )?;
        out.counters_of(
            "stickycas_calls_ended",
            "Calls by method and gRPC code; streams by how they began; CANCELLED: its client has gone, or \
             its deadline has passed",
            usage.ended_calls.rows(),
        )?;
        out.histograms(
            "stickycas_call_seconds",
            "Time of admitted unary calls by method, until the response begins or the client has gone; an \
             access waits for its phase, and what is told for the disk",
            "method",
            usage.ended_calls.seconds(),
        )?;
        let (open, unclaimed) = self.connections();
        out.gauges(
            "stickycas_connections",
            "Open connections: those that belong to a principal, and those without an admitted call yet",
            "state",
            [("claimed", (open - unclaimed) as u64), ("unclaimed", unclaimed as u64)],
        )?;
        out.counters(
            "stickycas_frames_received",
            "Frames of HTTP/2 that clients have sent, by type",
            "type",
            FrameType::ALL.map(|frame| (frame.name(), usage.frames[frame as usize].load(Ordering::Relaxed))),
        )?;
        let accepted = usage.accepted.load(Ordering::Relaxed);
        out.counter("stickycas_connections_accepted", "Connections that were accepted", accepted)?;
        let permits = |quota| self.principals.permits(quota) as u64;
        out.gauges(
            "stickycas_calls_open",
            "Calls that have not ended: unary calls, Attach streams, Watch streams",
            "kind",
            [
                ("unary", permits(Quota::Calls)),
                ("attach", permits(Quota::AttachStreams)),
                ("watch", permits(Quota::WatchStreams)),
            ],
        )?;
        let (unread, most) = self.service.unread_frames();
        out.gauge(
            "stickycas_unread_frames",
            "Frames on Attach that wait for their clients to read them",
            unread as u64,
        )?;
        out.gauge("stickycas_unread_frames_max", "The same on the stream with the most", most as u64)
    }

    /// Limits that the server has as a whole, and what is in use of each. Those of a creator, a call or an
    /// instance show in the refusals.
    fn limits(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let (limits, usage, load) = (&self.limits, self.instances.usage(), self.instances.load());
        let (open, unclaimed) = self.connections();
        let clients = self.principals.totals();
        let of_one_address = clients.unclaimed_of_one_address.load(Ordering::Relaxed);
        let known_addresses = clients.known_addresses.load(Ordering::Relaxed);
        let permits = |quota| self.principals.permits(quota);
        let [requests, answers, windows] = Buffer::ALL.map(|buffer| self.principals.buffered(buffer));
        let (log_bytes, log_bytes_sent) = self.principals.log_usage();
        let rows: [(&'static str, usize, usize); 19] = [
            ("connections", open, limits.connections),
            ("unclaimed_connections", unclaimed, limits.unclaimed_connections),
            ("unclaimed_connections_per_address", of_one_address, limits.unclaimed_connections_per_address),
            ("known_addresses", known_addresses, limits.known_addresses),
            ("principals", self.principals.accounts(), limits.principals),
            ("live_instances", load.live(), limits.live_instances),
            ("instances", usage.held, limits.instances),
            ("processes", usage.processes, limits.processes),
            ("instance_bytes", usage.reserved_bytes, limits.instance_bytes),
            ("event_bytes", usage.event_bytes, limits.event_bytes),
            ("log_bytes", usage.log_bytes, limits.log_bytes),
            ("calls", permits(Quota::Calls), limits.calls),
            ("attach_streams", permits(Quota::AttachStreams), limits.attach_streams),
            ("watch_streams", permits(Quota::WatchStreams), limits.watch_streams),
            ("incomplete_request_bytes", requests.0, requests.1),
            ("unread_answer_bytes", answers.0, answers.1),
            ("window_bytes", windows.0, windows.1),
            ("uncommitted_bytes", usage.uncommitted_bytes, limits.uncommitted_bytes),
            ("log_share_bytes", log_bytes, limits.log_share_bytes),
        ];
        out.gauges(
            "stickycas_limit_used",
            "What is in use of each limit of the server",
            "limit",
            rows.map(|(name, used, _)| (name, used as u64)),
        )?;
        out.gauges(
            "stickycas_limit_bound",
            "The bound of each limit of the server",
            "limit",
            rows.map(|(name, _, bound)| (name, bound as u64)),
        )?;
        out.counters(
            "stickycas_log_request_bytes",
            "Bytes of requests with long values that were admitted to the log, by the kind of principal",
            "principal",
            log_bytes_sent,
        )?;
        let admission = self.principals.admission();
        let outcomes = Bound::ALL.into_iter().flat_map(|bound| {
            let rows =
                [("refused", admission.refused(bound)), ("would_refuse", admission.would_refuse(bound))];
            rows.map(|(outcome, count)| ([("bound", bound.name()), ("outcome", outcome)], count))
        });
        out.counters_of(
            "stickycas_bound_exceeded",
            "Requests above a rate or a share, by bound: refused, or, with admission = observe, what \
             would be",
            outcomes,
        )
    }

    /// Of each quota, its bound and the use of the principal that uses most of it.
    fn quotas(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let most = Quota::ALL.into_iter().zip(self.principals.most_permits());
        out.gauges(
            "stickycas_quota_used_max",
            "What the principal uses of each quota that uses most of it",
            "quota",
            most.map(|(quota, most)| (quota.name(), most.into())),
        )?;
        out.gauges(
            "stickycas_quota_bound",
            "What a principal may use of each quota",
            "quota",
            Quota::ALL.map(|quota| (quota.name(), quota.limit(&self.limits).into())),
        )
    }

    /// Open connections, and how many of them belong to no principal yet.
    fn connections(&self) -> (usize, usize) {
        let open = self.principals.totals().connections.load(Ordering::Relaxed);
        (open, open.saturating_sub(self.principals.permits(Quota::Connections)))
    }

    /// The state of the credentials; zeros without credentials.
    fn credentials(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let state = self.credentials.as_ref().map(|store| store.state()).unwrap_or_default();
        out.gauge(
            "stickycas_credentials_generation",
            "Number of the credentials in force, counted from 1; it grows when the files of the folder \
             have changed. 0: the server has no credentials",
            state.generation,
        )?;
        out.gauge(
            "stickycas_credentials_reload_failed",
            "1 while the files of the folder cannot be used, and the old credentials stay in force",
            u64::from(state.is_failing),
        )?;
        out.counter(
            "stickycas_credentials_reload_failures",
            "Readings of the files of the folder that failed",
            state.failed_reloads,
        )?;
        out.gauge(
            "stickycas_credentials_certificate_expiry_seconds",
            "Seconds until the server's certificate, or one of those behind it, expires; negative afterwards",
            state.certificate_expiry,
        )?;
        out.gauge(
            "stickycas_credentials_client_ca_expiry_seconds",
            "Seconds until the first of the CAs of clients expires; negative afterwards",
            state.client_ca_expiry,
        )?;
        out.gauge(
            "stickycas_credentials_revocation_list_expired",
            "1 if a revocation list has expired; it still counts",
            u64::from(state.revocation_list_expired),
        )?;
        out.gauge(
            "stickycas_credentials_cached_tokens",
            "Verified tokens that are remembered; at most `cached_tokens`, and old ones make room",
            state.cached_tokens as u64,
        )
    }

    fn steps(&self) -> &StepCounters {
        self.instances.steps()
    }
}

impl Collector for Sources {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut Exposition(encoder);
        self.server(out)?;
        self.phases(out)?;
        self.instances(out)?;
        self.clients(out)?;
        self.limits(out)?;
        self.quotas(out)?;
        self.credentials(out)?;
        if let Some(commit_log) = &self.commit_log {
            commit_log.encode(out)?;
        }
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &self.cluster {
            crate::metrics::cluster::encode(out, cluster.moves(), &cluster.sample())?;
        }
        process::encode(out)
    }
}
