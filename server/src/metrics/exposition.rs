//! The text of metrics, by `prometheus-client`, with labels that are known when the program is compiled.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric as _,
    MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;

/// The media type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Takes metrics, one after the other. A counter's name ends in the text with `_total`, which is not part of
/// the name here.
pub(crate) struct Exposition<'a>(pub(crate) DescriptorEncoder<'a>);

impl Exposition<'_> {
    pub(crate) fn counter(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeCounterValue + Copy,
    ) -> fmt::Result {
        self.describe(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(crate) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeGaugeValue + Copy,
    ) -> fmt::Result {
        self.describe(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        histogram.encode(self.describe(name, help, MetricType::Histogram)?)
    }

    /// A counter for each value of a label.
    pub(crate) fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> fmt::Result {
        self.counters_of(name, help, rows.into_iter().map(|(value, count)| ([(label, value)], count)))
    }

    /// A counter for each set of labels.
    pub(crate) fn counters_of(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (impl EncodeLabelSet, u64)>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, MetricType::Counter)?;
        rows.into_iter().try_for_each(|(labels, count)| {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
        })
    }

    /// A gauge for each value of a label.
    pub(crate) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> fmt::Result {
        self.gauges_of(name, help, rows.into_iter().map(|(value, number)| ([(label, value)], number)))
    }

    /// A gauge for each set of labels.
    pub(crate) fn gauges_of(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (impl EncodeLabelSet, u64)>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, MetricType::Gauge)?;
        rows.into_iter().try_for_each(|(labels, number)| metric.encode_family(&labels)?.encode_gauge(&number))
    }

    /// A histogram for each value of a label.
    pub(crate) fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = (&'static str, &'h Histogram)>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, MetricType::Histogram)?;
        rows.into_iter()
            .try_for_each(|(value, histogram)| histogram.encode(metric.encode_family(&[(label, value)])?))
    }

    fn describe<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use prometheus_client::collector::Collector;

    use super::*;

    /// The text of what `encode` gives, and of nothing else.
    pub(in crate::metrics) fn text(
        encode: impl Fn(&mut Exposition<'_>) -> fmt::Result + Send + Sync + 'static,
    ) -> String {
        struct Alone<E>(E);

        impl<E> fmt::Debug for Alone<E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Alone")
            }
        }

        impl<E: Fn(&mut Exposition<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Alone<E> {
            fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
                self.0(&mut Exposition(encoder))
            }
        }

        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(Alone(encode)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }
}
