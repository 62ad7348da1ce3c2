//! The paths of the page. Everything is read-only: other methods than GET and HEAD are refused.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::json;
use stickycas_model::types::ProcessId;

use crate::headers::{self, Hosts};
use crate::promise::{Assumed, promise};
use crate::source::{ListQuery, Refused, Source};
use crate::{assets, events};

/// From where on the events of an instance are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    /// The index of the first event.
    from: Option<u64>,
}

/// Of which process something is to be told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    /// Its number, from 1.
    process: ProcessId,
}

/// The page of this source, for requests to these names.
pub fn router<S: Source>(source: Arc<S>, hosts: Hosts) -> Router {
    router_with(source, hosts, Router::new())
}

/// The same with further paths.
pub fn router_with<S: Source>(source: Arc<S>, hosts: Hosts, further: Router) -> Router {
    Router::new()
        .route("/api/about", get(about::<S>))
        .route("/api/instances", get(instances::<S>))
        .route("/api/instances/{id}/events", get(instance::<S>))
        .route("/api/instances/{id}/promise", get(promised::<S>))
        .route("/api/instances/{id}/told", get(told::<S>))
        .route("/api/instances/{id}/explanation", get(explanation::<S>))
        .fallback(get(asset))
        .with_state(source)
        .merge(further)
        .layer(from_fn_with_state(Arc::new(hosts), guard))
}

/// Refuses what is not for one of the names, and gives every response its headers.
async fn guard(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let mut response = if hosts.allow(request.uri(), request.headers()) {
        next.run(request).await
    } else {
        let why = "this page is not served under that name: use one of those that the server was given\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    };
    headers::of_response(response.headers_mut());
    response
}

/// What this page can do.
async fn about<S: Source>() -> Response {
    Json(json!({ "plays": S::PLAYS })).into_response()
}

async fn asset(request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    assets::file(path, request.headers())
        .unwrap_or_else(|| (StatusCode::NOT_FOUND, "nothing here: the page is at /\n").into_response())
}

async fn instances<S: Source>(
    State(source): State<Arc<S>>,
    headers: HeaderMap,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&headers)?;
    let page = source.instances(&viewer, &checked(query)?)?;
    Ok(never_stored(Json(page).into_response()))
}

async fn instance<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    query: Result<Query<From>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&headers)?;
    let opened = source.open(viewer, &id, checked(query)?.from)?;
    let body = Body::from_stream(tokio_stream::StreamExt::map(events::stream(opened), Ok::<_, std::io::Error>));
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(never_stored(response))
}

async fn promised<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    query: Result<Query<Assumed>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&headers)?;
    let params = source.params(&viewer, &id)?;
    Ok(never_stored(Json(promise(&params, checked(query)?)).into_response()))
}

async fn told<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    query: Result<Query<Of>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&headers)?;
    let told = source.told(&viewer, &id, checked(query)?.process)?;
    Ok(never_stored(Json(told).into_response()))
}

async fn explanation<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&headers)?;
    Ok(never_stored(Json(source.explanation(&viewer, &id)?).into_response()))
}

fn checked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refused> {
    let Query(query) =
        query.map_err(|error| Refused { status: StatusCode::BAD_REQUEST, why: error.body_text() })?;
    Ok(query)
}

/// What an instance shows is for this viewer alone.
fn never_stored(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "why": self.why }))).into_response()
    }
}
