//! `[telemetry]`: the collector that gets traces of requests.
//!
//! Invariants: no request is made here. The file overrides the environment, which the caller handles.

use std::collections::BTreeMap;

use super::{
    keys::TELEMETRY,
    section::{Complaint, SettingValue},
    server::{checked_url, header_value},
};
use unhang_core::insertion::InsertEach;

/// The settings of `[telemetry]`. Settings that the file does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The URL of a collector that takes OTLP over HTTP, without the path for traces.
    pub otlp: Option<String>,
    /// The headers of every post to the collector.
    pub headers: Option<BTreeMap<String, String>>,
    /// Our name in the traces.
    pub service_name: Option<String>,
}

pub(super) fn read(field: &SettingValue<'_>) -> Result<TelemetrySettings, Complaint> {
    let section = field.section(TELEMETRY)?;
    let headers = section.get("headers").map(|field| {
        let headers = field.fields()?.into_iter();
        headers.map(|(name, field)| Ok((name.to_owned(), header_value(&field)?))).try_insert_each()
    });
    Ok(TelemetrySettings {
        otlp: section.get("otlp").map(|field| checked_url(&field)).transpose()?,
        headers: headers.transpose()?,
        service_name: section.get("service-name").map(|field| field.plain()).transpose()?,
    })
}
