//! The offer of a session to its client: the tools of unhang itself, and everything that is known of the servers.
//!
//! Theory of operation. If calls may become jobs, the listed tools of servers say more than the servers do. A tool may declare the schema
//! of its structured results, and some clients refuse any other result. The result that turns a call into a job has another schema, so the
//! tool is listed with both.
//!
//! Invariants
//!
//! - A tool whose calls never become jobs is listed unchanged.
//! - A schema keeps its meaning beside the added one. A schema for which that is impossible is left out.

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use unhang_bridge::{
    Splice,
    tasks::{self, Support, with_task_support},
};
use unhang_wire::{Json, text_member};

use super::{
    answers::implementation,
    client_request::{ClientRequest, invalid_params},
    owners::{missing, no_such},
    promotion::PromotionReply,
    session_calls::SessionCall,
    tasks::JobCapabilities,
    unlisted,
};
use unhang_core::{
    config::LIST_LIFE, fault::FaultKind, list::SKILLS, promotion::Promotion, refusal::ErrorReport,
    revision::Revision,
};
use unhang_gateway::{
    KnownServers, RequestTimeouts,
    route::{apps::is_for_views_alone, extensions::have_tasks},
};
use unhang_jobs::large_numbers;
use unhang_tools::{Definition, ToolListing, handed_over_schema};
use unhang_upstream::client::ServerList;

/// Members of a schema that its other parts refer to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Keywords by which a schema refers to others in a way that breaks if the schema is moved into another.
const SCOPE_KEYWORDS: [&str; 6] =
    ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"];

/// The hint for a client whose headers differ from its arguments.
const HEADER_HINT: &str =
    "list the tools again, and repeat in a header each argument that the tool marks with `x-mcp-header`";

/// The offer of a session; see the module's text.
#[derive(Debug)]
pub(super) struct SessionCatalog {
    /// The tools of unhang itself.
    tools: Arc<[Definition]>,
    /// Whether the own tools may change later.
    tools_change: bool,
    /// The knowledge about the servers behind unhang, if there are any.
    servers: Option<KnownServers>,
    /// The instructions to the client about the whole, for its model.
    instructions: Option<Arc<str>>,
}

impl SessionCatalog {
    /// Makes a catalog of these tools, without servers.
    pub(super) fn new(tools: Arc<[Definition]>, instructions: Option<Arc<str>>) -> SessionCatalog {
        SessionCatalog { tools, tools_change: false, servers: None, instructions }
    }

    /// Adds servers behind it.
    pub(super) fn put_servers(&mut self, known: KnownServers) {
        self.servers = Some(known);
    }

    /// Updates the knowledge about the servers, and returns the earlier knowledge. Without servers it returns `None`, and keeps the new
    /// knowledge all the same.
    pub(super) fn update_servers(&mut self, known: &KnownServers) -> Option<KnownServers> {
        self.servers.replace(known.clone())
    }

    /// Returns the knowledge about the servers behind unhang, if there are any.
    pub(super) fn servers(&self) -> Option<&KnownServers> {
        self.servers.as_ref()
    }

    /// Declares that the own tools may change later.
    pub(super) fn tools_may_change(&mut self) {
        self.tools_change = true;
    }

    /// Replaces the own tools. Returns whether they differ from the earlier ones.
    pub(super) fn change_tools(&mut self, tools: Arc<[Definition]>) -> bool {
        let are_others = *self.tools != *tools;
        if are_others {
            self.tools = tools;
        }
        are_others
    }

    /// Makes the result of `initialize`, in a session of this revision.
    pub(super) fn handshake(&self, revision: Revision, jobs: JobCapabilities) -> Map<String, Value> {
        let mut result = Map::new();
        result.insert("protocolVersion".to_owned(), revision.name().into());
        result.insert("serverInfo".to_owned(), implementation());
        self.introduce(revision, jobs, &mut result);
        result
    }

    /// Makes the result of `server/discover`, in this stateless revision.
    pub(super) fn discovery(&self, revision: Revision, jobs: JobCapabilities) -> Map<String, Value> {
        // Servers that are not listed yet may declare extensions.
        let mut result = cacheable(if self.has_lists() { LIST_LIFE } else { Duration::ZERO });
        result.insert("supportedVersions".to_owned(), Revision::stateless().into());
        self.introduce(revision, jobs, &mut result);
        result
    }

