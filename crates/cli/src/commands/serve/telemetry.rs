//! The collector to which `unhang serve` reports requests. The file names it, or else the variables of OpenTelemetry do.

use unhang::{
    client::Address,
    settings::TelemetrySettings,
    telemetry::{Telemetry, TelemetrySpec},
};

/// The path after the URL of a collector.
const TRACES: &str = "/v1/traces";

/// Returns the collector to which requests are reported, if any, and a warning about settings that are wrong.
pub(super) fn spec(
    settings: &TelemetrySettings,
    variable: impl Fn(&str) -> Option<String>,
) -> (Option<TelemetrySpec>, Option<String>) {
    let below = |base: String| format!("{}{TRACES}", base.trim_end_matches('/'));
    let of_file = settings.otlp.clone().map(below);
    let is_of_file = of_file.is_some();
    let is_off =
        !is_of_file && variable("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
    let url = of_file
        .or_else(|| variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
        .or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(below));
    let Some(url) = url.filter(|_| !is_off) else { return (None, None) };
    let protocol =
        variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if let Some(protocol) = protocol.filter(|protocol| !is_of_file && protocol != "http/protobuf") {
        let why = format!(
            "traces are not sent: OTEL_EXPORTER_OTLP_PROTOCOL is `{protocol}`, and unhang supports only \
             http/protobuf"
        );
        return (None, Some(why));
    }
    let headers = match &settings.headers {
        Some(headers) => headers.clone().into_iter().collect(),
        None => {
            let told = variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
                .or_else(|| variable("OTEL_EXPORTER_OTLP_HEADERS"));
            headers(&told.unwrap_or_default())
        }
    };
    let address = Address { url, headers, uses_proxies: true, socket: None };
    if let Err(error) = address.check() {
        return (None, Some(format!("traces are not sent: {error}")));
    }
    let service_name = settings.service_name.clone().or_else(|| variable("OTEL_SERVICE_NAME"));
    (Some(TelemetrySpec { address, service_name: service_name.unwrap_or_else(|| "unhang".to_owned()) }), None)
}

/// Starts to report requests. Must be called in a runtime.
pub(super) fn start(spec: Option<TelemetrySpec>) -> Option<Telemetry> {
    // `spec` has checked the address.
    Telemetry::start(spec?).inspect_err(|error| tracing::warn!("traces are not sent: {error}")).ok()
}

/// Parses `name=value,name=value`, with the values encoded as in a URL.
fn headers(told: &str) -> Vec<(String, String)> {
    let pairs = told.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value.trim()))).collect()
}

/// Decodes each `%XX`. If the result is not text, it returns the value unchanged.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [byte, after @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        rest = match (byte, after) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or_default() << 4 | hex(*low).unwrap_or_default());
                after
            }
            _ => {
                bytes.push(*byte);
                after
            }
        };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(
        settings: &TelemetrySettings,
        variables: &[(&str, &str)],
    ) -> Result<Option<TelemetrySpec>, String> {
        let look_up =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        match spec(settings, look_up) {
            (spec, None) => Ok(spec),
            (_, Some(why)) => Err(why),
        }
    }

    #[test]
    fn nobody_is_told_unless_somebody_says_so_and_the_file_goes_first() {
        let nothing = TelemetrySettings::default();
        assert!(told(&nothing, &[]).expect("off").is_none());
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");
        let spec = told(&nothing, &[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%20c, d = e")]);
        let spec = spec.expect("right").expect("on");
        assert_eq!((&*spec.address.url, &*spec.service_name), ("http://localhost:4318/v1/traces", "unhang"));
        let headers = [("a", "b c"), ("d", "e")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(spec.address.headers, headers);
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:1/x");
        let spec =
            told(&nothing, &[endpoint, whole, ("OTEL_SERVICE_NAME", "mine")]).expect("right").expect("on");
        assert_eq!((&*spec.address.url, &*spec.service_name), ("http://localhost:1/x", "mine"));
        assert!(told(&nothing, &[endpoint, ("OTEL_SDK_DISABLED", "true")]).expect("off").is_none());
        let why = told(&nothing, &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).expect_err("another");
        assert!(why.contains("`grpc`"), "{why}");
        assert!(told(&nothing, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost")]).is_err());
        let file =
            TelemetrySettings { otlp: Some("http://here:4318".to_owned()), ..TelemetrySettings::default() };
        let spec = told(&file, &[endpoint, whole, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!(spec.expect("right").expect("on").address.url, "http://here:4318/v1/traces");
    }
}
