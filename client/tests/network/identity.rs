//! Principals that are proven by certificates and by tokens: who is let in, and as whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use stickycas_client::{Client, Credentials, Error, InstanceId, RefusalReason};
use stickycas_proto::v1;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Request;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::site::{Site, append, create, get, refused, speak};
use crate::support::value;

#[tokio::test]
async fn principals_with_certificates_decide() {
    let mut site = Site::new().await;
    let [coordinator, ann, bob] = ["coordinator", "ann", "bob"].map(|name| site.client(name));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let (of_ann, of_bob) = tokio::join!(ann.propose(instance, value("a")), bob.propose(instance, value("b")));
    assert_eq!(of_ann.unwrap().value, of_bob.unwrap().value);
}

#[tokio::test]
async fn principals_with_tokens_decide_beside_others() {
    let mut site = Site::new().await;
    let coordinator = site.token_client("coordinator");
    let (ann, bob) = (site.token_client("ann"), site.client("bob"));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let (of_ann, of_bob) = tokio::join!(ann.propose(instance, value("a")), bob.propose(instance, value("b")));
    assert_eq!(of_ann.unwrap().value, of_bob.unwrap().value);
}

#[tokio::test]
async fn a_connection_is_one_principal_whatever_its_requests_say() {
    let mut site = Site::new().await;
    let [coordinator, ann] = ["coordinator", "ann"].map(|name| site.client(name));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let why = ann.as_principal("bob").unwrap_err().to_string();
    assert!(why.contains("a connection with the credentials of ann is for that principal alone"), "{why}");
    let counts = coordinator.counts(&["ann".to_owned()]).await.unwrap();
    assert_eq!(counts.all.handshakes_failed, 0);
    let later = coordinator.counts(&[]).await.unwrap();
    assert_eq!(later.started, counts.started);
    assert!(
        later.uptime > counts.uptime && counts.uptime.is_some(),
        "{:?} {:?}",
        counts.uptime,
        later.uptime
    );
    let refused =
        ann.create_instance().roster(["ann", "bob"]).processes(2).read_size(2).send().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Refused(refusal) if refusal.reason == RefusalReason::NotCoordinator),
        "{refused}"
    );
    get(&site.channel(&site.folder.path().join("ann")), instance, &[]).await.unwrap();
}

#[tokio::test]
async fn a_connection_with_tokens_may_carry_many_principals() {
    let site = Site::new().await;
    let instance = create(&site.token_client("coordinator"), ["ann", "bob"]).await;
    let channel = site.token_channel();
    let authorization = |principal| format!("Bearer {}", site.token(principal, &json!({})));
    for name in ["ann", "bob", "observer", "coordinator", "ann"] {
        get(&channel, instance, &[("authorization", &authorization(name))]).await.unwrap();
    }
    let stranger = authorization("stranger");
    let status = get(&channel, instance, &[("authorization", &stranger)]).await.unwrap_err();
    assert_eq!(refused(&status).0, RefusalReason::NotAMember);
    // The name of the principal may be there too, and the scheme has no case.
    let ann = authorization("ann").replace("Bearer", "bearer");
    get(&channel, instance, &[("authorization", &ann), ("stickycas-principal", "ann")]).await.unwrap();
}

