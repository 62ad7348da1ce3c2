//! The pages of the operators' listener. Every other path is 404.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::metrics::{self, Sources};
use crate::readiness;

pub(super) fn router(sources: Arc<Sources>) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposition))
        .fallback(nothing)
        .with_state(sources)
}

/// The process is there and its threads take turns.
async fn live() -> &'static str {
    "alive\n"
}

/// Whether calls are taken, and if not, why.
async fn ready(State(sources): State<Arc<Sources>>) -> (StatusCode, String) {
    let state = sources.readiness.state();
    let status =
        if state == readiness::State::Serving { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}\n", state.words()))
}

async fn exposition(State(sources): State<Arc<Sources>>) -> Response {
    match sources.text() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn nothing() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "nothing here: try /livez, /readyz or /metrics\n")
}
