//! `[clients.NAME]`: what the author of the file knows better of clients than our table does.
//!
//! Invariants: a client is said once, whatever its letters; what says nothing changes nothing.

use std::{collections::HashSet, time::Duration};

use super::{
    keys::{CLIENT, NO_CLOCK},
    section::{Complaint, SettingValue},
};
use unhang_core::clients::{Clocks, plain};

/// Reads all of them.
pub(super) fn read(field: &SettingValue<'_>) -> Result<Clocks, Complaint> {
    let (mut said, mut names) = (Vec::new(), HashSet::new());
    for (name, field) in field.fields()? {
        if plain(name).is_empty() {
            return Err(field.complaint("is no name of a client"));
        }
        if !names.insert(plain(name)) {
            return Err(field.complaint("is said twice; capital letters make no difference"));
        }
        if let Some(clock) = field.section(CLIENT)?.get("call-clock") {
            said.push((name.to_owned(), call_clock(&clock)?));
        }
    }
    Ok(Clocks::with(said))
}

/// After how long it gives a call up; none where it does not.
fn call_clock(field: &SettingValue<'_>) -> Result<Option<Duration>, Complaint> {
    if field.is_word(NO_CLOCK[0]) {
        return Ok(None);
    }
    let or_none =
        |complaint: Complaint| Complaint { text: format!("{}; or \"none\"", complaint.text), ..complaint };
    field.duration().map(Some).map_err(or_none)
}
