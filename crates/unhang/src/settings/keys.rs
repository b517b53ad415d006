//! Every key of the configuration file, declared once: its name, its type and its purpose. The reader warns about keys that are not
//! declared here, and the JSON schema for editors is made of this list.

use serde_json::{Map, Value, json};

use super::{limit_keys::LIMITS, workers::WORKER};
use unhang_core::{config::MAX_SHARED_INSTANCES, insertion::InsertEach, promotion::Promotion};

/// A key and the kind of its value.
pub(super) struct SettingKey {
    pub name: &'static str,
    pub kind: SettingKind,
    pub about: &'static str,
}

/// The kind of a value.
pub(super) enum SettingKind {
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A length of time, such as `30s`.
    Duration,
    /// A length of time, or one of these words.
    DurationOr(&'static [&'static str]),
    /// A size, such as `8MiB`.
    Size,
    /// `true` or `false`.
    Flag,
    /// A list of texts.
    List,
    /// A list of texts and of tables with these keys.
    TextsOrSections(&'static [SettingKey]),
    /// A whole number between these.
    Whole((u32, u32)),
    /// A table of texts.
    Texts,
    /// A table of whole numbers between these.
    Wholes((u32, u32)),
    /// A list of texts. A list of texts within it stands for items that are left out together.
    Command,
    /// A JSON schema.
    Schema,
    /// A table with these keys.
    Section(&'static [SettingKey]),
    /// A table of tables with these keys. The author chooses their names.
    Sections(&'static [SettingKey]),
}

pub(super) const fn key(name: &'static str, kind: SettingKind, about: &'static str) -> SettingKey {
    SettingKey { name, kind, about }
}

/// The bounds of how many jobs may run at the same time.
pub(super) const CONCURRENT: (u32, u32) = (1, 10_000);
/// The bounds of how often a job may be claimed.
pub(super) const ATTEMPTS: (u32, u32) = (1, 1000);
/// The bounds of a percentage.
pub(super) const PERCENT: (u32, u32) = (1, 100);

/// The top level of the file.
pub(super) const FILE: &[SettingKey] = &[
    key("jobs", SettingKind::Section(JOBS), "The settings of background jobs."),
    key(
        "worker",
        SettingKind::Section(WORKER),
        "The settings of `unhang worker`, which runs jobs of a store that many machines share.",
    ),
    key("state", SettingKind::Section(STATE_SHARING), "The settings of the named state."),
    key("tools", SettingKind::Sections(TOOL), "Commands that unhang offers as tools, by name."),
    key("servers", SettingKind::Sections(SERVER), "MCP servers, by name."),
    key(
        "separator",
        SettingKind::Text,
        "The text between the prefix of a server and the names of its tools and prompts, behind `unhang \
         serve`. Default: __.",
    ),
    key(
        "clients",
        SettingKind::Sections(CLIENT),
        "Facts about MCP clients that go before those of unhang. The name of a client is its \
         `clientInfo.name`, or the beginning of it.",
    ),
    key("http", SettingKind::Section(HTTP), "The settings of `unhang serve --http`, such as tokens."),
    key(
        "gateway",
        SettingKind::Section(GATEWAY),
        "The limits of all servers behind `unhang serve` together.",
    ),
    key(
        "telemetry",
        SettingKind::Section(TELEMETRY),
        "The collector to which `unhang serve` sends traces of requests, as OpenTelemetry.",
    ),
];

/// The keys of `[clients.NAME]`.
pub(super) const CLIENT: &[SettingKey] = &[key(
    "call-clock",
    SettingKind::DurationOr(NO_CLOCK),
    "The timeout of the client for a tools/call; none: it has no timeout. Default: the value in \
     docs/concepts/slow-calls.md.",
)];

/// The word for a client without a clock.
pub(super) const NO_CLOCK: &[&str] = &["none"];

/// The keys of `[gateway]`.
pub(super) const GATEWAY: &[SettingKey] = &[
    key(
        "max-in-flight",
        SettingKind::Whole(COUNT),
        "Requests to all servers at the same time; other requests wait for their turn. Default: 4096.",
    ),
    key(
        "max-waiting",
        SettingKind::Whole(COUNT),
        "Requests that may wait for their turn because of `max-in-flight`; unhang refuses further \
         requests. Default: 4096.",
    ),
    key(
        "max-instances",
        SettingKind::Whole(COUNT),
        "Instances of servers with `per-session` that run at the same time, of all sessions; unhang \
         refuses further instances. A client with a token can have half of them at most. Default: 32.",
    ),
];

/// The keys of `[telemetry]`.
pub(super) const TELEMETRY: &[SettingKey] = &[
    key(
        "otlp",
        SettingKind::Text,
        "The URL of a collector that accepts OTLP over HTTP, such as http://127.0.0.1:4318; unhang \
         appends `/v1/traces`. Default: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else \
         OTEL_EXPORTER_OTLP_ENDPOINT, else unhang sends no traces.",
    ),
    key(
        "headers",
        SettingKind::Texts,
        "The headers of each POST to the collector. Default: OTEL_EXPORTER_OTLP_HEADERS.",
    ),
    key(
        "service-name",
        SettingKind::Text,
        "The name of unhang in the traces. Default: OTEL_SERVICE_NAME, else unhang.",
    ),
];

/// The keys of `[http]`.
pub(super) const HTTP: &[SettingKey] = &[
    key(
        "tokens",
        SettingKind::TextsOrSections(TOKEN),
        "The tokens that clients send as `Authorization: Bearer TOKEN`; at least 16 characters, best as \
         ${VARIABLE}. unhang requires tokens if other machines can reach it. With { token = \
         \"${VARIABLE}\", operator = true }, the client also sees at /status the stderr and the failures \
         of the servers. Default: clients need no token.",
    ),
    key(
        "allowed-hosts",
        SettingKind::List,
        "Host names that clients may use in addition to the address itself, such as the names of a \
         reverse proxy.",
    ),
    key(
        "allowed-origins",
        SettingKind::List,
        "Origins of web pages that may send requests, such as https://app.example.org. Default: only the \
         host and port of the request itself.",
    ),
    key(
        "sse",
        SettingKind::Flag,
        "Whether unhang also serves clients of 2024-11-05, by the HTTP+SSE of that revision at /sse and \
         /messages. Default: false.",
    ),
    key(
        "message-memory",
        SettingKind::Size,
        "The memory for the bodies of unanswered requests, and for whole replies that clients have not \
         read yet, together; at least five quarters of max-message. Default: 128MiB, or twice \
         max-message if that is more.",
    ),
    key(
        "weights",
        SettingKind::Wholes(WEIGHT),
        "The weight of a client while clients wait for one another: 2 is twice the share of others. The \
         names of clients are those in the log: `token 1` is the first of `tokens`, and `subject NAME` \
         is a subject of the authorization server. Default: 1 each.",
    ),
    key("tls", SettingKind::Section(TLS), "The certificate and the key for TLS. Default: plain HTTP."),
    key(
        "oauth",
        SettingKind::Section(RESOURCE),
        "An authorization server whose tokens unhang also accepts, as an OAuth resource server.",
    ),
];

/// The keys of a table in `tokens` of `[http]`.
pub(super) const TOKEN: &[SettingKey] = &[
    key("token", SettingKind::Text, "The token; at least 16 characters, best as ${VARIABLE}."),
    key(
        "operator",
        SettingKind::Flag,
        "Whether the client with this token is an operator of the servers. Default: false.",
    ),
];

/// The keys of `[http.oauth]`.
pub(super) const RESOURCE: &[SettingKey] = &[
    key(
        "issuer",
        SettingKind::Text,
        "The URL of the authorization server, exactly as in its metadata, where unhang finds its keys.",
    ),
    key(
        "resource",
        SettingKind::Text,
        "The URL of unhang as clients know it, such as https://mcp.example.org/mcp; tokens must have it \
         as their audience.",
    ),
    key("scopes", SettingKind::List, "The scopes that a token must have, all of them. Default: none."),
];

/// The keys of `[http.tls]`.
pub(super) const TLS: &[SettingKey] = &[
    key(
        "certificate",
        SettingKind::Text,
        "The PEM file with the certificate and the certificates that lead to its authority.",
    ),
    key("key", SettingKind::Text, "The PEM file with its key, which only the owner can read."),
];

/// The keys of `[jobs]`.
pub(super) const JOBS: &[SettingKey] = &[
    key(
        "max-concurrent",
        SettingKind::Whole(CONCURRENT),
        "Jobs that run at the same time. Default: half the processors, at least 2.",
    ),
    key("retention", SettingKind::Duration, "The time for which unhang keeps an ended job. Default: 7d."),
    key(
        "memory-limit",
        SettingKind::Whole(PERCENT),
        "The percentage of memory in use above which unhang starts no job. Default: 90.",
    ),
    key(
        "free-disk",
        SettingKind::Size,
        "The free space on the disk below which unhang starts no job. Default: 64MiB.",
    ),
    key(
        "log-limit",
        SettingKind::Size,
        "The size that unhang keeps of each output stream of a job; at least 64KiB. Default: 8MiB.",
    ),
    key(
        "timeout",
        SettingKind::Duration,
        "The time that a job may run, unless its tool sets another. Default: no limit.",
    ),
    key(
        "store",
        SettingKind::Text,
        "The database that many machines share for their jobs, such as \
         postgres://USER@HOST/DATABASE. Workers run the jobs (`unhang worker`). Default: none; jobs run \
         on this machine.",
    ),
    key(
        "artifacts",
        SettingKind::Text,
        "The object store for large files of jobs in `store`: s3://BUCKET/PREFIX, or the absolute path of \
         a folder that all machines share. Default: none; such files go to the database.",
    ),
    key(
        "artifact-inline",
        SettingKind::Size,
        "The size of a file above which it goes to the object store. Default: 1MiB.",
    ),
    key(
        "artifact-max",
        SettingKind::Size,
        "The size of the largest file that goes to the database. Default: 64MiB, and no file of a job has \
         more.",
    ),
    key(
        "join-same-call",
        SettingKind::Flag,
        "Whether a repeated call of a server's tool joins the job of the first call and does not run \
         twice. Client and arguments must be the same. The tool must declare `readOnlyHint` or \
         `idempotentHint`, or [servers.NAME.tools.TOOL] must allow it. Default: false.",
    ),
];

/// The keys of `[state]`.
pub(super) const STATE_SHARING: &[SettingKey] = &[key(
    "shared",
    SettingKind::List,
    "Fields that all callers and `unhang state` share. Default: none; each field belongs to its caller, \
     as jobs do.",
)];

/// The keys of `[tools.NAME]`.
pub(super) const TOOL: &[SettingKey] = &[
    key("description", SettingKind::Text, "The description of the tool, for the model that calls it."),
    key(
        "command",
        SettingKind::Command,
        "The program and its arguments, never a shell line. unhang replaces {args.NAME}, {job_dir} and \
         {job_id} inside of items. It leaves out an item, or a list of items within the list, if the \
         argument in it is absent.",
    ),
    key(
        "option-arguments",
        SettingKind::List,
        "Arguments whose values may begin with `-` at the beginning of an item of `command`, without a \
         `--` before it: the command may take them for its options. Default: none.",
    ),
    key(
        "mode",
        SettingKind::Word(MODES),
        "job: answer with an id at once; child: answer when the command ends. Default: child.",
    ),
    key("input-schema", SettingKind::Schema, "JSON schema of the arguments. Default: no arguments."),
    key(
        "inputs",
        SettingKind::Texts,
        "Files that unhang writes into {job_dir} before the start, each from a state field.",
    ),
    key(
        "results",
        SettingKind::Text,
        "The file in {job_dir} to which the command writes its results as JSON.",
    ),
    key(
        "state",
        SettingKind::Section(STATE),
        "The state field that receives the results when the job completes.",
    ),
    key("timeout", SettingKind::Duration, "The time that the command may run. Default: the value in [jobs]."),
    key("cwd", SettingKind::Text, "The working folder of the command. Default: the folder of this file."),
    key("env", SettingKind::Texts, "Variables for the command, in addition to a small inherited set."),
    key(
        "inherit-env",
        SettingKind::Flag,
        "Whether the command inherits the whole environment. Default: false.",
    ),
    key(
        "log-limit",
        SettingKind::Size,
        "The size that unhang keeps of each output stream. Default: the value in [jobs].",
    ),
    key(
        "labels",
        SettingKind::List,
        "The labels that a worker must have to run the tool, if machines share their jobs. Default: none.",
    ),
    key(
        "repeatable",
        SettingKind::Flag,
        "Whether the tool may run again if its worker is lost. Default: false.",
    ),
    key(
        "max-attempts",
        SettingKind::Whole(ATTEMPTS),
        "How often a repeatable tool may begin for one job. Default: 3.",
    ),
    key(
        "function",
        SettingKind::Text,
        "What the Python package writes: the function that the command calls, as module:function. Workers \
         know the tool by it.",
    ),
];

/// The keys of `[servers.NAME]`.
pub(super) const SERVER: &[SettingKey] = &[
    key("command", SettingKind::Text, "The program of a server that speaks over stdio."),
    key("args", SettingKind::List, "The arguments of the program."),
    key("env", SettingKind::Texts, "Variables for the server, in addition to a small inherited set."),
    key(
        "inherit-env",
        SettingKind::Flag,
        "Whether the server inherits the whole environment. Default: false.",
    ),
    key("cwd", SettingKind::Text, "The working folder of the server. Default: the folder of this file."),
    key("url", SettingKind::Text, "The URL of a server that speaks over HTTP."),
    key(
        "transport",
        SettingKind::Word(TRANSPORTS),
        "http: Streamable HTTP; sse: HTTP+SSE of 2024-11-05. Default: the transport to which the server \
         answers.",
    ),
    key("headers", SettingKind::Texts, "The headers of each request to the server."),
    key(
        "oauth",
        SettingKind::Section(OAUTH),
        "The data of unhang as a client of the server's authorization server; for `unhang login`.",
    ),
    key("limits", SettingKind::Section(LIMITS), "The limits of the server."),
    key(
        "prefix",
        SettingKind::Text,
        "The beginning of the names of its tools and prompts behind `unhang serve`; empty: no prefix. \
         Default: the name of the server.",
    ),
    key(
        "allow",
        SettingKind::List,
        "The tools of the server that `unhang serve` offers, by their own names, with `*`, `?` and \
         `[a-z]` as in a shell. Default: all.",
    ),
    key(
        "deny",
        SettingKind::List,
        "The tools of the server that `unhang serve` does not offer, also if `allow` has them. Default: \
         none.",
    ),
    key(
        "tools",
        SettingKind::Sections(SERVER_TOOL),
        "Settings for single tools of the server, by their own names.",
    ),
    key(
        "idle-timeout",
        SettingKind::Duration,
        "The time without a request after which `unhang serve` stops the server until the next request; \
         at least 1s. Default: the server keeps running.",
    ),
    key(
        "per-session",
        SettingKind::Flag,
        "Whether each session of a client has its own instance of the server, which starts at its first \
         use and ends with the session: for a server that keeps state of one client. Default: false, all \
         sessions share one instance.",
    ),
    key(
        "instances",
        SettingKind::Whole(INSTANCES),
        "The processes of the server that `unhang serve` may have at the same time for each era of its \
         clients, each with one request at a time: for a server that keeps no state between calls and \
         works on one call at a time. Another process starts when a call has kept the running ones for \
         longer than `busy-after`, and ends after its `idle-timeout`. Default: 1, one process that has all \
         requests at the same time.",
    ),
    key(
        "era",
        SettingKind::Word(ERAS),
        "The only era in which `unhang serve` asks the server: \"legacy\" (up to 2025-11-25) or \"modern\" \
         (2026-07-28). unhang translates for other clients. Default: the era of each client; clients of \
         both eras then cost a server with a command two processes.",
    ),
    key(
        "quiet",
        SettingKind::Flag,
        "Whether unhang holds back every notification to the client while a call runs. Default: false.",
    ),
];

/// The keys of `[servers.NAME.tools.TOOL]`.
pub(super) const SERVER_TOOL: &[SettingKey] = &[
    key("description", SettingKind::Text, "The description of the tool, in place of the server's own."),
    key(
        "call-timeout",
        SettingKind::Duration,
        "The limit of a whole call of the tool. Default: the server's.",
    ),
    key(
        "promote-after",
        SettingKind::DurationOr(&Promotion::WORDS),
        "When a call of the tool becomes a job; off: never; by-clock: by its client's clock. Default: \
         the server's.",
    ),
    key(
        "job-timeout",
        SettingKind::Duration,
        "The limit of a whole call of the tool that has become a job. Default: the server's.",
    ),
    key(
        "join-same-call",
        SettingKind::Flag,
        "Whether a repeated call of the tool joins the job of the first call, \
         whatever the tool declares. Default: only if [jobs] allows it and the tool declares that it is \
         safe to repeat.",
    ),
    key(
        "max-in-flight",
        SettingKind::Whole(COUNT),
        "Calls of the tool at the same time, of all clients together; other calls wait within their own \
         limit. Default: no limit.",
    ),
];

/// The eras of the protocol, by the words of the file.
pub(super) const ERAS: &[&str] = &["legacy", "modern"];

/// The transports of `[servers.NAME]`.
pub(super) const TRANSPORTS: &[&str] = &["http", "sse"];

/// The keys of `[servers.NAME.oauth]`.
pub(super) const OAUTH: &[SettingKey] = &[
    key(
        "client-id",
        SettingKind::Text,
        "The client id of unhang at the authorization server. Default: unhang registers itself, if the \
         authorization server allows it.",
    ),
    key("client-secret", SettingKind::Text, "The secret of that client, best as ${VARIABLE}."),
    key(
        "client-metadata-url",
        SettingKind::Text,
        "The URL of a client id metadata document, for authorization servers that read one in place of a \
         registration.",
    ),
    key("scopes", SettingKind::List, "The scopes to ask for. Default: the scopes that the server names."),
];

/// The bounds of a client's weight.
pub(super) const WEIGHT: (u32, u32) = (1, 1000);
/// The bounds of the instances of a server that all sessions share.
pub(super) const INSTANCES: (u32, u32) = (1, MAX_SHARED_INSTANCES);
/// The bounds of a count.
pub(super) const COUNT: (u32, u32) = (1, u32::MAX);

/// The keys of `[tools.NAME.state]`.
pub(super) const STATE: &[SettingKey] = &[
    key("field", SettingKind::Text, "The name of the state field."),
    key(
        "pointer",
        SettingKind::Text,
        "The JSON pointer (RFC 6901) to the part of the results that the field receives. Default: all of \
         them.",
    ),
];

/// The modes of `[tools.NAME]`.
pub(super) const MODES: &[&str] = &["job", "child"];

/// Makes the JSON schema of the whole file, for editors that check and complete it.
pub fn file_schema() -> Value {
    let mut schema = section(FILE);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "unhang.toml".into();
    schema
}

fn section(keys: &[SettingKey]) -> Value {
    let properties: Map<String, Value> = keys
        .iter()
        .map(|key| {
            let mut schema = kind(&key.kind);
            schema["description"] = key.about.into();
            (key.name.to_owned(), schema)
        })
        .insert_each();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn kind(of: &SettingKind) -> Value {
    match of {
        SettingKind::Text => json!({ "type": "string" }),
        SettingKind::Word(words) => json!({ "enum": words }),
        SettingKind::Duration => {
            json!({ "type": "string", "pattern": "^[0-9].*[a-z]$", "examples": ["30s", "5m", "7d"] })
        }
        SettingKind::DurationOr(words) => {
            json!({ "anyOf": [kind(&SettingKind::Duration), { "enum": words }] })
        }
        SettingKind::Size => {
            json!({ "type": "string", "pattern": "^[0-9]+ *[kKMG]?i?B$", "examples": ["64KiB", "8MiB"] })
        }
        SettingKind::Flag => json!({ "type": "boolean" }),
        SettingKind::List => json!({ "type": "array", "items": { "type": "string" } }),
        SettingKind::TextsOrSections(keys) => {
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, section(keys)] } })
        }
        SettingKind::Whole((least, most)) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        SettingKind::Wholes((least, most)) => {
            let whole = json!({ "type": "integer", "minimum": least, "maximum": most });
            json!({ "type": "object", "additionalProperties": whole })
        }
        SettingKind::Texts => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        SettingKind::Command => {
            let text = json!({ "type": "string" });
            json!({ "type": "array", "minItems": 1, "items": { "anyOf": [text, { "type": "array", "items": text }] } })
        }
        SettingKind::Schema => json!({ "type": "object" }),
        SettingKind::Section(keys) => section(keys),
        SettingKind::Sections(keys) => json!({ "type": "object", "additionalProperties": section(keys) }),
    }
}
