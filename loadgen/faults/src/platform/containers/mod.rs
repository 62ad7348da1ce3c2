//! The containers of one compose project: the operations on them, and their restoration.
//!
//! | module | what |
//! | --- | --- |
//! | `docker` | the program `docker` |
//! | `error` | its failures, with advice |
//! | `members` | whether other members of etcd reach a member |

mod docker;
mod error;
mod members;

use std::collections::BTreeMap;
use std::path::Path;

use tokio::process::Command;

pub use self::docker::Docker;
use self::docker::{ContainerId, Standing, named};
pub use self::error::DockerError;
use crate::plan::{Action, Service};

/// How long a container may take to end when it is asked to, in seconds, before it is killed.
const SECONDS_TO_STOP: &str = "10";

/// The containers of a compose project, found by the labels that Compose gives them.
#[derive(Debug)]
pub struct Project {
    pub(super) docker: Docker,
    /// The program and first arguments of Compose.
    compose: Vec<String>,
    pub(super) name: String,
    /// The earlier states of the containers that operations have touched.
    touched: BTreeMap<Service, Touched>,
    /// Whether the judge's container was made anew for a plan.
    judge_of_plan: bool,
    /// Whether the server's container was made anew, so as to keep its log in memory.
    in_memory: bool,
}

#[derive(Clone, Debug)]
struct Touched {
    container: ContainerId,
    networks: Vec<String>,
}

impl Project {
    /// The project of this name. `compose`: the words by which Compose is called; none: `docker compose`, or
    /// `docker-compose` if there is only that.
    ///
    /// # Errors
    /// The engine does not answer, there is no Compose, or the project has no containers.
    pub async fn open(docker: Docker, compose: Vec<String>, name: &str) -> Result<Self, DockerError> {
        let project = Self {
            docker,
            compose,
            name: name.to_owned(),
            touched: BTreeMap::new(),
            judge_of_plan: false,
            in_memory: false,
        };
        if project.docker.containers(name).await?.is_empty() {
            let others = project.docker.projects().await?.join(", ");
            let advice = "start it with docker compose up --detach";
            let other = if others.is_empty() { "" } else { ", or give another one with --project: " };
            let told = format!("there are no containers of the project {name}: {advice}{other}{others}");
            return Err(DockerError::Other(told));
        }
        if !project.compose.is_empty() {
            return Ok(project);
        }
        let integrated = project.docker.ask(&["compose", "version"]).await.is_ok();
        let program = project.docker.program.to_string_lossy().into_owned();
        let compose =
            if integrated { vec![program, "compose".to_owned()] } else { vec!["docker-compose".to_owned()] };
        Ok(Self { compose, ..project })
    }

    /// Where this machine reaches the ports of the project's containers, by service and port, as in
    /// `server-1:7420`.
    ///
    /// # Errors
    /// The engine fails.
    pub async fn published(&self) -> Result<BTreeMap<String, String>, DockerError> {
        let mut published = BTreeMap::new();
        for (service, container) in self.docker.containers(&self.name).await? {
            for (port, address) in self.docker.inspect(&container).await?.published {
                published.insert(format!("{service}:{port}"), address);
            }
        }
        Ok(published)
    }

    /// The number of servers of a cluster whose containers run.
    ///
    /// # Errors
    /// The engine fails.
    pub async fn running_servers_of_cluster(&self) -> Result<usize, DockerError> {
        let mut running = 0;
        for (service, container) in self.docker.containers(&self.name).await? {
            if matches!(service.parse(), Ok(Service::ServerOfCluster(_))) {
                running += usize::from(self.docker.inspect(&container).await?.running);
            }
        }
        Ok(running)
    }

    async fn container(&self, service: Service) -> Result<ContainerId, DockerError> {
        let containers = self.docker.containers(&self.name).await?;
        let of_service = |(name, id): (String, ContainerId)| (name == service.to_string()).then_some(id);
        containers
            .into_iter()
            .find_map(of_service)
            .ok_or_else(|| DockerError::NoService(self.name.clone(), service))
    }

    /// Records the states of these containers, to put them back in the end.
    ///
    /// # Errors
    /// One of them is not there, or does not run.
    pub async fn expect_running(
        &mut self,
        services: impl IntoIterator<Item = Service>,
    ) -> Result<(), DockerError> {
        for service in services {
            let container = self.container(service).await?;
            let Standing { running, paused, networks, .. } = self.docker.inspect(&container).await?;
            let wrong = match (running, paused) {
                (false, _) => Some("does not run"),
                (true, true) => Some("is paused"),
                (true, false) if networks.is_empty() => Some("is on no network"),
                (true, false) => None,
            };
            if let Some(what) = wrong {
                return Err(DockerError::not_ready(service, what));
            }
            self.touched.insert(service, Touched { container, networks });
        }
        Ok(())
    }

