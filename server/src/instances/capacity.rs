//! Whether there is capacity for another instance, and why not.
//!
//! Every bound of the server is divided among its coordinators ([`may_take`]): each has a reserve, and of the
//! rest none takes more than is free. One coordinator alone may take all.

use std::fmt::Display;
use std::time::Duration;

use super::config::SharedConfig;
use super::load_monitor::LoadMonitor;
use super::registry::{Capacity, CreatorUsage, Registry};
use crate::auth::Principal;
use crate::limits::Limits;
use crate::quota::may_take;

/// The reason for which there is no capacity, and its end.
#[derive(Debug)]
pub(super) struct Shortage {
    pub(super) why: String,
    pub(super) until: Until,
}

/// The earliest end of a shortage of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until live instances end.
    InstancesEnd,
    /// Until the server lets go of ended instances of the creator, which count until then.
    OwnAreLetGo,
    /// The same of any instances.
    AnyIsLetGo,
    /// Bytes that the creator's instances may come to take. Ended ones give them back when the server lets go
    /// of them, as above. Live ones give most of theirs back when they end, and nobody knows when that is:
    /// see [`UNTIL_AN_END`].
    OwnBytes,
    /// The same of any instances.
    AnyBytes,
}

/// The wait that is advised while live instances have the bytes that a Create needs: it depends on their
/// processes when they end. Longer than `retry_after`, since a place is free with the first that ends, and
/// bytes for a large instance often only when many have.
pub(super) const UNTIL_AN_END: Duration = Duration::from_secs(1);

impl Until {
    fn if_short(self, is_short: bool, why: impl FnOnce() -> String) -> Option<Shortage> {
        is_short.then(|| Shortage { why: why(), until: self })
    }
}

/// The reason for which an instance with this configuration could not be created on an empty server either;
/// `None` if it could.
pub(super) fn never_fits(config: &SharedConfig, limits: &Limits, has_log: bool) -> Option<String> {
    let processes = config.params.processes() as usize;
    if processes > limits.processes {
        return Some(format!(
            "n = {processes} processes: the server takes {} in all its instances (processes)",
            limits.processes
        ));
    }
    let bytes = limits.worst_case(&config.params);
    if bytes > limits.instance_bytes {
        return Some(format!(
            "such an instance may come to take {bytes} bytes of memory, and the server has {} for all (instance_bytes): \
             give fewer processes, a smaller pipeline or smaller values",
            limits.instance_bytes
        ));
    }
    let (bytes, most) = (config.log_case(limits), limits.log_bytes.min(limits.log_bytes_per_creator));
    (has_log && bytes > most).then(|| {
        format!(
            "such an instance may come to take {bytes} bytes of the log, and a creator has {most} (log_bytes, \
             log_bytes_per_creator): give fewer processes, a smaller pipeline or smaller values"
        )
    })
}

impl Registry {
    /// The shortest wait that a creator is told whose instance finds no capacity `until` then, at this moment
    /// of the timers. `None`: nobody knows.
    pub(super) fn shortest_wait(
        &self,
        until: Until,
        creator: &Principal,
        load: &LoadMonitor,
        now: u64,
    ) -> Option<Duration> {
        let own = self.creator(creator);
        let own_expiration = || own?.reserve.expirations.next(now);
        let any_expiration = || self.creators().filter_map(|all| all.reserve.expirations.next(now)).min();
        let (expiration, is_any_live) = match until {
            Until::InstancesEnd => (None, false),
            Until::OwnAreLetGo => (own_expiration(), false),
            Until::AnyIsLetGo => (any_expiration(), false),
            Until::OwnBytes => (own_expiration(), own.is_some_and(|own| own.live() > 0)),
            Until::AnyBytes => (any_expiration(), load.live() > 0),
        };
        let expiration = expiration.map(|due| Duration::from_nanos(due - now));
        expiration.into_iter().chain(is_any_live.then_some(UNTIL_AN_END)).min()
    }

    /// The reason for which there is no capacity for an instance with this configuration; `None` if there is.
    pub(super) fn shortage(&self, config: &SharedConfig, capacity: Capacity<'_>) -> Option<Shortage> {
        self.count_shortage(config, capacity)
            .or_else(|| self.memory_shortage(config, capacity))
            .or_else(|| self.log_shortage(config, capacity))
            .or_else(|| self.share_shortage(config, capacity))
    }