    /// Adds the members that both results share: the capabilities and the instructions.
    fn introduce(&self, revision: Revision, jobs: JobCapabilities, result: &mut Map<String, Value>) {
        let mut capabilities = match &self.servers {
            None if !self.tools_change => json!({ "tools": {} }),
            None => json!({ "tools": { "listChanged": true } }),
            // Servers that are added later offer prompts and resources to sessions that begin later.
            Some(known) if known.timeouts.is_empty() => json!({ "tools": { "listChanged": true } }),
            Some(_) => json!({
                "tools": { "listChanged": true },
                "prompts": { "listChanged": true },
                "resources": { "listChanged": true, "subscribe": true },
                "completions": {},
                "logging": {},
            }),
        };
        if self.has_tasks(jobs) {
            jobs.offer_tasks(revision, &mut capabilities);
        }
        let extensions = self.servers.iter().flat_map(|known| known.catalog.extensions());
        for (name, settings) in extensions.filter(|(name, _)| *name != tasks::EXTENSION) {
            capabilities["extensions"][name] = settings.clone();
        }
        result.insert("capabilities".to_owned(), capabilities);
        if let Some(instructions) = &self.instructions {
            result.insert("instructions".to_owned(), (&**instructions).into());
        }
    }

    /// Returns whether there are servers behind the session.
    pub(super) fn has_servers(&self) -> bool {
        self.servers.as_ref().is_some_and(|known| !known.timeouts.is_empty())
    }

    /// Returns whether a server offers skills (SEP-2640).
    pub(super) fn has_skills(&self) -> bool {
        self.servers.as_ref().is_some_and(|known| known.catalog.extensions().contains_key(SKILLS))
    }

    /// Returns whether a server offers skills, or may do so once it is listed.
    pub(super) fn may_have_skills(&self) -> bool {
        self.has_skills() || !self.has_lists()
    }

    /// Returns whether a task can exist here: a tool of unhang itself that is a job, a call of a server's tool, or a task of a server.
    fn has_tasks(&self, jobs: JobCapabilities) -> bool {
        let timeouts = self.servers.iter().flat_map(|known| known.timeouts.values());
        let promotes = || jobs.promotes && timeouts.into_iter().any(RequestTimeouts::promotes);
        let passes_on = || {
            let has_tasks = |known: &KnownServers| have_tasks(known.catalog.extensions());
            (jobs.promotes || jobs.are_of_windows) && self.servers.as_ref().is_some_and(has_tasks)
        };
        jobs.are_there && (self.tools.iter().any(|tool| tool.is_job) || promotes() || passes_on())
    }

