//! A network of its own for each round, so that servers and members of etcd can be cut off from each other: a
//! network namespace for each of them (Linux, root, `ip` of iproute2), joined by a router in one more.
//!
//! A rule of the router drops the packets from one host to another, `from A to B blackhole`: the sender gets
//! no answer and does not learn of it, and the other direction can stay open. Connections stay open, and go
//! on afterwards. The clients stay where they are, in the machine's own namespace, with an address in this
//! network.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, bail};

/// Namespaces are named after this, the process that made them, and their numbers.
const PREFIX: &str = "stickycas";
/// Networks of this machine at a time: the third byte of their addresses.
const NETWORKS: u8 = 255;

/// A host in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host(u8);

impl Host {
    const ROUTER: Self = Self(1);
    /// All clients.
    pub(super) const CLIENTS: Self = Self(2);

    /// A server or member, from 0.
    pub(super) fn new(number: usize) -> anyhow::Result<Self> {
        let number = u8::try_from(number).ok().and_then(|number| number.checked_add(Self::CLIENTS.0 + 1));
        Ok(Self(number.context("a network has 250 hosts")?))
    }
}

/// See the module. When this is dropped, all of it is removed.
#[derive(Debug)]
pub(super) struct Network {
    /// The prefix of the names of its namespaces.
    name: String,
    number: u8,
    hosts: Vec<Host>,
    /// The pairs of hosts, sender and receiver, between which packets are dropped.
    cut: Vec<(Host, Host)>,
}

/// Networks that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Network {
    /// Whether there can be one here.
    pub(super) fn check() -> anyhow::Result<()> {
        remove_left_behind();
        let network = Self::new(1).context("it needs root, and `ip` (Debian: apt-get install iproute2)")?;
        drop(network);
        Ok(())
    }

    /// A network of so many hosts, and the clients.
    pub(super) fn new(hosts: usize) -> anyhow::Result<Self> {
        let name = format!("{PREFIX}-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let mut network = Self { name, number: 0, hosts: Vec::new(), cut: Vec::new() };
        let router = network.namespace(Host::ROUTER);
        ip(&["netns", "add", &router])?;
        network.join_clients(&router)?;
        for number in 0..hosts {
            let host = Host::new(number)?;
            network.hosts.push(host);
            network.join(host, &router)?;
        }
        Ok(network)
    }

    /// Joins the clients to the router. The name of their interface is unique on the machine, so it reserves
    /// the addresses.
    fn join_clients(&mut self, router: &str) -> anyhow::Result<()> {
        let mut last = None;
        for number in 0..NETWORKS {
            let clients = clients_interface(number);
            match ip(&["link", "add", &clients, "type", "veth", "peer", "name", "clients", "netns", router]) {
                Ok(()) => {
                    self.number = number;
                    break;
                }
                Err(error) if number + 1 == NETWORKS => last = Some(error),
                Err(_) => {}
            }
        }
        if let Some(error) = last {
            return Err(error);
        }
        let (at_router, own) = (self.address(Host::ROUTER), self.address(Host::CLIENTS));
        let (clients, all) = (clients_interface(self.number), Ipv4Addr::new(198, 18, self.number, 0));
        batch(
            Some(router),
            &[
                "link set lo up".to_owned(),
                format!("addr add {at_router}/32 dev lo"),
                "link set clients up".to_owned(),
                format!("route add {own}/32 dev clients"),
            ],
        )?;
        batch(
            None,
            &[
                format!("addr add {own}/32 dev {clients}"),
                format!("link set {clients} up"),
                format!("route add {at_router}/32 dev {clients}"),
                format!("route add {all}/24 via {at_router} dev {clients} src {own}"),
            ],
        )?;
        // The file is that of the namespace in which it is opened.
        let forward = "echo 1 >/proc/sys/net/ipv4/ip_forward";
        ip(&["netns", "exec", router, "sh", "-c", forward])
    }

    fn join(&self, host: Host, router: &str) -> anyhow::Result<()> {
        let (namespace, interface) = (self.namespace(host), format!("host{}", host.0));
        let (at_router, own) = (self.address(Host::ROUTER), self.address(host));
        ip(&["netns", "add", &namespace])?;
        batch(
            Some(router),
            &[
                format!("link add {interface} type veth peer name net netns {namespace}"),
                format!("link set {interface} up"),
                format!("route add {own}/32 dev {interface}"),
            ],
        )?;
        batch(
            Some(&namespace),
            &[
                "link set lo up".to_owned(),
                format!("addr add {own}/32 dev net"),
                "link set net up".to_owned(),
                format!("route add {at_router}/32 dev net"),
                format!("route add default via {at_router} dev net"),
            ],
        )
    }

    fn namespace(&self, host: Host) -> String {
        format!("{}-{}", self.name, host.0)
    }

    /// The address of a host: of those that are meant for tests within a network (RFC 2544).
    pub(super) const fn address(&self, host: Host) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, host.0)
    }

    /// The command in front of a program that is to run on this host. Its process becomes the program.
    pub(super) fn command(&self, host: Host) -> Vec<OsString> {
        ["ip", "netns", "exec", &self.namespace(host)].map(OsString::from).to_vec()
    }

    /// Drops all packets from any of these hosts to any of those, until [`Self::heal`].
    pub(super) fn cut(&mut self, from: &[Host], to: &[Host]) -> anyhow::Result<()> {
        let pairs = from.iter().flat_map(|from| to.iter().map(|to| (*from, *to)));
        let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
        self.cut.extend(&pairs);
        self.rules("add", &pairs)
    }

    /// Drops no packets any more.
    pub(super) fn heal(&mut self) -> anyhow::Result<()> {
        let pairs = std::mem::take(&mut self.cut);
        self.rules("del", &pairs)
    }

    fn rules(&self, verb: &str, pairs: &[(Host, Host)]) -> anyhow::Result<()> {
        let rule = |(from, to): &(Host, Host)| {
            format!("rule {verb} from {} to {} blackhole", self.address(*from), self.address(*to))
        };
        batch(Some(&self.namespace(Host::ROUTER)), &pairs.iter().map(rule).collect::<Vec<_>>())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A namespace may be missing: then its removal fails.
        let _ = ip(&["netns", "del", &self.namespace(Host::ROUTER)]);
        for host in &self.hosts {
            let _ = ip(&["netns", "del", &self.namespace(*host)]);
        }
    }
}