/// Whoever opens a connection does not pay for what others do on it.
#[tokio::test]
async fn each_call_on_a_connection_is_charged_to_its_own_principal() {
    // Fourteen calls at once, and as many in a second.
    let site = Site::with(|config| config.limits.requests_per_second = 140).await;
    let instance = create(&site.token_client("coordinator"), ["ann", "bob"]).await;
    let channel = site.token_channel();
    let [ann, bob] = ["ann", "bob"].map(|name| format!("Bearer {}", site.token(name, &json!({}))));
    get(&channel, instance, &[("authorization", &ann)]).await.unwrap();
    // The connection is that of ann. What follows is of bob: an offence, bytes, and calls until they are too
    // many.
    let instance_id = instance.to_string();
    let close = of(&bob, v1::CloseRequest { instance_id: instance_id.clone() });
    let status = InstanceServiceClient::new(channel.clone()).close(close).await.unwrap_err();
    assert_eq!(refused(&status).0, RefusalReason::NotCreator);
    let value = vec![0; 200_000].into();
    let append = of(&bob, v1::AppendRequest { instance_id, access_number: 1, value, no_wait: true });
    StickyCasServiceClient::new(channel.clone()).append(append).await.unwrap_err();
    let status = loop {
        if let Err(status) = get(&channel, instance, &[("authorization", &bob)]).await {
            break status;
        }
    };
    assert_eq!(refused(&status).0, RefusalReason::RateExceeded);
    let mut health = HealthClient::new(channel.clone());
    let status = loop {
        if let Err(status) = health.check(of(&bob, HealthCheckRequest::default())).await {
            break status;
        }
    };
    assert_eq!(refused(&status).0, RefusalReason::RateExceeded);

    get(&channel, instance, &[("authorization", &ann)]).await.unwrap();
    let observer = site.token_client("observer");
    let counts = observer.counts(&[]).await.unwrap().principals;
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["bob"]);
    assert_eq!(counts["bob"].messages_oversized, 1);
    assert_eq!(counts["bob"].refused(RefusalReason::RateExceeded), 2);
    let offences = observer.get(instance).await.unwrap().status.offences.shown;
    assert!(!offences.is_empty(), "the close that was refused");
    assert!(offences.iter().all(|offence| offence.process.get() == 2), "{offences:?}");
}

/// A request of the principal with this token.
fn of<T>(authorization: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    request
}

/// One connection, a token for each principal, all in one file: what a load with many thousand does.
#[tokio::test]
async fn hundreds_of_principals_share_a_connection() {
    const PROCESSES: u32 = 300;
    let site = Site::new().await;
    let folder = site.folder.path().join("all");
    let names: Vec<String> = (1..=PROCESSES).map(|number| format!("process-{number}")).collect();
    let tokens = names.iter().map(|name| Ok((name.as_str(), site.token(name, &json!({})))));
    site.cas.write_token_list(&folder, tokens).unwrap();
    let credentials = Credentials::read(&folder).unwrap();
    assert!(credentials.are_of_many() && credentials.principal() == "process-1");

    let opened = Arc::new(AtomicU32::new(0));
    let (count, port) = (opened.clone(), site.token_address.rsplit_once(':').unwrap().1.to_owned());
    let connect = move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        TcpStream::connect(format!("127.0.0.1:{port}"))
    };
    let builder = || Client::builder(&*site.token_address).credentials(credentials.clone());
    let why = builder().connect_lazy().unwrap_err().to_string();
    assert!(why.contains("the credentials are those of many: say which principal it is"), "{why}");
    let why = builder().principal("eve").connect_lazy().unwrap_err().to_string();
    assert!(why.contains("principal \"eve\": no line in"), "{why}");
    let first = builder().principal("process-1").connect_lazy_over(connect).unwrap();
    let why = first.as_principal("eve").unwrap_err().to_string();
    assert!(why.contains("\"eve\": there is no token of it in"), "{why}");

    let create = site.token_client("coordinator").create_instance().roster(&names);
    let create = create.processes(PROCESSES).warp_size(100).read_size(2).send().await;
    let instance = create.unwrap().instance.id;
    let mut playing = JoinSet::new();
    for name in &names {
        let client = first.as_principal(name).unwrap();
        assert_eq!(client.principal(), name);
        playing.spawn(async move { client.propose(instance, value("a")).await.unwrap().value });
    }
    let decided = playing.join_all().await;
    assert_eq!((decided.len(), decided.iter().filter(|it| **it == value("a")).count()), (300, 300));
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    // Each is known by its own name.
    let view = site.token_client("observer").get(instance).await.unwrap();
    assert_eq!(view.status.offences.shown.len(), 0);
    let counts = site.token_client("observer").counts(&[]).await.unwrap();
    assert_eq!(counts.all.refused(RefusalReason::NoIdentity), 0);
}