    /// Makes the error for a method that is not offered.
    pub(super) fn no_such_method(&self, method: &str, revision: Revision) -> ErrorReport<'static> {
        let happened =
            format!("unhang does not offer the method `{method}` in the revision {}", revision.name());
        let hint = match self.servers {
            None => "it offers tools/list and tools/call",
            Some(_) => "it offers the methods of tools, prompts, resources and completions",
        };
        ErrorReport { kind: FaultKind::MethodNotFound, summary: happened, hint }
    }

    /// Returns whether unhang itself has this tool.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// Returns whether a server has this tool and unhang itself does not.
    pub(super) fn is_of_a_server(&self, name: &str) -> bool {
        !self.has_tool(name) && self.servers.as_ref().is_some_and(|known| known.tool(name).is_some())
    }

    /// Returns the error for a call of this tool of a server whose headers differ from its arguments (2026-07-28, SEP-2243).
    pub(super) fn header_mismatch(
        &self,
        tool: &str,
        request: &ClientRequest<'_>,
    ) -> Option<ErrorReport<'static>> {
        let received = request.param_headers.as_ref()?;
        let wanted = self.servers.as_ref()?.catalog.param_headers(tool)?;
        let arguments = request.params.and_then(|params| params.member("arguments"));
        let summary = wanted.check(arguments, received).err()?;
        Some(ErrorReport { kind: FaultKind::HeaderMismatch, summary, hint: HEADER_HINT })
    }

    /// Returns whether unhang itself has this tool and it is a job.
    pub(super) fn is_job(&self, name: &str) -> bool {
        self.tools.iter().any(|known| known.name == name && known.is_job)
    }

    /// Returns whether lists can be answered: every server has been listed, or there are none.
    pub(super) fn has_lists(&self) -> bool {
        self.servers.as_ref().is_none_or(|known| known.has_lists)
    }

    /// Makes the result of a request for a list, of unhang's own items and those of the servers.
    pub(super) fn list(&self, list: ServerList, call: &SessionCall, jobs: JobCapabilities) -> String {
        let own = |listing: ToolListing| {
            let own =
                self.tools.iter().filter(move |tool| list == ServerList::Tools && tool.listing == listing);
            own.map(|tool| own_tool(tool, call.revision, jobs))
        };
        let mut items: Vec<String> = own(ToolListing::First).collect();
        let known = self.servers.as_ref();
        let others = known.map_or("[]", |known| known.catalog.list(list, call.revision.era()));
        let copes_with_tasks = call.promotion.promotion_reply != PromotionReply::Words;
        let others = match list {
            ServerList::Tools if jobs.promotes => {
                self.with_jobs_in_mind(others, call.revision, copes_with_tasks)
            }
            _ => Cow::Borrowed(others),
        };
        let hides_some = list == ServerList::Tools
            && !call.shows_views
            && known.is_some_and(|known| known.catalog.has_tools_for_views_alone());
        let others = if hides_some { without_tools_for_views(&others).into() } else { others };
        let others = others.strip_prefix('[').and_then(|others| others.strip_suffix(']'));
        items.extend(others.filter(|others| !others.is_empty()).map(str::to_owned));
        items.extend(own(ToolListing::Last));
        let (member, items) = (list.member(), items.join(","));
        if call.revision.is_stateless() {
            // The servers' items may change at any time, and a client without a subscription does not hear of that.
            let life = if known.is_some() { Duration::ZERO } else { LIST_LIFE };
            format!(
                r#"{{"_meta":{{"io.modelcontextprotocol/serverInfo":{}}},"cacheScope":"private","resultType":"complete","{member}":[{items}],"ttlMs":{}}}"#,
                implementation(),
                life.as_millis()
            )
        } else {
            format!(r#"{{"{member}":[{items}]}}"#)
        }
    }

    /// Returns the tools of servers as they are listed for this revision; `list` is their array.
    fn with_jobs_in_mind<'a>(
        &self,
        list: &'a str,
        revision: Revision,
        copes_with_tasks: bool,
    ) -> Cow<'a, str> {
        let Some(list_json) = Json::new(list.as_bytes()) else { return list.into() };
        let (mut changed, mut tools) = (false, Vec::new());
        list_json.each_element(|tool| {
            let listed = match self.may_become_a_job(tool) {
                // A client that supports tasks gets a task, and never words.
                true => listed(tool, revision == Revision::V2025November, !copes_with_tasks),
                false => Cow::Borrowed(tool.get()),
            };
            changed |= matches!(listed, Cow::Owned(_));
            tools.push(listed);
        });
        if changed { format!("[{}]", tools.join(",")).into() } else { list.into() }
    }

    fn may_become_a_job(&self, tool: Json<'_>) -> bool {
        let Some((known, name)) = self.servers.as_ref().zip(text_member(tool, "name")) else { return false };
        let Some(owner) = known.catalog.tool(&name) else { return false };
        let promotion = known.timeouts.get(&owner.server);
        let promotion = promotion.map(|timeouts: &RequestTimeouts| timeouts.of_promotion(&owner.name));
        promotion.unwrap_or_default() != Promotion::Off
    }

    /// Returns the names of all tools that clients may see.
    pub(super) fn tool_names(&self) -> impl Iterator<Item = &str> {
        let own = self.tools.iter().filter(|tool| tool.listing != ToolListing::Nowhere);
        let own = own.map(|tool| tool.name.as_str());
        own.chain(self.servers.iter().flat_map(|known| known.catalog.tool_names()))
    }

    /// Makes the hint at a listed name for a request about an unlisted tool or prompt.
    pub(super) fn hint(&self, method: &str, unlisted_name: &str) -> Option<Box<str>> {
        match method {
            "tools/call" => unlisted::hint(unlisted_name, self.tool_names()),
            "prompts/get" => {
                let prompt_names = self.servers.iter().flat_map(|known| known.catalog.prompt_names());
                unlisted::hint(unlisted_name, prompt_names)
            }
            _ => None,
        }
    }

    /// Returns the own tool and the arguments of a `tools/call`. Fails with the error for the client if they are not valid.
    pub(super) fn called(
        &self,
        request: &ClientRequest<'_>,
        name: Option<String>,
    ) -> Result<(String, Map<String, Value>), ErrorReport<'static>> {
        let Some(name) = name else {
            return Err(invalid_params("`tools/call` names no tool".to_owned(), "give params.name"));
        };
        if !self.has_tool(&name) {
            if let Some(error_report) = self.servers.as_ref().and_then(|known| missing(known, "tool", &name))
            {
                return Err(error_report);
            }
            return Err(no_such("tool", "tools/list names all tools", &name, self.tool_names()));
        }
        let arguments = request.params.and_then(|params| params.member("arguments"));
        let arguments = arguments.filter(|arguments| arguments.get() != "null");
        let text = arguments.map_or("", |arguments| arguments.get());
        large_numbers::check(text.as_bytes(), &format!("the arguments of `{name}`")).map_err(|happened| {
            invalid_params(happened, "unhang changes no number, so it does not accept this one")
        })?;
        let arguments = match arguments {
            None => Map::new(),
            Some(arguments) => serde_json::from_str(arguments.get()).map_err(|error| {
                let happened = format!("unhang cannot read the arguments of `{name}`: {error}");
                invalid_params(happened, "give params.arguments as an object, or leave it out")
            })?,
        };
        Ok((name, arguments))
    }
}

