//! Traces by OTLP: spans leave in batches, on a thread of the exporter. Only with the feature `otlp`.

use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// The name of the service in traces.
const SERVICE: &str = "stickycas-server";
/// The time that the end of the program waits for the last spans to leave.
const FLUSH: Duration = Duration::from_secs(1);

/// Sends the last spans when it is dropped, unless that takes long.
#[derive(Debug)]
pub(crate) struct TraceGuard(SdkTracerProvider);

impl Drop for TraceGuard {
    fn drop(&mut self) {
        // A collector that is gone gets nothing.
        let _ = self.0.shutdown_with_timeout(FLUSH);
    }
}

/// The layer that exports spans to this endpoint. Called inside the runtime, on which the exporter speaks.
pub(super) fn layer<S>(endpoint: &str) -> anyhow::Result<(impl Layer<S> + use<S>, TraceGuard)>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let exporter = exporter.with_context(|| format!("cannot export traces to {endpoint}"))?;
    let resource = Resource::builder().with_service_name(SERVICE).build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE));
    Ok((layer, TraceGuard(provider)))
}
