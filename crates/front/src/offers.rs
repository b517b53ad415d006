//! What is listed of servers' tools beyond what they say themselves, where their calls may become jobs.
//!
//! Theory of operation. A tool that says what its structured results look like is held to it by its client, some of which refuse a result
//! that is anything else. The result that hands a call over as a job is something else; so the tool is listed with both.
//!
//! Invariants
//!
//! - A tool whose calls never become jobs is listed as it is.
//! - A schema means what it meant, beside what we add; one of which that cannot be said is left out.

use std::{borrow::Cow, time::Duration};

use serde_json::{Map, Value, json};
use unhang_bridge::{
    Splice,
    tasks::{Support, with_task_support},
};
use unhang_switches::stands;
use unhang_wire::{Id, Json, text_member};

use super::{
    answers::implementation,
    handover::PromotionReply,
    mcp_session::{McpSession, SessionCall, SessionEffects},
};
use unhang_core::{config::LIST_LIFE, promotion::Promotion, revision::Revision};
use unhang_gateway::RequestPatience;
use unhang_tools::{Definition, ToolListing, handed_over_schema};
use unhang_upstream::client::ServerList;

/// Members of a schema that those within it refer to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Words by which a schema refers to places that are not where they were, once it stands in another.
const PLACES: [&str; 6] =
    ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"];

impl McpSession {
    /// The tools of servers as they are listed for this revision; `list` is an array of them.
    pub(super) fn with_jobs_in_mind<'a>(
        &self,
        list: &'a str,
        revision: Revision,
        copes_with_tasks: bool,
    ) -> Cow<'a, str> {
        let Some(list_json) = Json::new(list.as_bytes()).filter(|_| self.jobs.promotes) else {
            return list.into();
        };
        let (mut changed, mut tools) = (false, Vec::new());
        list_json.each_element(|tool| {
            let listed = match self.may_become_a_job(tool) {
                // Who copes with tasks gets one, and never words.
                true => listed(tool, revision == Revision::V2025November, !copes_with_tasks),
                false => Cow::Borrowed(tool.get()),
            };
            changed |= matches!(listed, Cow::Owned(_));
            tools.push(listed);
        });
        if changed { format!("[{}]", tools.join(",")).into() } else { list.into() }
    }

    /// Answers with a list: what we have ourselves, and then what the servers have.
    pub(super) fn answer_list(
        &mut self,
        id: &Id,
        list: ServerList,
        call: &SessionCall,
        effects: &mut impl SessionEffects,
    ) {
        let own = |listing: ToolListing| {
            let own =
                self.tools.iter().filter(move |tool| list == ServerList::Tools && tool.listing == listing);
            own.map(|tool| self.own_tool(tool, call.revision))
        };
        let mut items: Vec<String> = own(ToolListing::First).collect();
        let known = self.servers.as_ref();
        let others = known.map_or("[]", |known| known.catalog.list(list, call.revision.era()));
        let copes_with_tasks = call.hand_over.promotion_reply != PromotionReply::Words;
        let others = match list {
            ServerList::Tools => self.with_jobs_in_mind(others, call.revision, copes_with_tasks),
            _ => Cow::Borrowed(others),
        };
        let others = others.strip_prefix('[').and_then(|others| others.strip_suffix(']'));
        items.extend(others.filter(|others| !others.is_empty()).map(str::to_owned));
        items.extend(own(ToolListing::Last));
        let (member, items) = (list.member(), items.join(","));
        let result = if call.revision.is_stateless() {
            // What servers have may change at any time, and whoever has not asked to hear of it does not.
            let life = if known.is_some() { Duration::ZERO } else { LIST_LIFE };
            format!(
                r#"{{"_meta":{{"io.modelcontextprotocol/serverInfo":{}}},"cacheScope":"private","resultType":"complete","{member}":[{items}],"ttlMs":{}}}"#,
                implementation(),
                life.as_millis()
            )
        } else {
            format!(r#"{{"{member}":[{items}]}}"#)
        };
        self.answers.answer_raw(id, call.way, &result, effects);
    }

    /// A tool of ours as it is listed for this revision.
    pub(super) fn own_tool(&self, tool: &Definition, revision: Revision) -> String {
        let listed = tool.to_json(revision).to_string();
        let can_be_a_task = tool.is_job && self.jobs.are_there && revision == Revision::V2025November;
        let with_support = Json::new(listed.as_bytes())
            .filter(|_| can_be_a_task)
            .and_then(|tool| Some(with_task_support(tool, Support::Optional)?.into_owned()));
        with_support.unwrap_or(listed)
    }

    fn may_become_a_job(&self, tool: Json<'_>) -> bool {
        let Some((known, name)) = self.servers.as_ref().zip(text_member(tool, "name")) else { return false };
        let Some(owner) = known.catalog.tool(&name) else { return false };
        let promotion = known.patience.get(&owner.server);
        let promotion = promotion.map(|patience: &RequestPatience| patience.of_promotion(&owner.name));
        promotion.unwrap_or_default() != Promotion::Off
    }
}

