//! Names in a cluster: asked for, found, taken; and instances whose shards are served while they are looked
//! for.

use super::super::super::names::Claimed;
use super::*;

/// One name of the cluster.
#[derive(Debug)]
struct OneName(InstanceId);

impl NameClaims for OneName {
    fn claimed(&self, name: &InstanceName) -> Claimed {
        let holder = (name.as_str() == "theirs").then_some(self.0);
        Box::pin(std::future::ready(Ok(holder)))
    }
}

#[tokio::test]
async fn a_name_of_another_server_is_found_there() {
    let server = Server::new(Some(Arc::new(OneName(InstanceId::new(2)))));
    server.take_in_memory(0);
    server.cluster.owners.lock().unwrap().insert(ShardKey(2), other());
    let creator = Principal::new("creator");
    let taken = server.instances.create(&creator, spec("theirs")).await.unwrap_err();
    let found = server.instances.find(&InstanceRef::Name("theirs".parse().unwrap())).await.unwrap_err();
    for refused in [taken, found] {
        assert_eq!((refused.reason, refused.owner.as_deref()), (RefusalReason::NotOwner, Some(&other())));
    }
    let ours = server.create(spec("ours")).await;
    let found = server.instances.find(&InstanceRef::Name("ours".parse().unwrap())).await.unwrap();
    assert!(Arc::ptr_eq(&ours, &found));
    let nobodys = server.instances.find(&InstanceRef::Name("nobodys".parse().unwrap())).await;
    assert_eq!(reason(nobodys), RefusalReason::InstanceUnknown);
}

#[tokio::test]
async fn a_create_finds_no_instance_of_a_shard_being_recovered() {
    let server = Server::new(None);
    let lost = server.take(0, Arc::new(DiskEngine::in_memory().unwrap())).await;
    server.create(spec("name")).await;
    lost.log.committed().await;
    server.instances.drop_shard(&lost.context, owner_lost(ShardKey(0))).await;
    lost.log.close();
    server.take_in_memory(1);
    let log: Arc<dyn CommitLog> = Arc::new(MemoryLog::with_state(server.state.clone()));
    let recovering = server.instances.add_shard(ShardKey(0), &log).unwrap();
    Recovery::run(&server.instances, &recovering, &*lost.engine, None, crate::instances::Part::ALL).unwrap();
    let creator = Principal::new("creator");
    let create =
        || async { server.instances.create(&creator, spec("name")).await.map(Uncommitted::into_inner) };
    let refused = create().await.unwrap_err();
    assert_eq!((refused.reason, refused.owner), (RefusalReason::NotOwner, None));
    assert!(refused.retry_after.is_some());
    recovering.set_served();
    let (_, is_new) = create().await.unwrap();
    assert!(!is_new, "it is found once its shard is served");
}

