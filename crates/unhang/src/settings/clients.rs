//! `[clients.NAME]`: facts about clients that override our table.
//!
//! Invariants: a client may be named once, whatever its capital letters. An empty entry changes nothing.

use std::{collections::HashSet, time::Duration};

use super::{
    keys::{CLIENT, NO_CLOCK},
    section::{Complaint, SettingValue},
};
use unhang_core::clients::{Clocks, plain};

/// Reads all clients of the table.
pub(super) fn read(field: &SettingValue<'_>) -> Result<Clocks, Complaint> {
    let (mut said, mut names) = (Vec::new(), HashSet::new());
    for (name, field) in field.fields()? {
        if plain(name).is_empty() {
            return Err(field.complaint("is not a name of a client"));
        }
        if !names.insert(plain(name)) {
            return Err(field.complaint("occurs twice; capital letters make no difference"));
        }
        if let Some(clock) = field.section(CLIENT)?.get("call-clock") {
            said.push((name.to_owned(), call_clock(&clock)?));
        }
    }
    Ok(Clocks::with(said))
}

/// Reads after how long the client gives a call up; `None` if it never does.
fn call_clock(field: &SettingValue<'_>) -> Result<Option<Duration>, Complaint> {
    if field.is_word(NO_CLOCK[0]) {
        return Ok(None);
    }
    let or_none = |complaint: Complaint| Complaint {
        text: format!("{}; or write \"none\"", complaint.text),
        ..complaint
    };
    field.duration().map(Some).map_err(or_none)
}
