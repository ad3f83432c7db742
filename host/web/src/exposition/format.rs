//! The two text formats of metrics.
//!
//! A scraper that accepts OpenMetrics, such as Prometheus, gets OpenMetrics. All other clients get the older Prometheus
//! text format, which every scraper reads and a browser displays:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use crate::pauses::WithPauses as _;
use std::borrow::Cow;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `application/openmetrics-text`.
    OpenMetrics,
    /// `text/plain` of version 0.0.4.
    Plain,
}

impl Format {
    /// The format for a request with this `Accept` header.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        let asked = accept.is_some_and(|accept| accept.to_ascii_lowercase().contains("application/openmetrics-text"));
        if asked { Self::OpenMetrics } else { Self::Plain }
    }

    /// The value of the `Content-Type` header.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts OpenMetrics text to this format.
    pub(crate) fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Plain => plain(&open_metrics),
        }
    }
}

/// Converts OpenMetrics to Prometheus text format 0.0.4: a counter's metadata has the suffix `_total`, `unknown`
/// becomes `untyped`, and the end marker is omitted.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines().with_pauses().filter(|line| *line != "# EOF") {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
            continue;
        }
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) else {
            text.extend([line, "\n"]);
            continue;
        };
        let name = if kind == "counter" { Cow::Owned(format!("{name}_total")) } else { Cow::Borrowed(name) };
        let kind = match kind {
            // A counter whose name OpenMetrics does not allow.
            "unknown" if name.ends_with("_total") => "counter",
            "unknown" => "untyped",
            kind => kind,
        };
        if let Some((_, description)) = help.take() {
            text.push_str(&format!("# HELP {name} {description}\n"));
        }
        text.push_str(&format!("# TYPE {name} {kind}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_accept_openmetrics_get_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accept, expected) in [
            (Some(prometheus), Format::OpenMetrics),
            (Some("text/plain;version=0.0.4"), Format::Plain),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), Format::Plain),
            (None, Format::Plain),
        ] {
            assert_eq!(Format::accepted(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn the_plain_format_names_counters_with_their_suffix() {
        let open_metrics = "# HELP polls Polls by result.\n# TYPE polls counter\npolls_total{result=\"a # TYPE b\"} 1\n\
                            # HELP depth How many.\n# TYPE depth gauge\ndepth 2\n\
                            # HELP read_total Reported.\n# TYPE read_total unknown\nread_total 3\n\
                            # HELP odd Reported.\n# TYPE odd unknown\nodd 4\n# EOF\n";
        let expected = "# HELP polls_total Polls by result.\n# TYPE polls_total counter\npolls_total{result=\"a # TYPE b\"} 1\n\
                        # HELP depth How many.\n# TYPE depth gauge\ndepth 2\n\
                        # HELP read_total Reported.\n# TYPE read_total counter\nread_total 3\n\
                        # HELP odd Reported.\n# TYPE odd untyped\nodd 4\n";
        assert_eq!(Format::Plain.of(open_metrics.to_owned()), expected);
        assert_eq!(Format::OpenMetrics.of(open_metrics.to_owned()), open_metrics);
    }
}
