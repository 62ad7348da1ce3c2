//! Credentials that are replaced while the server serves.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use stickycas_certificates::development::{DevelopmentCas, TokenIssuer};
use stickycas_client::{Client, Credentials, Error, InstanceId, RefusalReason};

use crate::site::{DAY, DOMAIN, Site, append, create, end_of, now, refused, watching};
use crate::support::value;

fn reason(error: &Error) -> RefusalReason {
    match error {
        Error::Refused(refusal) => refusal.reason,
        other => panic!("{other}"),
    }
}

async fn instance_of(site: &Site) -> InstanceId {
    create(&site.token_client("coordinator"), ["ann", "bob"]).await
}

/// An access that was accepted is answered, whatever becomes of the credentials of its process (F8a); its
/// streams end.
#[tokio::test]
async fn a_denied_principal_loses_its_streams_and_no_access() {
    let site = Site::new().await;
    let instance = instance_of(&site).await;
    let (ann, bob) = (site.token_client("ann"), site.token_client("bob"));
    let token = site.token("ann", &json!({}));
    let watch = watching(&site.token_channel(), Some(&token), instance).await;
    let accepted = tokio::spawn({
        let ann = ann.clone();
        async move { append(&ann, instance).await }
    });
    while bob.get(instance).await.unwrap().status.joined == 0 {
        tokio::task::yield_now().await;
    }
    fs::write(site.server().join("denied"), "ann\n").unwrap();
    let (ended, why) = refused(&end_of(watch).await);
    assert_eq!(ended, RefusalReason::NoIdentity, "{why}");
    assert!(why.contains("the token of the stream is not valid any more"), "{why}");
    assert_eq!(reason(&ann.get(instance).await.unwrap_err()), RefusalReason::NoIdentity);
    append(&bob, instance).await.unwrap();
    accepted.await.unwrap().unwrap();
    let offences = bob.get(instance).await.unwrap().status.offences;
    assert!(offences.shown.is_empty(), "to be denied is no offence: {offences:?}");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let site = Site::new().await;
    let instance = instance_of(&site).await;
    let token = site.token("ann", &json!({"exp": now() + 8}));
    let watch = watching(&site.token_channel(), Some(&token), instance).await;
    let (ended, why) = refused(&end_of(watch).await);
    assert_eq!(ended, RefusalReason::NoIdentity);
    assert!(why.contains("has expired"), "{why}");
    let short = site.client_with_token(&token);
    let refused = short.get(instance).await.unwrap_err();
    assert!(refused.to_string().contains("the token has expired"), "{refused}");
}

#[tokio::test]
async fn a_process_whose_token_is_replaced_in_time_decides() {
    let site = Site::new().await;
    let instance = instance_of(&site).await;
    let short = site.token("ann", &json!({"exp": now() + 8}));
    let folder = site.folder.path().join("replaced");
    site.cas.write_token_client(&folder, &short).unwrap();
    let ann = Client::builder(&*site.token_address).credentials(Credentials::read(&folder).unwrap());
    let ann = ann.connect_lazy().unwrap();
    let old = watching(&site.token_channel(), Some(&short), instance).await;
    let deciding = tokio::spawn(async move { ann.propose(instance, value("a")).await });
    let bob = site.token_client("bob");
    while bob.get(instance).await.unwrap().status.joined == 0 {
        tokio::task::yield_now().await;
    }
    site.cas.write_token_client(&folder, &site.token("ann", &json!({}))).unwrap();
    // A stream with the same token, of a client that has no other one.
    let status = end_of(old).await;
    assert!(status.message().contains("has expired"), "{status:?}");
    let of_bob = bob.propose(instance, value("b")).await.unwrap();
    assert_eq!(deciding.await.unwrap().unwrap().value, of_bob.value);
}

#[tokio::test]
async fn a_stream_ends_when_the_key_of_its_token_is_taken_away() {
    let site = Site::new().await;
    let instance = instance_of(&site).await;
    let token = site.token("ann", &json!({}));
    let watch = watching(&site.token_channel(), Some(&token), instance).await;
    // Of the same id.
    let next = TokenIssuer::new("key-1").unwrap();
    next.write_key_set(&site.server()).unwrap();
    let (ended, why) = refused(&end_of(watch).await);
    assert_eq!(ended, RefusalReason::NoIdentity);
    assert!(why.contains("a key that is not configured"), "{why}");
    let refused = site.token_client("ann").get(instance).await.unwrap_err();
    assert!(refused.to_string().contains("the signature of the token is wrong"), "{refused}");
}