#[tokio::test]
async fn the_scope_of_a_token_narrows_and_never_widens() {
    let site = Site::new().await;
    let instance = create(&site.token_client("coordinator"), ["ann", "bob"]).await;
    let scoped = |name, scope: &str| site.client_with_token(&site.token(name, &json!({"scope": scope})));
    let reason = |error: Error| match error {
        Error::Refused(refusal) => refusal.reason,
        other => panic!("{other}"),
    };
    for (name, scope, expected) in [
        ("ann", "process", None),
        ("ann", "coordinator observer admin", Some(RefusalReason::NotAMember)),
        ("coordinator", "coordinator", None),
        ("coordinator", "process admin", Some(RefusalReason::NotAMember)),
        ("observer", "observer", None),
        ("observer", "", Some(RefusalReason::NotAMember)),
    ] {
        let outcome = scoped(name, scope).get(instance).await;
        assert_eq!(outcome.err().map(reason), expected, "{name} with {scope:?}");
    }
    for (name, scope, expected) in [
        ("coordinator", "coordinator", None),
        ("coordinator", "process", Some(RefusalReason::NotCoordinator)),
        ("ann", "process coordinator", Some(RefusalReason::NotCoordinator)),
    ] {
        let client = scoped(name, scope);
        let created = client.create_instance().roster(["ann", "bob"]).processes(2).read_size(2).send().await;
        assert_eq!(created.err().map(reason), expected, "{name} with {scope:?}");
    }
    let without = append(&scoped("ann", "observer"), instance).await.unwrap_err();
    assert!(without.to_string().contains("the scope of the token has no `process`"), "{without}");
    // Without its scope nobody may close the instance either, and a member's try is no offence.
    append_both(&site, instance).await;
    for name in ["coordinator", "ann"] {
        let refused = scoped(name, "process").close(instance).await.unwrap_err();
        assert!(refused.to_string().contains("the scope of the token has no `coordinator`"), "{refused}");
    }
    let client = scoped("ann", "process");
    let created = client.create_instance().roster(["ann", "bob"]).processes(2).read_size(2).send().await;
    assert_eq!(created.err().map(reason), Some(RefusalReason::NotCoordinator));
    let offences = site.token_client("observer").get(instance).await.unwrap().status.offences;
    assert_eq!(offences.shown.len(), 0, "to have no scope is no offence");
}

