//! `perturb`: plans, carried out on the containers of a compose project.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use stickycas_client::{Client, RefusalReason, RetryPolicy};
use stickycas_faults::platform::containers::{Docker, Project, project_name};
use stickycas_faults::{Plan, PlanOutcome, Target, perturb, table_of_plans as table};
use stickycas_harness::exit::Exit;
use stickycas_harness::report::folder::DEFAULT_PARENT;
use stickycas_harness::report::json;
use stickycas_harness::run::Identities;
use stickycas_model::printable::printable;
use stickycas_program::asked_to_stop;
use stickycas_proto::names::{InstanceName, InstanceRef};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::output::{log_to_stderr, show, tell};
use super::runtime;

/// How long to try to reach a server that does not answer: in a container that was just made, one may not
/// listen yet.
const GIVE_UP_CONNECTING: Duration = Duration::from_secs(15);
/// The silence after which a server is asked whether it is there: one that is paused or cut off does not say
/// so, and steps are due when events are seen.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// How long one try to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The arguments of `perturb`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct PerturbArgs {
    /// The plans, carried out one after the other
    #[arg(value_name = "PLAN", required = true)]
    plans: Vec<PathBuf>,
    /// The server of the project. Of a cluster, several of its servers, separated by commas. A host that is a
    /// service of the project, as in https://server-1:7420, is called at the port that is published for it
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7420", env = "STICKYCAS_SERVER")]
    server: String,
    /// Follow instances as this principal, which the server must know as an observer
    #[arg(long, value_name = "NAME", default_value = "observer")]
    principal: String,
    /// Folder of the certificate that proves this principal (tls.crt, tls.key), and of the CAs of servers
    /// (ca.crt). The server's address begins with https:// then
    #[arg(long, env = "STICKYCAS_CLIENT_CREDENTIALS", value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// The name of the judge's instances
    #[arg(long, value_name = "NAME", default_value = "demo")]
    instance: InstanceName,
    /// The name of the judge's scenario, with which its run folders begin
    #[arg(long, value_name = "NAME", default_value = "demo")]
    scenario: String,
    /// The compose project; without it, COMPOSE_PROJECT_NAME or the name of this folder, as Compose has it
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// How Compose is called, as in 'docker-compose -f demo.yml'; without it, docker compose or
    /// docker-compose, whichever there is
    #[arg(long, value_name = "WORDS", default_value = "")]
    compose: String,
    /// The program docker
    #[arg(long, value_name = "PROGRAM", default_value = "docker")]
    docker: PathBuf,
    /// Where the judge's container has the plans
    #[arg(long, value_name = "FOLDER", default_value = "/perturbations")]
    plans_of_judge: String,
    /// Where the judge's container has its run folders
    #[arg(long, value_name = "FOLDER", default_value = "/runs")]
    runs_of_judge: String,
    /// Copy run folders to this folder
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_PARENT)]
    runs: PathBuf,
    /// How long a plan may take
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = stickycas_program::parse_duration)]
    timeout: Duration,
    /// Print the outcomes of the plans as JSON on standard output
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
The project must be up: docker compose up --detach. For each plan the judge's container is made anew. All others stay \
as they are, but for what the plan does to them, and are put back as they were, also on Ctrl-C. The judge is left as it \
was made for the last plan: ended, and stopped if the plan was interrupted.";

pub(super) fn run(args: &PerturbArgs) -> anyhow::Result<Exit> {
    // An error in the last plan is told before the first one begins.
    let plans = args.plans.iter().map(|file| Plan::load(file).map(|plan| (file, plan)));
    let plans: Vec<(&PathBuf, Plan)> = plans.collect::<Result<_, _>>()?;
    log_to_stderr();
    let runtime = runtime()?;
    let mut all = Vec::new();
    let carried_out = runtime.block_on(carry_out(args, &plans, &mut all));
    if args.json {
        show(&json::text(&all))?;
    } else if !all.is_empty() {
        show(&table(&all))?;
    }
    carried_out?;
    Ok(if all.iter().all(|done| done.as_expected) { Exit::Done } else { Exit::Failed })
}

