//! Links to the live page of a real server, as `page-link` prints them.

use std::net::SocketAddr;

use serde_json::{Value, json};
use stickycas_client::{InstanceId, Phase, RefusalReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::site::{Site, create};
use super::support::{client, server};

/// The status and the body of the answer to a GET with this token.
async fn get(page: SocketAddr, path: &str, token: &str) -> (u16, String) {
    let mut tcp = TcpStream::connect(page).await.unwrap();
    let authorization =
        if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{authorization}\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// The token in the fragment of a link.
fn token_of(link: &str) -> &str {
    let (_, fragment) = link.trim().split_once('#').unwrap();
    fragment.split(['?', '&']).find_map(|part| part.strip_prefix("token=")).unwrap()
}

async fn rows(page: SocketAddr, token: &str) -> usize {
    let (status, body) = get(page, "/api/instances", token).await;
    assert_eq!(status, 200, "{body}");
    let list: Value = serde_json::from_str(&body).unwrap();
    list["rows"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_link_shows_what_its_principal_may_watch_and_no_more() {
    let mut site = Site::new().await;
    let coordinator = site.client("coordinator");
    let shared = create(&coordinator, ["ann", "bob"]).await;
    let foreign = create(&coordinator, ["eve", "bob"]).await;
    for (principal, seen) in [("ann", 1), ("bob", 2), ("observer", 2), ("coordinator", 2), ("nobody", 0)] {
        let link = site.client(principal).page_access().await.unwrap().link(None, None);
        assert!(link.starts_with(&format!("http://127.0.0.1:{}/#/?token=", site.page.port())), "{link}");
        assert_eq!(rows(site.page, token_of(&link)).await, seen, "{principal}");
    }
    let access = site.token_client("ann").page_access().await.unwrap();
    let out = access.link(Some(shared), Phase::new(3));
    assert!(out.contains(&format!("/#/instance/{shared}?phase=3&token=")), "{out}");
    let of = |id: InstanceId, what: &str| format!("/api/instances/{id}/{what}");
    let token = token_of(&out);
    assert_eq!(get(site.page, &of(shared, "told?process=1"), token).await.0, 200);
    assert_eq!(get(site.page, &of(foreign, "told?process=1"), token).await.0, 403);
    assert_eq!(get(site.page, "/api/overview", token).await.0, 403);
    // It is no token for calls.
    let error = site.client_with_token(token).list().await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::NoIdentity), "{error}");
}

#[tokio::test]
async fn no_other_token_opens_the_page() {
    let site = Site::new().await;
    let other = Site::new().await;
    let theirs = other.token_client("observer").page_access().await.unwrap().link(None, None);
    let call_token = site.token("observer", &json!({}));
    for token in ["", "a.b.c", token_of(&theirs), &call_token] {
        for path in ["/api/instances", "/api/overview"] {
            let (status, body) = get(site.page, path, token).await;
            assert_eq!(status, 401, "{body}");
            assert!(body.contains("stickycas-client page-link"), "{body}");
        }
        assert_eq!(get(site.page, "/", token).await.0, 200, "files are no secret");
    }
}

#[tokio::test]
async fn there_is_no_link_to_a_server_without_page() {
    let address = server().await;
    let error = client(&address, "p1").page_access().await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::NoPage), "{error}");
}