#[tokio::test]
async fn a_watch_ends_when_its_observer_is_one_no_more() {
    let mut site = Site::new().await;
    let roles = site.server().join("roles.toml");
    fs::write(&roles, "observers = ['eve']").unwrap();
    let instance = instance_of(&site).await;
    let eve = site.client("eve");
    while eve.get(instance).await.is_err() {
        tokio::task::yield_now().await;
    }
    let watch = watching(&site.channel(&site.folder.path().join("eve")), None, instance).await;
    fs::remove_file(&roles).unwrap();
    let (ended, why) = refused(&end_of(watch).await);
    assert_eq!(ended, RefusalReason::NotObserver, "{why}");
}

/// What is written into the server's folder in the test below: two of everything, taken in turns.
struct Changes {
    site: Site,
    other_server: DevelopmentCas,
    new_issuer: TokenIssuer,
    old_keys: String,
    old_ca: String,
    old_list: String,
}

impl Changes {
    fn new(site: Site) -> Self {
        let read = |name: &str| fs::read_to_string(site.server().join(name)).unwrap();
        let (old_keys, old_ca, old_list) =
            (read("token-keys.json"), read("client-ca.crt"), read("client-ca.crl"));
        let other_server = DevelopmentCas::new(DOMAIN, DAY).unwrap();
        let new_issuer = TokenIssuer::new("key-2").unwrap();
        Self { site, other_server, new_issuer, old_keys, old_ca, old_list }
    }

    /// Every file is another one than after the round before; all clients of the test are still allowed.
    fn write(&mut self, round: u32) {
        let folder = self.site.server();
        let put = |name: &str, text: &str| {
            // In one piece, as everybody replaces such files.
            let new = folder.join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, folder.join(name)).unwrap();
        };
        // A new certificate of the same CA, with its key.
        let server = self.site.cas.server(&["localhost".to_owned()]).unwrap();
        put("tls.key", &server.key);
        put("tls.crt", &server.certificate);
        // A CA comes and goes, with its revocation list.
        if round.is_multiple_of(2) {
            let own = self.other_server.server(&["localhost".to_owned()]).unwrap();
            let other = folder.parent().unwrap().join("other");
            self.other_server.write_server(&other, &own).unwrap();
            let both =
                |old: &str, name: &str| format!("{old}{}", fs::read_to_string(other.join(name)).unwrap());
            put("client-ca.crl", &both(&self.old_list, "client-ca.crl"));
            put("client-ca.crt", &both(&self.old_ca, "client-ca.crt"));
        } else {
            put("client-ca.crt", &self.old_ca);
            put("client-ca.crl", &self.old_list);
        }
        // What it loses counts later.
        put("denied", &(0..=round).map(|round| format!("denied-{round}\n")).collect::<String>());
        put(
            "roles.toml",
            &format!("observers = ['observer', 'observer-{round}']\nadmins = ['admin-{round}']\n"),
        );
        let mut keys: serde_json::Value = serde_json::from_str(&self.old_keys).unwrap();
        if round.is_multiple_of(2) {
            keys["keys"].as_array_mut().unwrap().push(self.new_issuer.public_key());
        }
        put("token-keys.json", &keys.to_string());
    }
}

/// Every change is in force as a whole, and no call of an allowed client fails. Then one is revoked, and is
/// out.
#[tokio::test]
async fn a_hundred_changes_under_load_disturb_nobody_who_is_allowed() {
    let mut site = Site::new().await;
    let instance = instance_of(&site).await;
    let ann = site.cas.client("ann").unwrap();
    let folder = site.write("ann", &ann);
    let clients = vec![site.client("bob"), site.token_client("bob"), site.client("observer")];
    let watch = watching(&site.channel(&folder), None, instance).await;
    let (stop, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let calling: Vec<_> = clients
        .into_iter()
        .map(|client| {
            let (stop, calls) = (stop.clone(), calls.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    client.get(instance).await.unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut changes = Changes::new(site);
    for round in 1..=100 {
        changes.write(round);
        // In force: an observer of this round may look at the instance, on new connections of both kinds.
        let name = format!("observer-{round}");
        let (by_certificate, by_token) = (changes.site.client(&name), changes.site.token_client(&name));
        while by_certificate.get(instance).await.is_err() {
            tokio::task::yield_now().await;
        }
        by_token.get(instance).await.unwrap();
        let before = calls.load(Ordering::Relaxed);
        while calls.load(Ordering::Relaxed) < before + 4 {
            assert!(calling.iter().all(|calling| !calling.is_finished()), "a call failed in round {round}");
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for calling in calling {
        calling.await.unwrap();
    }
    // There is one CA again, and the revocation list is its own.
    changes.write(101);
    let mut site = changes.site;
    site.cas.revoke(&ann);
    site.cas.write_revocation_list(&site.server()).unwrap();
    // The watch was open all the time, and ends with its connection; new connections are refused.
    end_of(watch).await;
    assert_eq!(site.alert(Some(&folder)).await, "CertificateRevoked");
    site.client("bob").get(instance).await.unwrap();
}