/// A tool whose calls may become jobs, as it is listed for whoever may ask for a task (2025-11-25), and for whoever is handed over in words.
pub fn listed(tool: Json<'_>, may_be_asked_for_a_task: bool, gets_words: bool) -> Cow<'_, str> {
    let with_support = may_be_asked_for_a_task.then(|| with_task_support(tool, Support::Optional)).flatten();
    let listed = with_support.unwrap_or(Cow::Borrowed(tool.get()));
    let Some(schema) = tool.member("outputSchema").filter(|_| gets_words) else { return listed };
    if !stands("handed-over-is-in-the-schema") {
        return listed;
    }
    let with_both = {
        let Some(json) = Json::new(listed.as_bytes()) else { return listed };
        let splice = match or_handed_over(schema) {
            Some(both) => Splice::new(json).set("outputSchema", both),
            None => Splice::new(json).remove("outputSchema"),
        };
        splice.apply().map(Cow::into_owned)
    };
    with_both.map_or(listed, Cow::Owned)
}

/// A schema that is this or that of a call that goes on as a job; nothing, where that cannot be said.
fn or_handed_over(schema: Json<'_>) -> Option<String> {
    let mut own: Map<String, Value> = serde_json::from_str(schema.get()).ok()?;
    let mut both = Map::new();
    if let Some(dialect) = own.remove("$schema") {
        both.insert("$schema".to_owned(), dialect);
    }
    if !own.values().all(refers_to_definitions) || PLACES.iter().any(|place| own.contains_key(*place)) {
        return None;
    }
    for definitions in DEFINITIONS {
        if let Some(definitions_of_it) = own.remove(definitions) {
            both.insert(definitions.to_owned(), definitions_of_it);
        }
    }
    both.insert("type".to_owned(), "object".into());
    both.insert("anyOf".to_owned(), json!([own, handed_over_schema()]));
    Some(Value::from(both).to_string())
}

/// Whether everything in it that refers to another place refers to a definition, which stays where it was.
fn refers_to_definitions(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(place)) => DEFINITIONS.iter().any(|definitions| {
                place.strip_prefix("#/").and_then(|rest| rest.strip_prefix(definitions)).is_some()
            }),
            (name, Value::String(_)) if PLACES.contains(&name) => false,
            (_, value) => refers_to_definitions(value),
        }),
        Value::Array(items) => items.iter().all(refers_to_definitions),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unhang_tools::ArgumentSchema;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn a_schema_takes_both_and_nothing_else() {
        let schema = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"n":{"type":"integer"}},"properties":{"x":{"$ref":"#/$defs/n"}},"required":["x"],"additionalProperties":false}"##;
        let both = or_handed_over(json(schema)).expect("it can be said");
        let both = ArgumentSchema::new(serde_json::from_str(&both).expect("JSON")).expect("a schema");
        let job = json!({ "job_id": "abcdefgh2345", "status": "running", "message": "m", "next_steps": [] });
        for (value, fits) in [
            (json!({ "x": 1 }), true),
            (job, true),
            (json!({ "x": "1" }), false),
            (json!({ "x": 1, "y": 1 }), false),
            (json!({}), false),
        ] {
            assert_eq!(both.check(&value).is_ok(), fits, "{value}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_is_left_out() {
        for schema in [
            r##"{"type":"object","properties":{"next":{"$ref":"#"}}}"##,
            r##"{"type":"object","properties":{"next":{"$ref":"#/properties/x"}}}"##,
            r##"{"type":"object","$id":"https://x/y","properties":{}}"##,
        ] {
            let tool = format!(r#"{{"name":"a","inputSchema":{{}},"outputSchema":{schema}}}"#);
            assert_eq!(listed(json(&tool), false, true), r#"{"name":"a","inputSchema":{}}"#, "{schema}");
        }
    }

    #[test]
    fn who_can_ask_for_tasks_is_told_of_them_and_who_gets_them_is_told_nothing_else() {
        let tool = r#"{"name":"a", "outputSchema":{"type":"object"}}"#;
        let of = |may_ask, gets_words| listed(json(tool), may_ask, gets_words).into_owned();
        assert_eq!(of(false, false), tool);
        assert!(of(false, true).contains("anyOf"));
        let core = of(true, true);
        assert!(
            core.contains(r#""execution":{"taskSupport":"optional"}"#) && core.contains("anyOf"),
            "{core}"
        );
        assert!(!of(false, true).contains("execution"));
        let plain = r#"{ "name":"a" }"#;
        assert_eq!(listed(json(plain), false, true), plain);
    }
}
