//! The paths of the page. Everything is read-only: other methods than GET and HEAD are refused.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::json;
use stickycas_model::types::ProcessId;
use tokio_stream::{Stream, StreamExt as _};

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
        .route("/api/overview", get(overview::<S>))
        .fallback(get(asset))
        .with_state(source)
        .merge(further)
        .layer(from_fn_with_state(Arc::new(hosts), guard))
}

/// Refuses what is not for one of the names, or asked for by a page of another site, and gives every response
/// its headers.
async fn guard(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let mut response = if !hosts.allow(request.uri(), request.headers()) {
        let why = "this page is not served under that name: use one of those that the server was given\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    } else if request.uri().path().starts_with("/api/") && headers::of_another_site(request.headers()) {
        let why = "pages of other sites may not ask for this\n";
        (StatusCode::FORBIDDEN, why).into_response()
    } else {
        next.run(request).await
    };
    headers::of_response(response.headers_mut());
    response
}

/// Whether viewers may make up runs, need a token, and see a live server; and the version.
async fn about<S: Source>(State(source): State<Arc<S>>) -> Response {
    let version = env!("CARGO_PKG_VERSION");
    let about =
        json!({ "plays": S::PLAYS, "token": source.needs_token(), "live": S::LIVE, "version": version });
    Json(about).into_response()
}

async fn asset(request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    assets::file(path, request.headers())
        .unwrap_or_else(|| (StatusCode::NOT_FOUND, "nothing here: the page is at /\n").into_response())
}

async fn instances<S: Source>(
    State(source): State<Arc<S>>,
    parts: Parts,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&parts)?;
    let page = source.instances(&viewer, &checked(query)?).await?;
    Ok(never_stored(Json(page).into_response()))
}

async fn instance<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    parts: Parts,
    query: Result<Query<From>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&parts)?;
    let opened = source.open(viewer, &id, checked(query)?.from).await?;
    Ok(stream(events::of_instance(opened)))
}

async fn overview<S: Source>(State(source): State<Arc<S>>, parts: Parts) -> Result<Response, Refused> {
    let viewer = source.viewer(&parts)?;
    Ok(stream(events::until_end(source.overview(viewer)?)))
}

fn stream(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(events.map(Ok::<_, std::io::Error>)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy in between passes each event on at once.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    never_stored(response)
}

async fn promised<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    parts: Parts,
    query: Result<Query<Assumed>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&parts)?;
    let params = source.params(&viewer, &id).await?;
    Ok(never_stored(Json(promise(&params, checked(query)?)).into_response()))
}

async fn told<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    parts: Parts,
    query: Result<Query<Of>, QueryRejection>,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&parts)?;
    let told = source.told(&viewer, &id, checked(query)?.process).await?;
    Ok(never_stored(Json(told).into_response()))
}

async fn explanation<S: Source>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
    parts: Parts,
) -> Result<Response, Refused> {
    let viewer = source.viewer(&parts)?;
    Ok(never_stored(Json(source.explanation(&viewer, &id).await?).into_response()))
}

fn checked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refused> {
    let Query(query) =
        query.map_err(|error| Refused { status: StatusCode::BAD_REQUEST, why: error.body_text() })?;
    Ok(query)
}

/// The answer about an instance is for this viewer alone.
fn never_stored(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "why": self.why }))).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
        }
        never_stored(response)
    }
}
