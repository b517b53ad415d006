//! Events as JSON, one object on each line: `time`, `level`, `target`, `message` and `fields`.
//!
//! Invariants: each line is one whole object, and none of its texts contains a secret.

use std::{
    fmt::{self, Debug},
    time::SystemTime,
};

use serde_json::{Map, Value, json};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use super::Redaction;

/// A formatter that writes events as JSON.
pub(super) struct JsonEvents {
    pub(super) redaction: Redaction,
}

impl<S, N> FormatEvent<S, N> for JsonEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields { redaction: &self.redaction, message: String::new(), others: Map::new() };
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut line = line(metadata.level().as_str(), metadata.target(), &fields.message);
        if !fields.others.is_empty() {
            line["fields"] = fields.others.into();
        }
        writeln!(writer, "{line}")
    }
}

/// Makes an event without fields.
pub(super) fn line(level: &str, target: &str, message: &str) -> Value {
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    json!({ "time": time, "level": level, "target": target, "message": message })
}

/// Makes the event about a lost part, as the text of a line.
pub(super) fn loss(bytes: u64) -> String {
    let message = format!("{bytes} bytes dropped, because they were not read");
    format!("{}\n", line("WARN", "unhang", &message))
}

/// The content of an event.
struct Fields<'a> {
    redaction: &'a Redaction,
    message: String,
    others: Map<String, Value>,
}

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let value = self.redaction.hide(value).into_owned();
        match field.name() {
            "message" => self.message = value,
            _ => self.put(field, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
}