/// The claim to the only name, and what happens while it is read.
#[derive(Default)]
struct Claim {
    holder: Mutex<Option<InstanceId>>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl Claim {
    fn set(&self, holder: &Instance) {
        *self.holder.lock().unwrap() = Some(holder.config().id);
    }
}

impl NameClaims for Claim {
    fn claimed(&self, _: &InstanceName) -> Claimed {
        let holder = *self.holder.lock().unwrap();
        if let Some(happens) = self.meanwhile.lock().unwrap().take() {
            happens();
        }
        Box::pin(std::future::ready(Ok(holder)))
    }
}

async fn find(server: &Server) -> Result<Arc<Instance>, RpcRefusal> {
    server.instances.find(&InstanceRef::Name("name".parse().unwrap())).await
}

/// A server of two shards, its claim, and a closed instance with the one that has taken its name, in the
/// other shard.
async fn heir() -> (Server, Arc<Claim>, [Arc<Instance>; 2]) {
    let claim = Arc::<Claim>::default();
    let server = Server::new(Some(claim.clone()));
    for key in [0, 1] {
        server.take_in_memory(key);
    }
    let closed = server.create(spec("name")).await;
    claim.set(&closed);
    closed.close().committed().await.unwrap().unwrap();
    let heir = server.create(spec("name")).await;
    claim.set(&heir);
    assert!(!Arc::ptr_eq(closed.shard(), heir.shard()));
    (server, claim, [closed, heir])
}

#[tokio::test]
async fn an_instance_is_found_whose_shard_is_served_since_a_moment() {
    let claim = Arc::<Claim>::default();
    let server = Server::new(Some(claim.clone()));
    let shard = server.take_in_memory(0);
    let instance = server.create(spec("name")).await;
    claim.set(&instance);
    server.take_in_memory(1);
    let stays_when_asked = || {
        shard.set_leaving(true);
        *server.cluster.served_when_asked.lock().unwrap() = Some(shard.clone());
    };
    let id = instance.config().id;
    stays_when_asked();
    assert!(Arc::ptr_eq(&server.instances.get(id).unwrap(), &instance));

    shard.set_leaving(true);
    let stays = shard.clone();
    *claim.meanwhile.lock().unwrap() = Some(Box::new(move || stays.set_leaving(false)));
    assert!(Arc::ptr_eq(&find(&server).await.unwrap(), &instance));

    // A Create finds it, or is told to ask again.
    *claim.holder.lock().unwrap() = None;
    stays_when_asked();
    let created = server.instances.create(&Principal::new("creator"), spec("name")).await;
    assert_eq!(reason(created), RefusalReason::NotOwner);
}

#[tokio::test]
async fn the_claim_says_who_has_a_name_after_a_take_over() {
    let (server, claim, [closed, heir]) = heir().await;
    let of_closed = |server: &Server| server.instances.registry_mut().give_name_back(&closed);
    let of_nobody = |server: &Server| server.instances.registry_mut().release_name(&heir);
    // The close was read back after the heir; or the heir before the closed instance, which has lost the
    // name.
    for read_back in [&of_closed as &dyn Fn(&Server), &of_nobody] {
        read_back(&server);
        assert!(Arc::ptr_eq(&find(&server).await.unwrap(), &heir));
        assert!(server.instances.registry().holds_name(&heir), "it is found at once from now on");
        read_back(&server);
        let created = server.instances.create(&Principal::new("creator"), spec("name")).await;
        let (found, is_new) = created.unwrap().into_inner();
        assert!(!is_new && Arc::ptr_eq(&found, &heir));
    }
    // The checkpoint of the closed instance tells of an heir whose creation was never committed.
    claim.set(&closed);
    of_nobody(&server);
    assert!(Arc::ptr_eq(&find(&server).await.unwrap(), &closed));
    assert!(server.instances.registry().holds_name(&closed));
}

#[tokio::test]
async fn a_name_that_changes_hands_while_its_claim_is_read_stays_changed() {
    let (server, claim, [closed, heir]) = heir().await;
    server.instances.registry_mut().give_name_back(&closed);
    claim.set(&closed);
    let (instances, takes) = (server.instances.clone(), heir.clone());
    *claim.meanwhile.lock().unwrap() = Some(Box::new(move || {
        instances.registry_mut().give_name_back(&takes);
    }));
    assert!(Arc::ptr_eq(&find(&server).await.unwrap(), &closed), "it had the name when the claim was read");
    assert!(server.instances.registry().holds_name(&heir));
}

#[tokio::test]
async fn a_create_goes_on_when_the_holder_of_its_name_has_expired_meanwhile() {
    let (server, claim, [closed, heir]) = heir().await;
    let instances = server.instances.clone();
    *claim.meanwhile.lock().unwrap() = Some(Box::new(move || {
        for gone in [closed, heir] {
            instances.remove(&gone);
        }
    }));
    let created = server.instances.create(&Principal::new("creator"), spec("name")).await;
    assert!(created.unwrap().into_inner().1, "a new one");
}