    /// The server has room, and the creator may not take it.
    fn share_shortage(&self, config: &SharedConfig, capacity: Capacity<'_>) -> Option<Shortage> {
        let Capacity { limits, has_log, coordinators, .. } = capacity;
        let memory = limits.worst_case(&config.params);
        let log = if has_log { config.log_case(limits) } else { 0 };
        let processes = config.params.processes() as usize;
        type Used = fn(&CreatorUsage) -> usize;
        // The instances of other creators give back capacity, too.
        let (end, let_go, bytes) = (Until::InstancesEnd, Until::AnyIsLetGo, Until::AnyBytes);
        let bounds: [(&str, usize, usize, Used, Until); 5] = [
            ("instances that have not ended", limits.live_instances, 1, CreatorUsage::live, end),
            ("instances, ended ones included", limits.instances, 1, |it| it.held, let_go),
            ("processes in your instances", limits.processes, processes, |it| it.processes, let_go),
            (
                "bytes that your instances may come to take",
                limits.instance_bytes,
                memory,
                |it| it.reserve.own.memory(),
                bytes,
            ),
            (
                "bytes of the log that your instances may come to take",
                limits.log_bytes,
                log,
                |it| it.reserve.own.log(),
                bytes,
            ),
        ];
        bounds.into_iter().find_map(|(what, total, amount, used, until)| {
            let own = self.creator(&config.creator).map_or(0, used);
            let all = self.creators().map(used);
            until.if_short(!may_take(total, coordinators, own, amount, all), || {
                format!(
                    "you have {own} {what}, and may take no more of what is left of {total}, since there are {coordinators} \
                     coordinators: let some instances come to their end"
                )
            })
        })
    }

    fn log_shortage(&self, config: &SharedConfig, capacity: Capacity<'_>) -> Option<Shortage> {
        let Capacity { limits, has_log, .. } = capacity;
        if !has_log {
            return None;
        }
        let needed = config.log_case(limits);
        let (all, limit) = (self.log_bytes(), limits.log_bytes);
        let own = self.creator(&config.creator).map_or(0, |created| created.reserve.own.log());
        let own_limit = limits.log_bytes_per_creator;
        let all_short = Until::AnyBytes.if_short(all + needed > limit, || {
            format!(
                "the instances that the server holds may come to take {all} bytes of its log, and with this one more \
                 than the {limit} that they may: wait until some have ended"
            )
        });
        all_short.or_else(|| {
            Until::OwnBytes.if_short(own + needed > own_limit, || {
                format!(
                    "your instances may come to take {own} bytes of the server's log, and with this one more than the \
                     {own_limit} that they may: let some come to their end"
                )
            })
        })
    }

    fn count_shortage(&self, config: &SharedConfig, capacity: Capacity<'_>) -> Option<Shortage> {
        let Capacity { limits, load, .. } = capacity;
        let (held, live) = (self.held(), load.live());
        let created = self.creator(&config.creator);
        let own_held = created.map_or(0, |created| created.held);
        let own_live = created.map_or(0, CreatorUsage::live);
        let retention: &dyn Display = &humantime::format_duration(limits.retention);
        let bounds: [(bool, Until, &dyn Fn() -> String); 5] = [
            (live >= limits.live_instances, Until::InstancesEnd, &|| {
                format!(
                    "the server has {live} instances that have not ended, as many as it may: wait until some have"
                )
            }),
            (own_live >= limits.live_instances_per_creator, Until::InstancesEnd, &|| {
                format!(
                    "you have {own_live} instances that have not ended, as many as you may: let some come to their end, or \
                     close some"
                )
            }),
            (held >= limits.instances, Until::AnyIsLetGo, &|| {
                format!(
                    "the server holds {held} instances, ended ones included, as many as it may: each is let go of \
                     {retention} after its end"
                )
            }),
            (own_held >= limits.instances_per_creator, Until::OwnAreLetGo, &|| {
                format!(
                    "the server holds {own_held} instances of yours, ended ones included, as many as it may: each is let \
                     go of {retention} after its end"
                )
            }),
            (load.refuses(own_live), Until::InstancesEnd, &|| {
                format!(
                    "the server has all the work that it can do, and you have {own_live} instances that have not ended: \
                     let some come to their end"
                )
            }),
        ];
        bounds.into_iter().find_map(|(is_short, until, why)| until.if_short(is_short, why))
    }

    fn memory_shortage(&self, config: &SharedConfig, capacity: Capacity<'_>) -> Option<Shortage> {
        let Capacity { limits, .. } = capacity;
        let (processes, bytes) = (self.processes(), self.memory_bytes());
        let too_many = processes + config.params.processes() as usize > limits.processes;
        let many_short = Until::AnyIsLetGo.if_short(too_many, || {
            let most = limits.processes;
            format!("the instances that the server holds have {processes} processes, and may have {most}")
        });
        many_short.or_else(|| {
            let most = limits.instance_bytes;
            Until::AnyBytes.if_short(bytes + limits.worst_case(&config.params) > most, || {
                format!(
                    "the instances that the server holds may come to take {bytes} bytes, and with this one more than \
                     the {most} that they may: a smaller pipeline or smaller values need less"
                )
            })
        })
    }
}
