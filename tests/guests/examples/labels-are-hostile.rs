//! Reports samples whose names and labels would break a metrics page.

use polliwog_sdk::{CallError, Endpoint, Report, Sample};

guests::guest!("labels-are-hostile", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let names = ["", "1st", "a b", "a\n# HELP x", "a{b=\"c\"} 1", "\u{202e}"];
    let mut samples: Vec<Sample> = names.iter().map(|name| Sample::gauge(*name, 1.0)).collect();
    for label in ["", "le", "instance", "__name__", "a b", "a\"b"] {
        samples.push(Sample::gauge("labelled", 1.0).with_label(label, "x"));
    }
    samples.push(Sample::gauge("twice", 1.0).with_label("a", "1").with_label("a", "2"));
    samples.push(Sample::gauge("good", 1.0).with_label("value", "a\"b\\c\nd"));
    samples.push(Sample::counter("good", 1.0));
    Ok(Report { samples, ..Report::empty() })
}
