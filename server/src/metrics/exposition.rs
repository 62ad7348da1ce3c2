//! The text of metrics, by `prometheus-client`, with labels that are known when the program is compiled.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::histogram::Histogram;

/// The media type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One value of a label, and the number that it has.
pub(crate) type Row<V> = (&'static str, V);

/// Takes metrics, one after the other. A counter's name ends in the text with `_total`, which is not part of the name
/// here.
pub(crate) struct Exposition<'a>(pub(crate) DescriptorEncoder<'a>);

impl Exposition<'_> {
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.describe(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(crate) fn seconds_counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.describe(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.describe(name, help, MetricType::Gauge)?.encode_gauge(&to_gauge(value))
    }

    pub(crate) fn float_gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.describe(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// A counter for each value of a label.
    pub(crate) fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = Row<u64>>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, MetricType::Counter)?;
        for (value, count) in rows {
            metric.encode_family(&[(label, value)])?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    /// A counter for each pair of values of two labels.
    pub(crate) fn counters_of_two(
        &mut self,
        name: &str,
        help: &str,
        [one, other]: [&'static str; 2],
        rows: impl IntoIterator<Item = ([&'static str; 2], u64)>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, MetricType::Counter)?;
        for (values, count) in rows {
            let labels = [(one, values[0]), (other, values[1])];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    /// A gauge for each value of a label.
    pub(crate) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = Row<u64>>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, MetricType::Gauge)?;
        for (value, number) in rows {
            metric.encode_family(&[(label, value)])?.encode_gauge(&to_gauge(number))?;
        }
        Ok(())
    }

    /// A gauge that is 1, with labels that say what is there.
    pub(crate) fn info(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&'static str, &'static str)],
    ) -> fmt::Result {
        self.describe(name, help, MetricType::Gauge)?.encode_family(&labels)?.encode_gauge(&1_i64)
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        encode_histogram(self.describe(name, help, MetricType::Histogram)?, histogram)
    }

    /// A histogram for each value of a label.
    pub(crate) fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        rows: impl IntoIterator<Item = Row<&'h Histogram>>,
    ) -> fmt::Result {
        let mut metric = self.describe(name, help, MetricType::Histogram)?;
        for (value, histogram) in rows {
            encode_histogram(metric.encode_family(&[(label, value)])?, histogram)?;
        }
        Ok(())
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

fn encode_histogram(mut metric: MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let buckets: Vec<_> = histogram.buckets().collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoLabelSet>(histogram.sum(), count, &buckets, None)
}

fn to_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
