//! A server, a judge and clients, each of which may be there or not: they find each other through proxies.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stickycas_client::Client;
use stickycas_client::watch::{WatchFrom, Watched};
use stickycas_client_program::{PlayRecord, run_from};
use stickycas_faults::Plan;
use stickycas_harness::Record;
use stickycas_harness::judge::{JudgeOptions, ReportService, SeriesCheckpoint, SeriesRequest, Subject, run};
use stickycas_harness::run::{COORDINATOR, Identities, OwnServer, ServerHandle};
use stickycas_model::history::Event;
use stickycas_model::judge::Outcome;
use stickycas_proto::names::{InstanceId, InstanceRef};
use stickycas_proto::v1::RefusalReason;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::client_support::{Proxy, client};

/// Six processes that propose tea, two to a warp, of which the last is Byzantine and stays silent.
pub(crate) const SCENARIO: &str = r#"
name = "external"
[instance]
processes = 6
warp_size = 2
read_size = 2
patience = "100ms"
[proposals]
values = ["tea", "tea", "tea", "tea", "tea", "tea"]
[[faults]]
processes = [6]
strategy = "silent"
"#;

/// A judged instance.
pub(crate) type Judged = (InstanceId, Record);

/// Where everybody meets.
pub(crate) struct ExternalRun {
    pub(crate) server: Proxy,
    pub(crate) judge: Proxy,
    pub(crate) runs: TempDir,
    /// After so long without an event a judge gives up.
    pub(crate) stall: Duration,
    scenario: String,
    clients: JoinSet<()>,
}

/// A judge at work. Dropping it ends it without a word.
pub(crate) struct JudgeAtWork {
    task: JoinHandle<anyhow::Result<()>>,
    pub(crate) verdicts: mpsc::UnboundedReceiver<Judged>,
}

impl Drop for JudgeAtWork {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl JudgeAtWork {
    /// The record of the next instance.
    pub(crate) async fn next(&mut self) -> Judged {
        match self.verdicts.recv().await {
            Some(judged) => judged,
            None => panic!("the judge has ended: {:?}", (&mut self.task).await),
        }
    }

    /// Ends it without a word, and waits until it is gone.
    pub(crate) async fn drop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn end(mut self) {
        (&mut self.task).await.unwrap().unwrap();
    }
}

/// What a client has printed.
#[derive(Clone, Default)]
pub(crate) struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Printed {
    pub(crate) fn records(&self) -> Vec<PlayRecord> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl ExternalRun {
    /// Nobody is there.
    pub(crate) async fn new(scenario: &str) -> Self {
        let nobody = async || {
            let proxy = Proxy::to("nobody").await;
            proxy.redirect(None);
            proxy
        };
        Self {
            server: nobody().await,
            judge: nobody().await,
            runs: tempfile::tempdir().unwrap(),
            stall: Duration::from_secs(3600),
            scenario: scenario.to_owned(),
            clients: JoinSet::new(),
        }
    }

    /// From now on judges are asked for another scenario.
    pub(crate) fn ask_for(&mut self, scenario: &str) {
        scenario.clone_into(&mut self.scenario);
    }

    /// Starts a server, which everybody finds from now on.
    pub(crate) async fn start_server(&self) -> OwnServer {
        let server = OwnServer::start().await.unwrap();
        self.server.redirect(Some(address(server.url())));
        server
    }

    /// Starts a judge, which everybody finds from now on.
    pub(crate) async fn start_judge(&self, instances: u64) -> JudgeAtWork {
        self.start_judge_with(instances, None).await
    }

    /// The same with a plan of what is done to the processes.
    pub(crate) async fn start_judge_with(&self, instances: u64, plan: Option<Plan>) -> JudgeAtWork {
        let gone = plan.as_ref().map(Plan::gone).unwrap_or_default();
        let subject = Subject {
            file: "external.toml".to_owned(),
            text: self.scenario.clone(),
            settings: plan.map(|plan| plan.settings).unwrap_or_default(),
            name: "demo".parse().unwrap(),
        };
        let asked = SeriesRequest {
            scenario: self.scenario.clone(),
            set: Vec::new(),
            plan: None,
            seed: None,
            instances: Some(instances),
            series: String::new(),
        };
        let mut series = SeriesCheckpoint::open(self.runs.path(), &subject.name, asked, 7).unwrap();
        let params = subject.scenario(Some(7)).unwrap().params;
        let reports_at =
            ReportService::open(SocketAddr::from(([127, 0, 0, 1], 0)), &params, None).await.unwrap();
        self.judge.redirect(Some(&reports_at.address().to_string()));
        let (url, stall) = (format!("http://{}", self.server.address), self.stall);
        let (tell, verdicts) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let handle =
                ServerHandle::open_within(&url, COORDINATOR, Identities::Names, Duration::from_secs(3600))
                    .await?;
            let options = JudgeOptions { stall, gone, quiet: true, tell: |_| {} };
            run(&handle, &reports_at, &subject, &mut series, &options, |record, instance| {
                tell.send((instance, record.clone()))?;
                Ok(())
            })
            .await?;
            reports_at.close().await;
            Ok(())
        });
        JudgeAtWork { task, verdicts }
    }

