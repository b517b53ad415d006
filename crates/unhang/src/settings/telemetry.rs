//! `[telemetry]`: where requests are told as traces.
//!
//! Invariants: nothing is asked here; what the file says goes before the environment, which is the caller's.

use std::collections::BTreeMap;

use super::{
    keys::TELEMETRY,
    section::{Complaint, SettingValue},
    server::{checked_url, header_value},
};

/// `[telemetry]`, as far as the file says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The URL of a collector that takes OTLP over HTTP, without the path of traces.
    pub otlp: Option<String>,
    /// What goes along with every post to it.
    pub headers: Option<BTreeMap<String, String>>,
    /// What we are called there.
    pub service_name: Option<String>,
}

pub(super) fn read(field: &SettingValue<'_>) -> Result<TelemetrySettings, Complaint> {
    let section = field.section(TELEMETRY)?;
    let headers = section.get("headers").map(|field| {
        let headers = field.fields()?.into_iter();
        headers.map(|(name, field)| Ok((name.to_owned(), header_value(&field)?))).collect()
    });
    Ok(TelemetrySettings {
        otlp: section.get("otlp").map(|field| checked_url(&field)).transpose()?,
        headers: headers.transpose()?,
        service_name: section.get("service-name").map(|field| field.plain()).transpose()?,
    })
}
