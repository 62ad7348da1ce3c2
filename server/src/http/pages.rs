//! The pages of the operators' listener. Every other path is 404.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::Authority;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::Sources;
use crate::metrics;
use crate::readiness;

/// The state from which the pages are made.
#[derive(Clone)]
struct Pages {
    sources: Arc<Sources>,
    /// Held while metrics are written out, which takes far longer than all else here.
    metrics: Arc<Mutex<()>>,
}

pub(super) fn router(sources: Arc<Sources>, names: Option<Vec<String>>) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposition))
        .fallback(nothing)
        .with_state(Pages { sources, metrics: Arc::default() })
        .layer(from_fn_with_state(Arc::new(names), guard))
}

/// The names that browsers may use for this listener, beside addresses. `None`: any. A page of another site
/// can lead a browser here by a name of its own (DNS rebinding), which matters on a loopback address: others
/// are open to every client that reaches them, under names that only the network knows.
pub(super) fn names(listener: &TcpListener, names: &[String]) -> Option<Vec<String>> {
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let lower = names.iter().map(|name| name.to_ascii_lowercase());
    is_local.then(|| lower.chain(["localhost".to_owned()]).collect())
}

/// Refuses a request for a host name that is none of these. A request with an address, or with no host,
/// cannot come from DNS rebinding.
async fn guard(State(names): State<Arc<Option<Vec<String>>>>, request: Request, next: Next) -> Response {
    let is_led_here = names.as_ref().as_ref().is_some_and(|names| {
        let headers = request.headers().get_all(HOST).iter();
        let given = headers.map(|host| host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()));
        let mut hosts = given.chain(request.uri().authority().cloned().map(Some));
        !hosts.all(|host| {
            host.is_some_and(|host| {
                let name = host.host().to_ascii_lowercase();
                name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || names.contains(&name)
            })
        })
    });
    if is_led_here {
        let why = "not served under that name: ask localhost, or an address, or add the name to http_hosts\n";
        return (StatusCode::MISDIRECTED_REQUEST, why).into_response();
    }
    next.run(request).await
}

/// The process is there and its threads take turns.
async fn live() -> &'static str {
    "alive\n"
}

/// Whether calls are taken, and if not, why.
async fn ready(State(Pages { sources, .. }): State<Pages>) -> (StatusCode, String) {
    let state = sources.readiness.state();
    let status =
        if state == readiness::State::Serving { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}\n", state.words()))
}

/// One at a time, so that those who ask for it often wait for each other and for nobody else.
async fn exposition(State(pages): State<Pages>) -> Response {
    let _alone = pages.metrics.lock().await;
    match pages.sources.text() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn nothing() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "nothing here: try /livez, /readyz or /metrics\n")
}