    /// Starts the client of a process.
    pub(crate) fn start(&mut self, process: u32, part: &str) -> Printed {
        let report_to = format!("--report-to http://{}", self.judge.address);
        self.start_without_report(process, &format!("{part} {report_to}"))
    }

    /// Starts the client of a process that tells the judge nothing.
    pub(crate) fn start_without_report(&mut self, process: u32, part: &str) -> Printed {
        let server = format!("http://{}", self.server.address);
        let line = format!(
            "client --server {server} --principal process-{process} --json propose --instance demo --again {part}"
        );
        let printed = Printed::default();
        let mut out = printed.clone();
        self.clients.spawn(async move {
            let words: Vec<&str> = line.split(' ').collect();
            let mut err = Vec::new();
            let exit = run_from(words, &mut out, &mut err).await;
            panic!("{line} has ended with {exit:?}: {}", String::from_utf8_lossy(&err));
        });
        printed
    }

    /// Starts the clients of all as the scenario has it.
    pub(crate) fn start_all(&mut self) -> Vec<Printed> {
        let mut all: Vec<Printed> = (1..=5).map(|process| self.start(process, "--value tea")).collect();
        all.push(self.start(6, "--strategy silent"));
        all
    }

    /// The instance that is there, once there is one.
    pub(crate) async fn instance(&self) -> InstanceId {
        let observer = client(&self.server.address, COORDINATOR);
        loop {
            match observer.get(&InstanceRef::Name("demo".parse().unwrap())).await {
                Ok(looked) => return looked.instance.id,
                Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until so many such events have happened at the instance that is there.
    pub(crate) async fn until(&self, count: usize, wanted: impl Fn(&Event) -> bool) {
        let instance = self.instance().await;
        let mut watch = client(&self.server.address, COORDINATOR).watch(instance, WatchFrom::Start);
        let mut left = count;
        while left > 0 {
            match watch.try_next().await.unwrap().expect("it happens before the end") {
                Watched::Event(_, recorded) => left -= usize::from(wanted(&recorded.event)),
                Watched::Snapshot(_) => {}
            }
        }
    }

    /// Somebody who talks to the judge by hand.
    pub(crate) fn at_the_desk(&self, principal: &str) -> Client {
        client(&self.judge.address, principal)
    }
}

pub(crate) fn address(url: &str) -> &str {
    url.strip_prefix("http://").unwrap()
}

#[track_caller]
pub(crate) fn assert_verdict(record: &Record, verdict: Outcome) {
    assert_eq!(record.verdict.verdict, verdict, "{:#?}", record.verdict.reasons);
}

#[track_caller]
pub(crate) fn assert_says(record: &Record, what: &str) {
    let reasons = &record.verdict.reasons;
    assert!(reasons.iter().any(|reason| reason.contains(what)), "{what:?} is not in {reasons:#?}");
}