/// The interface of the clients of a network.
fn clients_interface(number: u8) -> String {
    format!("{PREFIX}{number}")
}

/// Removes the networks of processes that were killed, also of one that had the id of this process, which has
/// no network yet.
fn remove_left_behind() {
    let own = std::process::id().to_string();
    let is_gone = |process: &str| process == own || !Path::new("/proc").join(process).exists();
    let Ok(namespaces) = fs::read_dir("/run/netns") else { return };
    for entry in namespaces.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').nth(1));
        if process.is_some_and(is_gone) {
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    succeeded(&output.context("ip")?, &arguments.join(" "))
}

/// Several commands, in this namespace or in the machine's own.
fn batch(namespace: Option<&str>, commands: &[String]) -> anyhow::Result<()> {
    let namespace = namespace.map(|namespace| ["-netns", namespace]);
    let mut child = Command::new("ip")
        .args(namespace.iter().flatten())
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("ip")?;
    let commands = commands.join("\n");
    let mut input = child.stdin.take().context("it takes no commands")?;
    input.write_all(commands.as_bytes()).and_then(|()| input.write_all(b"\n")).context("ip")?;
    drop(input);
    succeeded(&child.wait_with_output().context("ip")?, &commands)
}

fn succeeded(output: &Output, command: &str) -> anyhow::Result<()> {
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("ip {command}: {}", told.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_an_address_of_its_own() {
        let network = Network { name: String::new(), number: 7, hosts: Vec::new(), cut: Vec::new() };
        assert_eq!(network.address(Host::new(0).unwrap()).to_string(), "198.18.7.3");
        assert!(Host::new(252).is_ok() && Host::new(253).is_err());
    }
}
