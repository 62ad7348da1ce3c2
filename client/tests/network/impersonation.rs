//! Everybody who is not who he says: what he is told, what is counted, and that nobody else is blamed.

use std::path::PathBuf;
use std::sync::Arc;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, SanType, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig};
use serde_json::json;
use stickycas_certificates::development::{DevelopmentCas, TokenIssuer};
use stickycas_client::{Client, InstanceId, RefusalReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tonic::Code;

use crate::site::{
    DAY, DOMAIN, Site, append, claims, connect, create, get, now, refused, speak_in_words, try_connect,
};

/// What the server has counted of those who have proven nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failures {
    handshakes: u64,
    tokens: u64,
    unidentified_calls: u64,
}

async fn failures(observer: &Client) -> Failures {
    let all = observer.counts(&[]).await.unwrap().all;
    Failures {
        handshakes: all.handshakes_failed,
        tokens: all.tokens_refused,
        unidentified_calls: all.refused(RefusalReason::NoIdentity),
    }
}

/// Nothing is counted of anybody, and the instance has no offence on record.
async fn assert_nobody_is_blamed(observer: &Client, instance: InstanceId, after: &str) {
    let counts = observer.counts(&[]).await.unwrap();
    assert_eq!(counts.principals.keys().collect::<Vec<_>>(), [""; 0], "counted of a principal: {after}");
    let offences = observer.get(instance).await.unwrap().status.offences;
    assert!(offences.shown.is_empty(), "{after}: {offences:?}");
}

/// A site with an instance at which ann and bob have acted, so that offences of theirs could be filed.
async fn site() -> (Site, Client, InstanceId) {
    let mut site = Site::new().await;
    let [coordinator, observer] = ["coordinator", "observer"].map(|name| site.client(name));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let [ann, bob] = ["ann", "bob"].map(|name| site.client(name));
    let (of_ann, of_bob) = tokio::join!(append(&ann, instance), append(&bob, instance));
    of_ann.and(of_bob).unwrap();
    (site, observer, instance)
}

