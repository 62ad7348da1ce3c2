//! The part of the coordinator: it creates the instances of a [`Series`], and lets them live on.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::time::Duration;

use stickycas_client::{Error, RefusalReason};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{LOOK_AGAIN_LATER, Series, SeriesSpec, Terms, first_that_may_be_open};
use crate::error::LogError;

impl Series {
    /// Creates the instances of the series, ahead of those who use them, as long as it is polled: the part of
    /// its coordinator, who needs that role. Begun again, it goes on with the series that it finds; if the
    /// server keeps nothing of it any more, another one begins, with number 1: give it another name then, so
    /// that nobody takes one for the other.
    ///
    /// Only one may do so at a time.
    ///
    /// # Errors
    /// When the specification is wrong, or not that of the series; when a call fails.
    pub async fn coordinate(&self, spec: &SeriesSpec) -> Result<Infallible, LogError> {
        let known = self.kept().await?;
        let mut newest = known.last().copied().unwrap_or(0);
        let mut seed = rand::random();
        if newest > 0 {
            self.find(newest).await?;
            seed = self.terms().params.spec().seed.get();
        }
        let params = spec.params(seed)?;
        let creator = self.client.principal().to_owned();
        let terms = Terms { creator, roster: spec.roster.clone(), params };
        if *self.terms.get_or_init(|| terms.clone()) != terms {
            let name = &self.name;
            let why = format!(
                "series {name} exists with other members or parameters: give the same, or another name"
            );
            return Err(Error::InvalidArgument(why).into());
        }
        let mut open = first_that_may_be_open(&known);
        // Every call lets an instance live on.
        let mut touch_at = Instant::now();
        loop {
            while newest + 1 < open + spec.window {
                let lifetime = self.create(newest + 1, &terms).await?;
                touch_at = touch_at.min(Instant::now() + lifetime / 4);
                newest += 1;
            }
            let (mut waiting, next) = (JoinSet::new(), open + (spec.window / 4).max(1));
            for number in open..next {
                let series = self.clone();
                waiting.spawn(async move { series.wait_until_sealed(number, newest).await });
            }
            while !waiting.is_empty() {
                tokio::select! {
                    Some(sealed) = waiting.join_next() => match sealed {
                        Ok(sealed) => sealed?,
                        Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
                        // The runtime ends.
                        Err(_) => {}
                    },
                    () = sleep_until(touch_at) => {
                        touch_at = Instant::now() + self.touch(open..=newest).await? / 4;
                    }
                }
            }
            open = next;
        }
    }

    async fn wait_until_sealed(&self, number: u64, newest: u64) -> Result<(), LogError> {
        let sealed = async {
            let view = self.look(number).await?;
            let view = view.ok_or_else(|| LogError::Forgotten(self.name_of(number)))?;
            self.sealed(&view.instance).await
        };
        match sealed.await {
            // It ended so long ago that it is kept no more; the series is.
            Err(LogError::Forgotten(_)) if self.kept().await?.contains(&newest) => Ok(()),
            sealed => sealed.map(drop),
        }
    }

    /// Asks for these instances. The shortest idle lifetime among them.
    async fn touch(&self, numbers: RangeInclusive<u64>) -> Result<Duration, LogError> {
        let mut shortest = None;
        for number in numbers {
            let lifetime = self.get(number).await?.map(|view| view.instance.idle_lifetime);
            shortest = lifetime.into_iter().chain(shortest).min();
        }
        Ok(shortest.unwrap_or(LOOK_AGAIN_LATER))
    }

    /// Creates this instance; its idle lifetime.
    async fn create(&self, number: u64, terms: &Terms) -> Result<Duration, LogError> {
        loop {
            let create = self.client.create_instance().name(self.name_of(number));
            match create.params(&terms.params).roster(&terms.roster).send().await {
                Ok(created) => return Ok(created.instance.idle_lifetime),
                // Until older ones have expired.
                Err(error) if error.reason() == Some(RefusalReason::TooManyInstances) => {
                    tracing::warn!("waiting for room to create {}: {error}", self.name_of(number));
                    sleep(LOOK_AGAIN_LATER).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