/// At once, by the name of the file, and not as a server that nobody trusts.
#[tokio::test]
async fn credentials_that_cannot_be_used_are_refused_when_they_are_read() {
    let mut site = Site::new().await;
    let folder = site.folder_of("ann");
    let pem = std::fs::read_to_string(folder.join("ca.crt")).unwrap();
    let key = std::fs::read_to_string(folder.join("tls.key")).unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    let changed = |change: &dyn Fn(&mut CertificateParams)| {
        let own = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params.self_signed(&own).unwrap().pem().into_bytes()
    };
    let expired = changed(&|params| params.not_after = date_time_ymd(2024, 1, 1));
    let refused = |name: &str, content: &[u8], expected: &str| {
        let good = std::fs::read(folder.join(name)).unwrap();
        std::fs::write(folder.join(name), content).unwrap();
        let error = Credentials::read(&folder).unwrap_err();
        std::fs::write(folder.join(name), good).unwrap();
        let said = error.to_string();
        assert!(matches!(error, Error::InvalidArgument(_)), "{said}");
        let path = folder.join(name).display().to_string();
        assert!(said.contains(&format!("{path}: ")) && said.contains(expected), "{said}");
    };
    for (content, expected) in [
        (Vec::new(), "it is empty"),
        (der, "it is DER"),
        (format!("\u{feff}{pem}").into_bytes(), "something stands before"),
        (pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE").into_bytes(), "a section TRUSTED CERTIFICATE"),
        (key.clone().into_bytes(), "but PRIVATE KEY"),
        (pem.as_bytes()[..100].to_vec(), "as in a file that is not whole"),
        (changed(&|params| params.is_ca = IsCa::NoCa), "is no CA"),
        (expired.clone(), "has expired"),
        (changed(&|params| params.not_before = date_time_ymd(2200, 1, 1)), "is not valid before"),
    ] {
        refused("ca.crt", &content, expected);
    }
    refused("tls.crt", &expired, "has expired");
    refused("tls.crt", key.as_bytes(), "but PRIVATE KEY");
    refused("tls.key", pem.as_bytes(), "but CERTIFICATE");
    // One that expires beside another is no error, and the key of another certificate is one.
    std::fs::write(folder.join("ca.crt"), [pem.as_bytes(), &expired].concat()).unwrap();
    let ann = Client::builder(&*site.address).credentials(Credentials::read(&folder).unwrap());
    assert!(ann.connect_lazy().is_ok());
    std::fs::write(folder.join("tls.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let unusable = Client::builder(&*site.address).credentials(Credentials::read(&folder).unwrap());
    let said = unusable.connect_lazy().unwrap_err().to_string();
    assert!(said.contains(&folder.display().to_string()), "{said}");
}

#[tokio::test]
async fn counts_are_shown_to_those_whom_they_concern() {
    let site = Site::new().await;
    let instance = create(&site.token_client("coordinator"), ["ann", "bob"]).await;
    // Each is refused something, and so has a count.
    for name in ["ann", "bob", "eve", "mallory"] {
        site.token_client(name).close(instance).await.unwrap_err();
    }
    let site = &site;
    let seen = async |name| {
        let counts = site.token_client(name).counts(&[]).await.unwrap();
        let names: Vec<_> = counts.principals.into_keys().collect();
        (names.join(" "), counts.all.refused(RefusalReason::NotCreator))
    };
    assert_eq!(seen("coordinator").await, ("ann bob".to_owned(), 4));
    assert_eq!(seen("observer").await, ("ann bob eve mallory".to_owned(), 4));
    assert_eq!(seen("eve").await, ("eve".to_owned(), 0));
    let asked = site.token_client("ann").counts(&["bob".to_owned()]).await.unwrap();
    assert_eq!((asked.principals.len(), asked.left_out), (0, 0));
    // An admin of the file of roles.
    std::fs::write(site.server().join("roles.toml"), "admins = ['eve']").unwrap();
    while seen("eve").await.0 == "eve" {
        tokio::task::yield_now().await;
    }
    assert_eq!(seen("eve").await, ("ann bob eve mallory".to_owned(), 4));
}

#[tokio::test]
async fn a_denied_principal_is_out_on_its_open_connections_too() {
    let mut site = Site::new().await;
    let [coordinator, bob] = ["coordinator", "bob"].map(|name| site.client(name));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let folder = site.folder_of("ann");
    let mut open = site.connect(Some(&folder)).await;
    speak(&mut open).await.unwrap();
    std::fs::write(site.server().join("denied"), "ann # has lost its key\n").unwrap();
    // No deadline: without the denial the connection would stay, and the test hang.
    let _ended = open.read_to_end(&mut Vec::new()).await;
    assert_ne!(site.alert(Some(&folder)).await, "let in");
    bob.get(instance).await.unwrap();
}

/// The first accesses of ann and bob, so that offences of theirs would be filed with the instance.
async fn append_both(site: &Site, instance: InstanceId) {
    let (ann, bob) = (site.token_client("ann"), site.token_client("bob"));
    let (of_ann, of_bob) = tokio::join!(append(&ann, instance), append(&bob, instance));
    of_ann.and(of_bob).unwrap();
}

/// One connection is one principal from its handshake on, whether it makes calls or not; a client above the
/// limit is told so by its first call.
#[tokio::test]
async fn connections_count_for_their_principal_without_a_call() {
    /// `connections_per_principal`.
    const LIMIT: usize = 64;
    let mut site = Site::new().await;
    let instance = create(&site.client("coordinator"), ["ann", "bob"]).await;
    let folder = site.folder_of("ann");
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        let mut tls = site.connect(Some(&folder)).await;
        speak(&mut tls).await.unwrap();
        held.push(tls);
    }
    let status = get(&site.channel(&folder), instance, &[]).await.unwrap_err();
    let (reason, told) = refused(&status);
    assert_eq!(reason, RefusalReason::TooManyConnections);
    assert!(told.contains("you have 64 connections, as many as you may"), "{told}");
    drop(held);
    site.client("bob").get(instance).await.unwrap();
}
