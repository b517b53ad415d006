//! `unhang conformance-client URL`: the client that the official conformance suite runs in each of its scenarios. Like any client, it
//! connects, lists everything, calls each tool, reads each resource, gets each prompt, and answers the server's questions.
//!
//! Invariants: the command is the client of the library and nothing else. The scenario changes nothing of its behaviour, except the calls
//! and the credentials that `MCP_CONFORMANCE_CONTEXT` hands over.

use std::{
    env, fs,
    future::Future,
    path::Path,
    pin::Pin,
    process::{self, ExitCode},
    sync::Arc,
};

use serde_json::{Map, Value, json, value::RawValue};
use unhang::{
    client::{
        Address, Client, ClientSpec, Endpoint, Error, HttpServer, ListenerAnswer, RequestOptions, ServerList,
        ServerListener, declined,
    },
    exit,
    limits::Limits,
    oauth::{
        Authorization, AuthorizationError, AuthorizationSpec, ClientSettings, Follower, RequestLimits,
        TokenStore,
    },
};
use unhang_terminal::failure::CommandFailure;

use super::engine::to_its_end;
use crate::arguments::ConformanceClient;

/// The name of the suite's server.
const SERVER: &str = "the suite";

/// Runs one scenario.
pub(super) fn run(ConformanceClient { url }: &ConformanceClient, verbose: bool) -> ExitCode {
    to_its_end(None, verbose, async || {
        let context = context()?;
        let address = Address { url: url.clone(), headers: Vec::new(), uses_proxies: false, socket: None };
        // Scenarios share no tokens.
        let tokens = env::temp_dir().join(format!("unhang-conformance-{}", process::id()));
        let authorization = Some(authorization(url, &context, &tokens)?);
        let client = Client::start(ClientSpec {
            name: SERVER.to_owned(),
            endpoint: Endpoint::Http(HttpServer { address, dialect: None, authorization }),
            limits: Limits::default(),
            listener: Arc::new(AcceptingListener),
        });
        let outcome = use_everything(&client, &context).await;
        client.dispose().await;
        // Most scenarios leave nothing there.
        let _none = fs::remove_dir_all(&tokens);
        outcome.map(|()| exit::DONE).map_err(CommandFailure::from)
    })
}

/// The client metadata document that the suite knows, and the address to which it redirects browsers. Nobody listens there.
const CLIENT_METADATA: &str = "https://conformance-test.local/client-metadata.json";
const REDIRECT: &str = "http://localhost:3000/callback";

fn authorization(url: &str, context: &Value, tokens: &Path) -> Result<Authorization, CommandFailure> {
    let known = |member: &str| context[member].as_str().map(str::to_owned);
    let limits = RequestLimits::default();
    let failed = |error: AuthorizationError| CommandFailure {
        code: exit::UNREACHABLE,
        kind: error.kind(),
        message: error.to_string(),
        hint: None,
        data: None,
    };
    Authorization::new(AuthorizationSpec {
        name: SERVER.to_owned(),
        url: url.to_owned(),
        store: TokenStore::new(tokens.to_owned()),
        settings: ClientSettings {
            client_id: known("client_id"),
            client_secret: known("client_secret"),
            client_metadata_url: Some(CLIENT_METADATA.to_owned()),
            scopes: Vec::new(),
        },
        agent: Arc::new(Follower::new(REDIRECT.to_owned(), limits).map_err(failed)?),
        limits,
    })
    .map_err(failed)
}

/// Returns the context that the suite hands over, or `null` if it hands over none.
fn context() -> Result<Value, CommandFailure> {
    match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text).map_err(|error| {
            CommandFailure::usage(format!("MCP_CONFORMANCE_CONTEXT is not JSON: {error}"), None)
        }),
        Err(_) => Ok(Value::Null),
    }
}

async fn use_everything(client: &Client, context: &Value) -> Result<(), Error> {
    let options = RequestOptions::default();
    let tools = items(client, ServerList::Tools).await?;
    let calls = match context["toolCalls"].as_array() {
        Some(calls) => calls.clone(),
        None => tools.iter().map(call).collect(),
    };
    for call in calls {
        let arguments = call["arguments"].as_object().cloned().unwrap_or_default();
        refused(client.call_tool(text(&call, "name"), arguments, &options).await)?;
    }
    for resource in items(client, ServerList::Resources).await? {
        refused(client.read_resource(text(&resource, "uri"), &options).await)?;
    }
    for prompt in items(client, ServerList::Prompts).await? {
        let names = prompt["arguments"].as_array().into_iter().flatten();
        let arguments = names.map(|argument| (text(argument, "name").to_owned(), "text".into())).collect();
        refused(client.get_prompt(text(&prompt, "name"), arguments, &options).await)?;
    }
    Ok(())
}

async fn items(client: &Client, list: ServerList) -> Result<Vec<Value>, Error> {
    let items = client.list(list, &RequestOptions::default()).await?;
    Ok(items.iter().map(|item| serde_json::from_str(item.get()).unwrap_or_default()).collect())
}

/// Passes over a server's refusal, which is not a failure of the client. Fails with any other error.
fn refused(outcome: Result<Box<RawValue>, Error>) -> Result<(), Error> {
    match outcome {
        Err(Error::Server(error)) => {
            tracing::warn!("{error}");
            Ok(())
        }
        outcome => outcome.map(drop),
    }
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// Makes a call of a tool, with arguments that its schema allows.
fn call(tool: &Value) -> Value {
    json!({ "name": tool["name"], "arguments": sample(&tool["inputSchema"]) })
}

fn sample(schema: &Value) -> Value {
    if let Some(known) = ["default", "const"].iter().find_map(|name| schema.get(name)) {
        return known.clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("integer" | "number") => 2.into(),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("string") => "text".into(),
        _ => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            properties.map(|(name, schema)| (name.clone(), sample(schema))).collect::<Map<_, _>>().into()
        }
    }
}

/// A listener that accepts every question, with the defaults that the question has (SEP-1034).
struct AcceptingListener;

impl ServerListener for AcceptingListener {
    fn capabilities(&self) -> Map<String, Value> {
        Map::from_iter([("elicitation".to_owned(), json!({ "form": {} }))])
    }

    fn asked(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        Box::pin(async move {
            if method != "elicitation/create" {
                return Err(declined(&method));
            }
            let params: Value =
                params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
            Ok(json!({ "action": "accept", "content": sample(&params["requestedSchema"]) }))
        })
    }
}
