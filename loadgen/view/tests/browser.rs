//! What a browser asks the live page for: HTTP/1.1, and streams of server-sent events.

#![allow(unreachable_pub)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// What a test waits for at most.
pub async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("the page hangs")
}

/// An answer as a whole.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

async fn send(page: SocketAddr, path: &str, headers: &[(&str, &str)]) -> http::Response<Incoming> {
    let io = TokioIo::new(with_timeout(TcpStream::connect(page)).await.unwrap());
    let (mut client, connection) = with_timeout(hyper::client::conn::http1::handshake(io)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::get(path);
    if !headers.iter().any(|(name, _)| *name == HOST.as_str()) {
        request = request.header(HOST, page.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    with_timeout(client.send_request(request.body(Empty::<Bytes>::new()).unwrap())).await.unwrap()
}

/// The answer to a GET.
pub async fn get(page: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    let (head, body) = send(page, path, headers).await.into_parts();
    let body = with_timeout(body.collect()).await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// A stream of events.
pub struct EventStream {
    body: Incoming,
    rest: String,
    lines: VecDeque<String>,
}

impl EventStream {
    /// Opens a stream; the answer if there is none.
    pub async fn open(page: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Self, StatusCode> {
        let response = send(page, path, headers).await;
        if response.status() != StatusCode::OK {
            return Err(response.status());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Ok(Self { body: response.into_body(), rest: String::new(), lines: VecDeque::new() })
    }

    async fn line(&mut self) -> Option<String> {
        while self.lines.is_empty() {
            let frame = with_timeout(self.body.frame()).await?.ok()?;
            self.rest += std::str::from_utf8(&frame.into_data().ok()?).unwrap();
            while let Some((line, rest)) = self.rest.split_once('\n') {
                self.lines.push_back(line.to_owned());
                self.rest = rest.to_owned();
            }
        }
        self.lines.pop_front()
    }

    /// The name and the data of the next event; `None`: the stream has ended.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let line = self.line().await?;
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// The next event, which has this name.
    pub async fn expect(&mut self, expected: &str) -> Value {
        let (name, data) = self.next().await.unwrap_or_else(|| panic!("no {expected}: the stream has ended"));
        assert_eq!(name, expected, "{data}");
        data
    }

    /// The events of frames up to the end of the stream, and its last event.
    pub async fn rest(&mut self) -> (Vec<Value>, (String, Value)) {
        let mut events = Vec::new();
        loop {
            let (name, data) = self.next().await.expect("a stream says why it ends");
            if name != "frame" {
                return (events, (name, data));
            }
            events.extend(data["events"].as_array().unwrap().iter().cloned());
        }
    }
}
