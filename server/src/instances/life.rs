//! How an instance lives: awake, and packed once it has ended; until when; and the one timer that this takes.

use stickycas_model::types::Time;
use stickycas_proto::names::InstanceId;

use super::ended::{Ended, stays_awake};
use super::guarded::Guarded;
use super::instance::Instance;
use super::timers::Alarm;

/// What the lock of an instance guards.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) alarm: Alarm,
    /// Its time is over (F10): whoever still holds it finds it gone.
    pub(super) expired: bool,
    pub(super) life: Life,
}

/// See the module.
#[derive(Debug)]
pub(super) enum Life {
    Awake(Box<Guarded>),
    Ended(Ended),
}

impl Core {
    /// Of a new instance.
    pub(super) fn new(awake: Guarded) -> Self {
        Self { alarm: Alarm::default(), expired: false, life: Life::Awake(Box::new(awake)) }
    }

    /// Unpacks an instance that has ended.
    pub(super) fn awaken(&mut self, instance: &Instance) -> &mut Guarded {
        if let Life::Ended(ended) = &mut self.life {
            self.life = Life::Awake(Box::new(ended.unpack(&instance.definition, &instance.house.limits)));
        }
        match &mut self.life {
            Life::Awake(awake) => awake,
            Life::Ended(_) => unreachable!("it has just been unpacked"),
        }
    }

    /// Packs an instance that has ended: at once when it ends, later when it has been left alone for a while.
    pub(super) fn rest(&mut self, instance: &Instance, now: Time) {
        let Life::Awake(awake) = &mut self.life else { return };
        let Some(at) = awake.ended else { return };
        if awake.reserved.is_none() && now < awake.touched.after(stays_awake(instance.params())) {
            return;
        }
        self.life = Life::Ended(Ended::pack(awake, at));
    }

    /// When the instance expires as things stand (F10).
    pub(super) fn expires(&self, instance: &Instance) -> Time {
        let (retention, idle_lifetime) = instance.lifetimes();
        match &self.life {
            Life::Ended(Ended { at, .. }) => at.after(retention),
            Life::Awake(awake) => match awake.ended {
                Some(at) => at.after(retention),
                None => awake.touched.after(idle_lifetime),
            },
        }
    }

    /// Sets the timer if the one that is set comes too late.
    pub(super) fn set_alarm(&mut self, instance: &Instance) {
        let expiry = self.expires(instance);
        let sooner = match &self.life {
            Life::Ended(_) => None,
            Life::Awake(awake) if awake.ended.is_some() => {
                Some(awake.touched.after(stays_awake(instance.params())))
            }
            Life::Awake(awake) => awake.machine.deadline(),
        };
        let due = sooner.map_or(expiry, |sooner| sooner.min(expiry));
        let due = instance.born.saturating_add(due.as_nanos());
        self.alarm.set(due, instance.definition.id, &instance.house.timers);
    }

    /// Its time is over: lets go of everybody who waits, since nothing will happen here any more.
    pub(super) fn expire(&mut self, id: InstanceId) {
        match &mut self.life {
            Life::Awake(awake) => awake.expire(id),
            Life::Ended(ended) => {
                let outlets = ended.outlets.take();
                outlets.into_iter().flat_map(|mut outlets| outlets.take()).for_each(|(_, outlet)| {
                    outlet.outbox.free(outlet.channel);
                });
            }
        }
    }
}