    /// Whether [`expect_running`](Self::expect_running) was called for it.
    #[must_use]
    pub fn is_expected_running(&self, service: Service) -> bool {
        self.touched.contains_key(&service)
    }

    /// Does this to the container of a service, and checks the effect. Before an operation that isolates a
    /// member of etcd, another member must reach it; afterwards none may. `network`: the network to
    /// disconnect from or to reconnect to, by its name in the compose file; `None`: all.
    ///
    /// # Errors
    /// It cannot be done, or has no effect.
    pub async fn act(
        &self,
        action: Action,
        service: Service,
        network: Option<&str>,
    ) -> Result<(), DockerError> {
        let container = self.container(service).await?;
        let id = container.0.as_str();
        let before = self.docker.inspect(&container).await?;
        let network = network.map(|network| format!("{}_{network}", self.name));
        let meant = |name: &&String| network.as_ref().is_none_or(|network| *name == network);
        if action == Action::Disconnect && !before.networks.iter().any(|name| meant(&name)) {
            return Err(DockerError::not_ready(service, "is not on this network"));
        }
        let is_taken_away = takes_away(action, service);
        if is_taken_away {
            self.await_reached(service).await?;
        }
        match action {
            Action::Kill => self.docker.act(&["kill", id]).await?,
            Action::Pause => self.docker.act(&["pause", id]).await?,
            Action::Unpause => self.docker.act(&["unpause", id]).await?,
            Action::Restart => self.docker.act(&["restart", "-t", SECONDS_TO_STOP, id]).await?,
            Action::Stop => self.docker.act(&["stop", "-t", SECONDS_TO_STOP, id]).await?,
            Action::Start => self.docker.act(&["start", id]).await?,
            Action::Disconnect => {
                for network in before.networks.iter().filter(&meant) {
                    self.docker.act(&["network", "disconnect", network, id]).await?;
                }
            }
            Action::Depose | Action::DropIncoming => {
                let told =
                    format!("{action} is an operation of the kill test: give another one to a container");
                return Err(DockerError::Other(told));
            }
            Action::Reconnect => {
                let networks = self.touched.get(&service).map(|touched| touched.networks.as_slice());
                for network in networks.unwrap_or_default().iter().filter(&meant) {
                    self.connect(network, &container, service).await?;
                }
            }
        }
        let mut after = self.docker.inspect(&container).await?;
        after.networks.retain(|name| meant(&name));
        let mut what = without_effect(action, &before, &after);
        if what.is_none() && is_taken_away && self.is_reached(service).await? {
            what = Some("is in reach of another member");
        }
        match what {
            Some(what) => {
                let told =
                    format!("{action} {service}: the engine says that it is done, and the container {what}");
                Err(DockerError::Other(told))
            }
            None => Ok(()),
        }
    }

    /// With the service's name as alias, by which the others find it.
    async fn connect(
        &self,
        network: &str,
        container: &ContainerId,
        service: Service,
    ) -> Result<(), DockerError> {
        let alias = service.to_string();
        self.docker.act(&["network", "connect", "--alias", &alias, network, &container.0]).await
    }