/// Returns a list of tools without those that are for views alone (MCP Apps), which a model is not to call.
fn without_tools_for_views(list: &str) -> String {
    let mut kept = Vec::new();
    if let Some(list) = Json::new(list.as_bytes()) {
        list.each_element(|tool| kept.extend((!is_for_views_alone(tool)).then(|| tool.get())));
    }
    format!("[{}]", kept.join(","))
}

/// Makes the members that let a client of a stateless revision cache a result for so long.
fn cacheable(life: Duration) -> Map<String, Value> {
    let mut result = Map::new();
    let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
    result.insert("ttlMs".to_owned(), life.into());
    result.insert("cacheScope".to_owned(), "private".into());
    result
}

/// Writes a tool of unhang itself as it is listed for this revision.
fn own_tool(tool: &Definition, revision: Revision, jobs: JobCapabilities) -> String {
    let listed = tool.to_json(revision).to_string();
    let can_be_a_task = tool.is_job && jobs.are_there && revision == Revision::V2025November;
    let with_support = Json::new(listed.as_bytes())
        .filter(|_| can_be_a_task)
        .and_then(|tool| Some(with_task_support(tool, Support::Optional)?.into_owned()));
    with_support.unwrap_or(listed)
}

/// Writes a tool whose calls may become jobs as it is listed. The flags stand for clients that may ask for a task (2025-11-25), and for
/// clients that get a job in words.
pub fn listed(tool: Json<'_>, may_be_asked_for_a_task: bool, gets_words: bool) -> Cow<'_, str> {
    let with_support = may_be_asked_for_a_task.then(|| with_task_support(tool, Support::Optional)).flatten();
    let listed = with_support.unwrap_or(Cow::Borrowed(tool.get()));
    let Some(schema) = tool.member("outputSchema").filter(|_| gets_words) else { return listed };
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

/// Makes a schema that allows results of this schema or of a promoted call. Returns `None` if the schemas cannot be combined.
fn or_handed_over(schema: Json<'_>) -> Option<String> {
    let mut own: Map<String, Value> = serde_json::from_str(schema.get()).ok()?;
    let mut both = Map::new();
    if let Some(dialect) = own.remove("$schema") {
        both.insert("$schema".to_owned(), dialect);
    }
    if !own.values().all(refers_to_definitions)
        || SCOPE_KEYWORDS.iter().any(|keyword| own.contains_key(*keyword))
    {
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

/// Returns whether all references in it are to definitions, which keep their place.
fn refers_to_definitions(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(reference)) => DEFINITIONS.iter().any(|definitions| {
                reference.strip_prefix("#/").and_then(|rest| rest.strip_prefix(definitions)).is_some()
            }),
            (name, Value::String(_)) if SCOPE_KEYWORDS.contains(&name) => false,
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
