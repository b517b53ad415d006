//! Whose the tools are that another gateway lists for windows: it says so with each of them, so that what the file says of a server and of
//! single tools holds in every window, whoever has the servers.
//!
//! Theory of operation. Whoever leads writes into `_meta` of each tool, for windows alone, which server it is of and what that calls it.
//! Whoever follows reads that and takes it out again, so that clients see the same lists in every window.
//!
//! The other way round, each request says for whoever leads which session of a window makes it.
//!
//! Invariants: a server of the configuration is not listened to about this, whatever it writes.

use std::collections::BTreeMap;

use serde_json::{Value, json, value::RawValue};
use unhang_bridge::Splice;
use unhang_wire::{Json, text_member};

use super::{OfSession, Patience, backend::Backend};
use crate::{route::catalog::Offered, upstream::http::headers::WINDOW};

/// The member of `_meta`.
const OWNER: &str = "io.github.unhang/owner";

/// Whose tools are, by the names that are listed: the server, and what that calls it.
pub type Owners = BTreeMap<String, (String, String)>;

/// How long servers are waited for that somebody else has, by their names.
pub type Behind = BTreeMap<String, Patience>;

/// What this server offers, with whose it is.
pub(super) fn marked(server: &str, offered: &Offered) -> Offered {
    let tools = offered.tools.iter().map(|raw| mark(server, raw).unwrap_or_else(|| raw.clone())).collect();
    Offered { tools, ..offered.clone() }
}

fn mark(server: &str, raw: &RawValue) -> Option<Box<RawValue>> {
    let item = Json::new(raw.get().as_bytes())?;
    let owner = json!([server, text_member(item, "name")?]).to_string();
    let meta = item.member("_meta").unwrap_or(Json::EMPTY);
    let meta = Splice::new(meta).set(OWNER, owner).apply()?.into_owned();
    RawValue::from_string(Splice::new(item).set("_meta", meta).apply()?.into_owned()).ok()
}

/// The same without that, and whose each tool is.
pub(super) fn read(tools: Vec<Box<RawValue>>) -> (Vec<Box<RawValue>>, Owners) {
    let mut owners = Owners::new();
    let tools = tools.into_iter().map(|raw| match unmark(&raw) {
        Some((unmarked, public, owner)) => {
            owners.insert(public, owner);
            unmarked
        }
        None => raw,
    });
    (tools.collect(), owners)
}

fn unmark(raw: &RawValue) -> Option<(Box<RawValue>, String, (String, String))> {
    let item = Json::new(raw.get().as_bytes())?;
    let meta = item.member("_meta")?;
    let owner: [String; 2] = serde_json::from_str(meta.member(OWNER)?.get()).ok()?;
    let rest = Splice::new(meta).remove(OWNER).apply()?;
    let is_empty = serde_json::from_str::<Value>(&rest).ok()?.as_object()?.is_empty();
    let item_without = match is_empty {
        true => Splice::new(item).remove("_meta").apply()?,
        false => Splice::new(item).set("_meta", rest.as_ref()).apply()?,
    };
    let [server, tool] = owner;
    Some((RawValue::from_string(item_without.into_owned()).ok()?, text_member(item, "name")?, (server, tool)))
}

impl Backend {
    /// The headers of a request of this session, where we follow: whoever leads has no other way to tell sessions of windows apart.
    pub(super) fn headers(&self, session: Option<OfSession>) -> Vec<(String, String)> {
        let session = session.filter(|_| self.is_gateway());
        session.map(|session| (WINDOW.to_owned(), session.told())).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_read_and_nothing_is_left_of_it() {
        let written = [r#"{"name":"a"}"#, r#"{"name":"b","_meta":{"x":1}}"#, "5"];
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let tools: Vec<Box<RawValue>> = written.map(raw).into();
        let marked = marked("srv", &Offered { tools, ..Offered::default() }).tools;
        assert!(marked[0].get().contains(OWNER) && marked[2].get() == "5", "{marked:?}");
        let (tools, owners) = read(marked);
        assert_eq!(tools.iter().map(|raw| raw.get()).collect::<Vec<_>>(), written);
        assert_eq!(owners["b"], ("srv".to_owned(), "b".to_owned()));
        assert_eq!(owners.len(), 2);
    }
}