/// Carries out the plans; their outcomes are put into `all`, also if one of them fails.
async fn carry_out(
    args: &PerturbArgs,
    plans: &[(&PathBuf, Plan)],
    all: &mut Vec<PlanOutcome>,
) -> anyhow::Result<()> {
    let mut stop = stop();
    let target = target(args).await?;
    for (file, plan) in plans {
        tell(&printable(&format!("{}: {}", plan.name, plan.about)));
        let asked = async {
            // Without a sender no request will come.
            if stop.wait_for(|asked| *asked).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let done = perturb(&target, file, plan, &|line| tell(&format!("  {line}")), asked).await;
        let done = done.with_context(|| format!("plan {}", plan.name))?;
        tell(&done.line());
        all.push(done);
    }
    Ok(())
}

async fn target(args: &PerturbArgs) -> anyhow::Result<Target> {
    let folder = std::env::current_dir().context("cannot find this folder")?;
    let named = std::env::var("COMPOSE_PROJECT_NAME").ok();
    let name = args.project.clone().unwrap_or_else(|| project_name(named.as_deref(), &folder));
    let docker = Docker::new(&args.docker);
    let compose: Vec<String> = args.compose.split_whitespace().map(str::to_owned).collect();
    let project = Project::open(docker.clone(), compose.clone(), &name).await?;
    let client = client(args, project.published().await?).await.with_context(|| {
        let server = &args.server;
        format!(
            "cannot reach the server at {server}: start it with docker compose up --detach, or give --server"
        )
    })?;
    Ok(Target {
        docker,
        compose,
        project: name,
        client,
        instance: args.instance.clone(),
        scenario: args.scenario.clone(),
        plans_of_judge: args.plans_of_judge.clone(),
        runs_of_judge: args.runs_of_judge.clone(),
        runs: args.runs.clone(),
        timeout: args.timeout,
    })
}

/// A client of the servers, of which one has answered. `published`: where the addresses of services are
/// called.
async fn client(args: &PerturbArgs, published: BTreeMap<String, String>) -> anyhow::Result<Client> {
    let identities = args.credentials.clone().map_or(Identities::Names, Identities::Own);
    let retries = Identities::retries(&args.server);
    let soon = RetryPolicy { give_up_after: GIVE_UP_CONNECTING, ..retries };
    let published = Arc::new(published);
    let connect = move |address: String| {
        let at = published.get(&address).cloned().unwrap_or(address);
        async move { connect(&at).await }
    };
    let builder = identities.client(&args.server, &args.principal)?.retry(soon).keep_alive(KEEP_ALIVE);
    let client = builder.connect_lazy_over(connect)?;
    let begun = Instant::now();
    let mut is_there = false;
    loop {
        let Err(error) = client.get(&InstanceRef::Name(args.instance.clone())).await else { break };
        // Servers of a cluster that was just started wait for etcd and for their leases, and for shards.
        is_there |= matches!(error.reason(), Some(RefusalReason::Recovering | RefusalReason::NotOwner));
        if error.reason() == Some(RefusalReason::InstanceUnknown) {
            break;
        }
        if !is_there || begun.elapsed() >= args.timeout {
            return Err(error.into());
        }
    }
    // A plan may take servers away for any time that it has.
    Ok(client.with_retry(RetryPolicy { give_up_after: args.timeout, ..retries }))
}

/// A connection, as soon as may be: a container that is off its network does not refuse it.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Becomes true when this program is asked to end, from now on.
fn stop() -> watch::Receiver<bool> {
    let (asks, asked) = watch::channel(false);
    let stop = asked_to_stop();
    tokio::spawn(async move {
        stop.await;
        let _ = asks.send(true);
    });
    asked
}
