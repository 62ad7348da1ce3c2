//! The live page of a server that may have lost its shards.

use std::time::Duration;

use http::{Request, StatusCode};
use stickycas_page::source::Source as _;
use tokio_util::sync::CancellationToken;

use super::calls::{create, spec};
use super::world::World;
use crate::config::Admission;
use crate::page::Page;
use crate::quota::{KnownPrincipals, Principals};
use crate::service::Service;

#[test]
fn a_view_of_an_instance_opens_once_its_shard_is_confirmed() {
    let mut world = World::of(1, 43, Duration::from_millis(5), 4);
    let instances = world.servers[0].instances.clone();
    let (id, _) = world.run(0, create(instances.clone(), spec("name"))).unwrap();
    let page = world.inside(0, || {
        let (limits, drain) = (world.limits.clone(), CancellationToken::new());
        let principals = Principals::with(&limits, Admission::default(), KnownPrincipals::default());
        let service =
            Service::new(instances.clone(), limits.clone(), drain.clone(), principals.clone(), None);
        service.set_recovered();
        Page::new(&instances, None, service, principals, drain, &limits)
    });
    let open = |world: &World| {
        let page = page.clone();
        world.begin(0, async move {
            let (parts, ()) = Request::new(()).into_parts();
            let viewer = page.viewer(&parts)?;
            page.open(viewer, &id.to_string(), None).await.map(drop)
        })
    };
    let opens = open(&world);
    assert!(world.finish(opens).is_ok());
    // The frames are there, and another server may own the instance by now.
    world.servers[0].store.cut_off(true);
    let opens = open(&world);
    assert_eq!(world.finish(opens).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
}