    /// Puts everything back as it was when [`expect_running`](Self::expect_running) was called for it.
    ///
    /// # Errors
    /// The containers that could not be put back; all others are.
    pub async fn restore(&mut self) -> Result<(), DockerError> {
        let mut failed = Vec::new();
        for (service, touched) in std::mem::take(&mut self.touched) {
            if let Err(error) = self.put_back(service, &touched).await {
                failed.push(format!("{service}: {error}"));
            }
        }
        if std::mem::take(&mut self.in_memory)
            && let Err(error) = self.recreate(Service::Server, &[], &[]).await
        {
            failed.push(format!("{}: {error}", Service::Server));
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(DockerError::Other(format!("not put back as it was: {}", failed.join("; "))))
    }

    async fn put_back(&self, service: Service, touched: &Touched) -> Result<(), DockerError> {
        // An operation that still runs shows its effect only at its end.
        drop(self.docker.turn.lock().await);
        let Touched { container, networks } = touched;
        let now = self.docker.inspect(container).await?;
        if now.paused {
            self.docker.act(&["unpause", &container.0]).await?;
        }
        for network in networks.iter().filter(|network| !now.networks.contains(network)) {
            self.connect(network, container, service).await?;
        }
        // Started again, the judge would judge another instance.
        if !now.running && service != Service::Judge {
            self.docker.act(&["start", &container.0]).await?;
        }
        Ok(())
    }

    /// Makes the judge's container anew, with this value of `STICKYCAS_PLAN`; all others stay as they are.
    /// The new judge starts a series of its own, independently of an earlier one.
    ///
    /// # Errors
    /// Compose fails.
    pub async fn recreate_judge(&mut self, plan: &str) -> Result<(), DockerError> {
        let series = format!("{:08x}", rand::random::<u32>());
        self.judge_of_plan = true;
        let environment = [("STICKYCAS_PLAN", plan), ("STICKYCAS_SERIES", &series)];
        self.recreate(Service::Judge, &["--force-recreate"], &environment).await
    }

    /// Makes the server's container anew, which keeps its log in memory from now on, until
    /// [`restore`](Self::restore). It serves soon: no flag to wait for that is known to every Compose.
    ///
    /// # Errors
    /// Compose fails.
    pub async fn recreate_server_in_memory(&mut self) -> Result<(), DockerError> {
        self.in_memory = true;
        self.recreate(Service::Server, &[], &[("DEMO_LOG", "--in-memory")]).await
    }

    /// Makes the container of a service anew, with these variables; all others stay as they are.
    async fn recreate(
        &self,
        service: Service,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<(), DockerError> {
        let (program, first) = self.compose.split_first().expect("open has found one");
        let service = service.to_string();
        let arguments = ["-p", &self.name, "up", "--detach", "--no-deps"];
        let arguments = arguments.iter().chain(flags).copied().chain([service.as_str()]);
        let arguments: Vec<&str> = first.iter().map(String::as_str).chain(arguments).collect();
        let mut command = Command::new(program);
        command.args(&arguments).envs(environment.iter().copied());
        self.docker.to_its_end(command, named(program.as_ref(), &arguments)).await
    }

    /// Stops the judge's container if it was made anew for a plan, which is not carried out any more.
    ///
    /// # Errors
    /// The engine fails.
    pub async fn stop_judge(&mut self) -> Result<(), DockerError> {
        if !std::mem::take(&mut self.judge_of_plan) {
            return Ok(());
        }
        // It may just be being made.
        drop(self.docker.turn.lock().await);
        if !self.judge_runs().await? {
            return Ok(());
        }
        let container = self.container(Service::Judge).await?;
        self.docker.act(&["stop", "-t", SECONDS_TO_STOP, &container.0]).await
    }

    /// Whether the judge's container runs.
    ///
    /// # Errors
    /// The engine fails.
    pub async fn judge_runs(&self) -> Result<bool, DockerError> {
        match self.container(Service::Judge).await {
            Ok(container) => Ok(self.docker.inspect(&container).await?.running),
            Err(DockerError::NoService(..)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Until the judge's container has ended: its exit code.
    ///
    /// # Errors
    /// The engine fails, or there is no judge.
    pub async fn judge_ended(&self) -> Result<i64, DockerError> {
        let container = self.container(Service::Judge).await?;
        self.docker.wait(&container).await
    }

    /// Copies a file or folder out of the judge's container.
    ///
    /// # Errors
    /// It is not there, or cannot be written here.
    pub async fn copy_from_judge(&self, from: &str, to: &Path) -> Result<(), DockerError> {
        let container = self.container(Service::Judge).await?;
        self.docker.copy(&container, from, to).await
    }
}

/// The state of a container after this operation, if it is not the intended one.
fn without_effect(action: Action, before: &Standing, after: &Standing) -> Option<&'static str> {
    let wrong = |wrong: bool, what: &'static str| wrong.then_some(what);
    match action {
        Action::Kill | Action::Stop => wrong(after.running, "runs"),
        Action::Pause => wrong(!after.paused, "is not paused"),
        Action::Unpause => wrong(after.paused || !after.running, "does not run"),
        Action::Restart => {
            wrong(!after.running || after.started_at == before.started_at, "was not started again")
        }
        Action::Start => wrong(!after.running, "does not run"),
        Action::Disconnect => wrong(!after.networks.is_empty(), "is on a network"),
        Action::Reconnect => wrong(after.networks.is_empty(), "is on no network"),
        Action::Depose | Action::DropIncoming => None,
    }
}

/// The name that Compose gives a project: `COMPOSE_PROJECT_NAME`, or that of the folder of its file.
#[must_use]
pub fn project_name(given: Option<&str>, folder: &Path) -> String {
    let name = match given.filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    let allowed =
        |char: &char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '_');
    let name: String = name.to_lowercase().chars().filter(allowed).collect();
    name.trim_start_matches(['-', '_']).to_owned()
}

/// Whether this operation isolates a member of etcd until a later one.
const fn takes_away(action: Action, service: Service) -> bool {
    matches!(service, Service::Etcd(_))
        && matches!(action, Action::Kill | Action::Stop | Action::Pause | Action::Disconnect)
}