/// Certificates of all kinds that prove nothing, and the alert for each.
fn bad_certificates(site: &mut Site) -> Vec<(&'static str, Option<PathBuf>, &'static str)> {
    let foreign = |trust_domain| DevelopmentCas::new(trust_domain, DAY).unwrap();
    let other_ca = foreign(DOMAIN).client("ann").unwrap();
    let of_server = site.cas.server(&["localhost".to_owned()]).unwrap();
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let mut changed =
        |change: &dyn Fn(&mut CertificateParams)| site.cas.changed_client("ann", change).unwrap();
    let alone = changed(&|params| params.subject_alt_names.clear());
    let several = changed(&|params| {
        params.subject_alt_names.push(uri("spiffe://example.org/principal/bob"));
    });
    let other_domain = changed(&|params| {
        params.subject_alt_names = vec![uri("spiffe://example.com/principal/ann")];
    });
    let bad_name = changed(&|params| {
        params.subject_alt_names = vec![uri("spiffe://example.org/principal/..")];
    });
    let expired = changed(&|params| params.not_after = date_time_ymd(2024, 1, 1));
    let early = changed(&|params| params.not_before = date_time_ymd(2200, 1, 1));
    let for_servers =
        changed(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let for_nothing = changed(&|params| params.extended_key_usages.clear());
    let rows = [
        ("another CA", other_ca, "UnknownCA"),
        ("the certificate of a server", of_server, "UnsupportedCertificate"),
        ("no name", alone, "CertificateUnknown"),
        ("several names", several, "CertificateUnknown"),
        ("another trust domain", other_domain, "CertificateUnknown"),
        ("a name that is none", bad_name, "CertificateUnknown"),
        ("expired", expired, "CertificateExpired"),
        ("not valid yet", early, "CertificateExpired"),
        ("for servers", for_servers, "UnsupportedCertificate"),
        ("without clientAuth", for_nothing, "CertificateUnknown"),
    ];
    let row = |(what, certified, alert): (&'static str, _, _)| {
        (what, Some(site.write(&what.replace(' ', "-"), &certified)), alert)
    };
    let none = [("no certificate", None, "CertificateRequired")];
    rows.into_iter().map(row).chain(none).collect()
}

#[tokio::test]
async fn certificates_that_prove_nothing_get_an_alert() {
    let (mut site, observer, instance) = site().await;
    for (what, folder, alert) in bad_certificates(&mut site) {
        let before = failures(&observer).await;
        assert_eq!(site.alert(folder.as_deref()).await, alert, "{what}");
        let after = Failures { handshakes: before.handshakes + 1, ..before };
        assert_eq!(failures(&observer).await, after, "{what}");
        assert_nobody_is_blamed(&observer, instance, what).await;
    }
    let good = site.folder_of("ann");
    assert_eq!(site.alert(Some(&good)).await, "let in");
}

#[tokio::test]
async fn both_listeners_speak_http_2_alone() {
    let (mut site, observer, instance) = site().await;
    let ann = site.folder_of("ann");
    for (address, folder) in [(site.address.clone(), Some(&*ann)), (site.token_address.clone(), None)] {
        let before = failures(&observer).await;
        let mut tls = site.tls(folder);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let refused = try_connect(&address, tls.into()).await.unwrap_err();
        assert_eq!(refused.to_string(), "received fatal alert: NoApplicationProtocol");
        let after = Failures { handshakes: before.handshakes + 1, ..before };
        assert_eq!(failures(&observer).await, after);
    }
    assert_nobody_is_blamed(&observer, instance, "another protocol").await;
}

/// TLS with a ticket skips the client's certificate, so the server gives none and takes none.
#[tokio::test]
async fn a_revoked_client_with_a_ticket_is_not_let_in() {
    let (mut site, observer, instance) = site().await;
    let ann = site.cas.client("ann").unwrap();
    let folder = site.write("ann", &ann);
    let tls = Arc::new(site.tls(Some(&folder)));
    // Another server with the same certificate, which gives tickets.
    let giver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let giver_address = format!("https://localhost:{}", giver.local_addr().unwrap().port());
    let certificate = CertificateDer::from_pem_file(site.server().join("tls.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(site.server().join("tls.key")).unwrap();
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (tcp, _) = giver.accept().await.unwrap();
            let mut stream = acceptor.accept(tcp).await.unwrap();
            stream.write_all(&[0; 9]).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let kind = async |address: &str| {
        let mut stream = connect(address, tls.clone()).await;
        let said = speak_in_words(&mut stream).await;
        (stream.get_ref().1.handshake_kind(), said)
    };
    let (full, resumed) = (Some(HandshakeKind::Full), Some(HandshakeKind::Resumed));
    assert_eq!(kind(&giver_address).await.0, full);
    assert_eq!(kind(&giver_address).await.0, resumed, "the client has tickets, and shows them");
    // One of them at the server: it is not taken.
    assert_eq!(kind(&site.address).await, (full, "let in".to_owned()));
    assert_eq!(kind(&site.address).await, (full, "let in".to_owned()), "the server gives none either");
    site.cas.revoke(&ann);
    site.cas.write_revocation_list(&site.server()).unwrap();
    let before = failures(&observer).await;
    let (mut refusals, mut cut) = (0, 0);
    loop {
        assert_eq!(kind(&giver_address).await.0, resumed);
        match kind(&site.address).await {
            (kind, said) if said == "CertificateRevoked" => break assert_eq!(kind, full),
            // Until the list is in force; a connection that was let in just before is cut, and perhaps
            // counted.
            (_, said) if said.contains("close_notify") => cut += 1,
            (_, said) => assert_eq!(said, "let in", "until the list is in force"),
        }
        refusals += 1;
    }
    let after = failures(&observer).await;
    assert!((1..=1 + cut).contains(&(after.handshakes - before.handshakes)), "after {refusals} tries");
    assert_eq!(Failures { handshakes: before.handshakes, ..after }, before);
    assert_nobody_is_blamed(&observer, instance, "revoked").await;
}

#[tokio::test]
async fn metadata_names_nobody_on_a_connection_with_a_certificate() {
    let (mut site, observer, instance) = site().await;
    let eve = site.folder_of("eve");
    let channel = site.channel(&eve);
    let token = format!("Bearer {}", site.token("ann", &json!({})));
    for (metadata, expected) in [
        (&[("stickycas-principal", "ann")][..], "stickycas-principal names another than the certificate"),
        (
            &[("stickycas-principal", "eve"), ("stickycas-principal", "ann")],
            "names another than the certificate",
        ),
        (&[("authorization", &*token)], "tokens are not taken here"),
    ] {
        let before = failures(&observer).await;
        let status = get(&channel, instance, metadata).await.unwrap_err();
        let (reason, message) = refused(&status);
        assert_eq!((status.code(), reason), (Code::Unauthenticated, RefusalReason::NoIdentity));
        assert!(message.contains(expected), "{message}");
        let after = Failures { unidentified_calls: before.unidentified_calls + 1, ..before };
        assert_eq!(failures(&observer).await, after, "{metadata:?}");
        assert_nobody_is_blamed(&observer, instance, expected).await;
    }
}

/// Tokens of all kinds that prove nothing, and the refusal of each.
fn bad_tokens(site: &Site) -> Vec<(String, &'static str)> {
    let now = now();
    let signed = |changes| site.token("ann", &changes);
    let header = |algorithm| Header { kid: Some("key-1".to_owned()), ..Header::new(algorithm) };
    let encode = |header: &Header, key: &EncodingKey| {
        jsonwebtoken::encode(header, &claims("ann", &json!({})), key).unwrap()
    };
    let public = site.issuer.public_key();
    let hmac = EncodingKey::from_secret(public["x"].as_str().unwrap().as_bytes());
    let others = |id| TokenIssuer::new(id).unwrap().sign(&claims("ann", &json!({}))).unwrap();
    let unsigned = {
        use base64::Engine as _;
        let part = |json: serde_json::Value| {
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json.to_string())
        };
        let header = json!({"alg": "none", "typ": "JWT", "kid": "key-1"});
        format!("{}.{}.", part(header), part(claims("ann", &json!({}))))
    };
    vec![
        (signed(json!({"aud": "others"})), "the token is for another audience"),
        (signed(json!({"iss": "https://example.com"})), "the token is of another issuer"),
        (signed(json!({"sub": "ann\n"})), "the `sub` of the token is no name of a principal"),
        (signed(json!({"sub": null})), "the claims of the token are not exp, nbf and iat"),
        (signed(json!({"iat": null})), "the claims of the token are not exp, nbf and iat"),
        (signed(json!({"exp": now - 1, "nbf": now - 9, "iat": now - 9})), "the token has expired"),
        (signed(json!({"exp": now, "nbf": now - 9, "iat": now - 9})), "the token has expired"),
        (signed(json!({"nbf": now + 600})), "the token is not valid yet"),
        (signed(json!({"iat": now + 600, "exp": now + 900})), "the token is not valid yet"),
        (signed(json!({"exp": now + 25 * 3600})), "the token is valid for longer than 86400 s"),
        (
            signed(json!({"exp": now + 600, "iat": now - 25 * 3600})),
            "the token is valid for longer than 86400 s",
        ),
        (signed(json!({"x": "x".repeat(4096)})), "bytes: at most 4096 may be"),
        (unsigned, "it is no token"),
        (encode(&header(Algorithm::HS256), &hmac), "the token is not signed by the algorithm of its key"),
        (others("key-1"), "the signature of the token is wrong"),
        (others("key-2"), "the token names a key that is not configured"),
        ("x".to_owned(), "it is no token"),
        (String::new(), "it is no token"),
    ]
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused() {
    let (site, observer, instance) = site().await;
    let good = format!("Bearer {}", site.token("ann", &json!({})));
    let owned: Vec<_> =
        bad_tokens(&site).into_iter().map(|(token, why)| (format!("Bearer {token}"), why)).collect();
    let mut rows: Vec<_> =
        owned.iter().map(|(token, why)| (vec![("authorization", &**token)], *why)).collect();
    let basic = good.replace("Bearer", "Basic");
    rows.push((vec![], "give a token in the metadata"));
    rows.push((vec![("authorization", &*basic)], "authorization has no token"));
    rows.push((
        vec![("authorization", &*good), ("authorization", &*good)],
        "authorization is given more than once",
    ));
    rows.push((
        vec![("authorization", &*good), ("stickycas-principal", "bob")],
        "names another than the token",
    ));
    rows.push((vec![("stickycas-principal", "ann")], "give a token in the metadata"));
    // On a connection of its own each, and on one that belongs to ann.
    let of_ann = site.token_channel();
    get(&of_ann, instance, &[("authorization", &good)]).await.unwrap();
    for (metadata, expected) in rows {
        for channel in [&site.token_channel(), &of_ann] {
            let before = failures(&observer).await;
            let status = get(channel, instance, &metadata).await.unwrap_err();
            let (reason, message) = refused(&status);
            assert_eq!(
                (status.code(), reason),
                (Code::Unauthenticated, RefusalReason::NoIdentity),
                "{message}"
            );
            assert!(message.contains(expected), "{message}, and not: {expected}");
            let after = Failures {
                tokens: before.tokens + 1,
                unidentified_calls: before.unidentified_calls + 1,
                ..before
            };
            assert_eq!(failures(&observer).await, after, "{expected}");
            assert_nobody_is_blamed(&observer, instance, expected).await;
        }
    }
    get(&of_ann, instance, &[("authorization", &good)]).await.unwrap();
}

/// Verifying a signature is the dearest part of a call, so it is paid for before it is done.
#[tokio::test]
async fn tokens_are_charged_before_they_are_verified() {
    let site = Site::with(|config| {
        // Two calls, and then one in a second.
        config.limits.anonymous_requests_per_second = 20;
    })
    .await;
    let instance = create(&site.token_client("coordinator"), ["ann", "bob"]).await;
    let observer = site.token_client("observer");
    observer.get(instance).await.unwrap();
    let other = TokenIssuer::new("key-1").unwrap();
    let bad = format!("Bearer {}", other.sign(&claims("ann", &json!({}))).unwrap());
    let strangers = site.token_channel();
    let mut limited = 0;
    for _ in 0..100 {
        let status = get(&strangers, instance, &[("authorization", &bad)]).await.unwrap_err();
        match refused(&status) {
            (RefusalReason::RateExceeded, _) => limited += 1,
            (reason, message) => {
                assert_eq!(reason, RefusalReason::NoIdentity);
                assert!(message.contains("the signature of the token is wrong"), "{message}");
            }
        }
    }
    assert!(limited > 0, "the strangers' share is used up");
    // Whoever is known is not concerned.
    observer.get(instance).await.unwrap();
    assert_nobody_is_blamed(&observer, instance, "a flood of bad tokens").await;
    let all = observer.counts(&[]).await.unwrap().all;
    assert_eq!((all.tokens_refused, all.refused(RefusalReason::RateExceeded)), (100 - limited, limited));
}

/// On a connection that belongs to somebody a bad token costs that principal more than a call that is refused
/// without a verification, and both have an end.
#[tokio::test]
async fn bad_tokens_are_charged_to_whose_connection_it_is() {
    let site = Site::with(|config| {
        // Two verifications at once, or fourteen calls, and as many in a second.
        config.limits.requests_per_second = 140;
    })
    .await;
    let instance = create(&site.token_client("coordinator"), ["ann", "bob"]).await;
    let other = TokenIssuer::new("key-1").unwrap();
    let bad = format!("Bearer {}", other.sign(&claims("eve", &json!({}))).unwrap());
    let good = |name| format!("Bearer {}", site.token(name, &json!({})));
    let (ann, bob) = (good("ann"), good("bob"));
    let (of_ann, of_bob) = (site.token_channel(), site.token_channel());
    get(&of_ann, instance, &[("authorization", &ann)]).await.unwrap();
    get(&of_bob, instance, &[("authorization", &bob)]).await.unwrap();
    let named_another = [("authorization", &*bob), ("stickycas-principal", "ann")];
    let (mut rounds, mut verified, mut looked_up) = (0, 0, 0);
    // Both have an end: some are refused for their rate. On a slow machine that may take more rounds.
    while rounds < 100 || rounds < 10_000 && (verified == rounds || looked_up == rounds) {
        rounds += 1;
        let is_charged = |status: tonic::Status| refused(&status).0 == RefusalReason::NoIdentity;
        let of_bad = get(&of_ann, instance, &[("authorization", &bad)]).await.unwrap_err();
        verified += u32::from(is_charged(of_bad));
        let of_known = get(&of_bob, instance, &named_another).await.unwrap_err();
        looked_up += u32::from(is_charged(of_known));
    }
    assert!(verified > 0 && verified < rounds && looked_up < rounds, "{verified}, {looked_up} of {rounds}");
    assert!(verified * 2 < looked_up, "{verified} and {looked_up}: a verification costs more");
    // Nobody else is concerned.
    get(&site.token_channel(), instance, &[("authorization", &good("observer"))]).await.unwrap();
}
