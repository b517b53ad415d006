//! Every key of the configuration file, declared once: its name, its type and its purpose. The reader warns about keys that are not
//! declared here, and the JSON schema for editors is made of this list.

use serde_json::{Map, Value, json};

use unhang_core::promotion::Promotion;

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

const fn key(name: &'static str, kind: SettingKind, about: &'static str) -> SettingKey {
    SettingKey { name, kind, about }
}

/// The bounds of how many jobs may run at the same time.
pub(super) const CONCURRENT: (u32, u32) = (1, 10_000);
/// The bounds of a percentage.
pub(super) const PERCENT: (u32, u32) = (1, 100);

/// The top level of the file.
pub(super) const FILE: &[SettingKey] = &[
    key("jobs", SettingKind::Section(JOBS), "How background jobs are run."),
    key("state", SettingKind::Section(STATE_SHARING), "Whose the named state is."),
    key("tools", SettingKind::Sections(TOOL), "Commands that are offered as tools, by name."),
    key("servers", SettingKind::Sections(SERVER), "MCP servers, by name."),
    key(
        "separator",
        SettingKind::Text,
        "What stands behind `unhang serve` between the prefix of a server and the names of its tools and prompts. Default: __.",
    ),
    key(
        "clients",
        SettingKind::Sections(CLIENT),
        "MCP clients that are known better here than unhang knows them, by what `clientInfo.name` is or begins with.",
    ),
    key("http", SettingKind::Section(HTTP), "Who may ask `unhang serve --http`."),
    key("gateway", SettingKind::Section(GATEWAY), "What the servers behind `unhang serve` have together."),
    key(
        "telemetry",
        SettingKind::Section(TELEMETRY),
        "Where `unhang serve` tells of requests, as traces of OpenTelemetry.",
    ),
];

/// The keys of `[clients.NAME]`.
pub(super) const CLIENT: &[SettingKey] = &[key(
    "call-clock",
    SettingKind::DurationOr(NO_CLOCK),
    "After how long it gives a tools/call up; none: it does not. Default: what docs/concepts/slow-calls.md says of it.",
)];

/// The word for a client without a clock.
pub(super) const NO_CLOCK: &[&str] = &["none"];

/// The keys of `[gateway]`.
pub(super) const GATEWAY: &[SettingKey] = &[
    key(
        "max-in-flight",
        SettingKind::Whole(COUNT),
        "Requests with all servers at the same time; others wait for their turn. Default: 4096.",
    ),
    key(
        "max-waiting",
        SettingKind::Whole(COUNT),
        "Requests that wait for their turn because of that; further ones are refused. Default: 4096.",
    ),
    key(
        "max-instances",
        SettingKind::Whole(COUNT),
        "Instances of servers with `per-session` that run at the same time, of all sessions; further ones are refused. A client that \
         has a token has half of them at most. Default: 32.",
    ),
];

/// The keys of `[telemetry]`.
pub(super) const TELEMETRY: &[SettingKey] = &[
    key(
        "otlp",
        SettingKind::Text,
        "The URL of a collector that takes OTLP over HTTP, as http://127.0.0.1:4318; `/v1/traces` is put behind it. Default: \
         OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else OTEL_EXPORTER_OTLP_ENDPOINT, else nobody is told.",
    ),
    key(
        "headers",
        SettingKind::Texts,
        "What goes along with every post to it. Default: OTEL_EXPORTER_OTLP_HEADERS.",
    ),
    key(
        "service-name",
        SettingKind::Text,
        "What we are called there. Default: OTEL_SERVICE_NAME, else unhang.",
    ),
];

/// The keys of `[http]`.
pub(super) const HTTP: &[SettingKey] = &[
    key(
        "tokens",
        SettingKind::TextsOrSections(TOKEN),
        "Each lets in whoever sends it as `Authorization: Bearer TOKEN`; at least 16 characters, best as ${VARIABLE}. Needed \
         where other machines can ask. { token = \"${VARIABLE}\", operator = true } is one whose bearer also sees at /status what servers \
         have written to stderr and what went wrong with them. Default: nobody is asked who they are.",
    ),
    key(
        "allowed-hosts",
        SettingKind::List,
        "Names under which it is asked, beside the address itself, as those that a reverse proxy has.",
    ),
    key(
        "allowed-origins",
        SettingKind::List,
        "Origins of pages that may ask, as in https://app.example.org. Default: that of the host and port that is asked alone.",
    ),
    key(
        "sse",
        SettingKind::Flag,
        "Whether clients of 2024-11-05 are served too, by the HTTP+SSE of that revision at /sse and /messages. Default: false.",
    ),
    key(
        "message-memory",
        SettingKind::Size,
        "What bodies of requests, until they are answered, and replies that are sent whole, until they are taken, may have of memory \
         together; at least five quarters of max-message. Default: 128MiB, or twice max-message where that is more.",
    ),
    key(
        "weights",
        SettingKind::Wholes(WEIGHT),
        "How many times as much as others a client may have where clients wait for one another, by what the log calls it: `token 1` \
         is the first of `tokens`, `subject NAME` whom the authorization server calls so. Default: 1 each.",
    ),
    key("tls", SettingKind::Section(TLS), "What proves to clients who we are. Default: plain HTTP."),
    key("oauth", SettingKind::Section(RESOURCE), "Who gives tokens besides: we as an OAuth resource server."),
];

/// The keys of a table in `tokens` of `[http]`.
pub(super) const TOKEN: &[SettingKey] = &[
    key("token", SettingKind::Text, "The token; at least 16 characters, best as ${VARIABLE}."),
    key("operator", SettingKind::Flag, "Whether its bearer looks after the servers. Default: false."),
];

/// The keys of `[http.oauth]`.
pub(super) const RESOURCE: &[SettingKey] = &[
    key(
        "issuer",
        SettingKind::Text,
        "The URL of the authorization server, exactly as it calls itself; its metadata leads to its keys.",
    ),
    key(
        "resource",
        SettingKind::Text,
        "Our URL as clients know it, as in https://mcp.example.org/mcp; tokens must have it as their audience.",
    ),
    key("scopes", SettingKind::List, "What a token must be good for, each of them. Default: nothing."),
];

/// The keys of `[http.tls]`.
pub(super) const TLS: &[SettingKey] = &[
    key(
        "certificate",
        SettingKind::Text,
        "The file of the certificate and of those that lead to its authority, as PEM.",
    ),
    key("key", SettingKind::Text, "The file of its key, as PEM, which nobody else may read."),
];

/// The keys of `[jobs]`.
pub(super) const JOBS: &[SettingKey] = &[
    key(
        "max-concurrent",
        SettingKind::Whole(CONCURRENT),
        "Jobs that run at the same time. Default: half the processors, at least 2.",
    ),
    key("retention", SettingKind::Duration, "How long a finished job is kept. Default: 7d."),
    key(
        "memory-limit",
        SettingKind::Whole(PERCENT),
        "Percent of the memory in use above which no job is started. Default: 90.",
    ),
    key(
        "free-disk",
        SettingKind::Size,
        "Free space on the disk below which no job is started. Default: 64MiB.",
    ),
    key(
        "log-limit",
        SettingKind::Size,
        "What is kept of each output stream of a job; at least 64KiB. Default: 8MiB.",
    ),
    key(
        "timeout",
        SettingKind::Duration,
        "How long a job may run, where its tool says nothing else. Default: no limit.",
    ),
    key(
        "join-same-call",
        SettingKind::Flag,
        "Whether a call of a server's tool that has become a job is joined by the same call of the same client and session, with the same \
         arguments, in the place of running twice: where the tool declares `readOnlyHint` or `idempotentHint`, or says so under \
         [servers.NAME.tools.TOOL]. Default: false.",
    ),
];

/// The keys of `[state]`.
pub(super) const STATE_SHARING: &[SettingKey] = &[key(
    "shared",
    SettingKind::List,
    "Fields that all callers have together, and `unhang state` with them. Default: none; each field is its caller's, as jobs are.",
)];

/// The keys of `[tools.NAME]`.
pub(super) const TOOL: &[SettingKey] = &[
    key("description", SettingKind::Text, "What the tool does, for the model that is to call it."),
    key(
        "command",
        SettingKind::Command,
        "The program and its arguments, never a shell line. {args.NAME}, {job_dir} and {job_id} are replaced inside of \
         items; an item, or a list of items within the list, whose argument is absent is left out.",
    ),
    key(
        "option-arguments",
        SettingKind::List,
        "Arguments whose values may begin with `-` where an item of `command` begins with them and no `--` stands before it: the command \
         may take them for its options. Default: none.",
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
        "Files that are written into {job_dir} before the start, each from a state field.",
    ),
    key(
        "results",
        SettingKind::Text,
        "The file in {job_dir} in which the command leaves its results as JSON.",
    ),
    key(
        "state",
        SettingKind::Section(STATE),
        "The state field that the results go to when the job completes.",
    ),
    key("timeout", SettingKind::Duration, "How long the command may run. Default: what [jobs] says."),
    key("cwd", SettingKind::Text, "The folder the command runs in. Default: the folder of this file."),
    key("env", SettingKind::Texts, "Variables for the command, besides a small inherited set."),
    key("inherit-env", SettingKind::Flag, "Whether the command gets all of the environment. Default: false."),
    key("log-limit", SettingKind::Size, "What is kept of each output stream. Default: what [jobs] says."),
];

/// The keys of `[servers.NAME]`.
pub(super) const SERVER: &[SettingKey] = &[
    key("command", SettingKind::Text, "The program of a server on stdio."),
    key("args", SettingKind::List, "Its arguments."),
    key("env", SettingKind::Texts, "Its own variables, besides a small inherited set."),
    key("inherit-env", SettingKind::Flag, "Whether it gets all of the environment. Default: false."),
    key("cwd", SettingKind::Text, "The folder it runs in. Default: the folder of this file."),
    key("url", SettingKind::Text, "Where a server is that is spoken to over HTTP."),
    key(
        "transport",
        SettingKind::Word(TRANSPORTS),
        "http: Streamable HTTP; sse: the old way. Default: what it answers to.",
    ),
    key("headers", SettingKind::Texts, "What goes along with every request to it."),
    key(
        "oauth",
        SettingKind::Section(OAUTH),
        "What is known of us where tokens for it are given; for `unhang login`.",
    ),
    key("limits", SettingKind::Section(LIMITS), "Its limits."),
    key(
        "prefix",
        SettingKind::Text,
        "What the names of its tools and prompts begin with behind `unhang serve`; empty: nothing. Default: its name.",
    ),
    key(
        "allow",
        SettingKind::List,
        "Its tools that are offered behind `unhang serve`, by their own names, with `*`, `?` and `[a-z]` as in a shell. \
         Default: all.",
    ),
    key(
        "deny",
        SettingKind::List,
        "Its tools that are not offered there, whatever `allow` says. Default: none.",
    ),
    key(
        "tools",
        SettingKind::Sections(SERVER_TOOL),
        "What is said of single tools there, by their own names.",
    ),
    key(
        "idle-timeout",
        SettingKind::Duration,
        "After how long without a request it is stopped there, until the next one; 1s at least. Default: it stays.",
    ),
    key(
        "per-session",
        SettingKind::Flag,
        "Whether each session of a client there has an instance of its own, started when it is first used and ended with the session: \
         for a server that keeps state of one client. Default: false, all share one.",
    ),
    key(
        "quiet",
        SettingKind::Flag,
        "Whether every notification is kept from clients while a call runs. Default: false.",
    ),
];

/// The keys of `[servers.NAME.tools.TOOL]`.
pub(super) const SERVER_TOOL: &[SettingKey] = &[
    key("description", SettingKind::Text, "What it does, in the place of what its server says."),
    key("call-timeout", SettingKind::Duration, "A call of it in all. Default: the server's."),
    key(
        "promote-after",
        SettingKind::DurationOr(&Promotion::WORDS),
        "When a call of it becomes a job; off: never; by-clock: by its client's clock. Default: the server's.",
    ),
    key(
        "job-timeout",
        SettingKind::Duration,
        "A call of it that has become a job, in all. Default: the server's.",
    ),
    key(
        "join-same-call",
        SettingKind::Flag,
        "Whether the same call of it, in the same session, joins the job that it has become, whatever the tool declares. Default: where \
         [jobs] says so and the tool declares that it may be called twice.",
    ),
    key(
        "max-in-flight",
        SettingKind::Whole(COUNT),
        "Calls of it at the same time, of all clients together; others wait within their own limit. Default: no limit.",
    ),
];

/// The transports of `[servers.NAME]`.
pub(super) const TRANSPORTS: &[&str] = &["http", "sse"];

/// The keys of `[servers.NAME.oauth]`.
pub(super) const OAUTH: &[SettingKey] = &[
    key(
        "client-id",
        SettingKind::Text,
        "As its authorization server knows us. Default: we register ourselves, where it lets us.",
    ),
    key("client-secret", SettingKind::Text, "What only we and it know, best as ${VARIABLE}."),
    key(
        "client-metadata-url",
        SettingKind::Text,
        "Where a client id metadata document is, for authorization servers that read one in place of a registration.",
    ),
    key("scopes", SettingKind::List, "What to ask for. Default: what the server says."),
];

/// The keys of `[servers.NAME.limits]`.
pub(super) const LIMITS: &[SettingKey] = &[
    key("start-timeout", SettingKind::Duration, "From the start to the first answer. Default: 55s."),
    key("request-timeout", SettingKind::Duration, "Any request but tools/call. Default: 30s."),
    key("call-timeout", SettingKind::Duration, "A tools/call in all. Default: 5m."),
    key(
        "promote-after",
        SettingKind::DurationOr(&Promotion::WORDS),
        "When a tools/call becomes a job, in any case before its client gives it up; off: never. Default: by-clock, which is 80 % of the \
         client's clock, or 45s where that is not known.",
    ),
    key("job-timeout", SettingKind::Duration, "A tools/call that has become a job, in all. Default: 2h."),
    key("eof-grace", SettingKind::Duration, "For calls in flight after the client has ended. Default: 5s."),
    key("stop-grace", SettingKind::Duration, "Between closing stdin, SIGTERM and SIGKILL. Default: 1s."),
    key("max-message", SettingKind::Size, "One message in either direction. Default: 64MiB."),
    key(
        "max-in-flight",
        SettingKind::Whole(COUNT),
        "Requests with it at the same time, of all clients of `unhang serve` together; others wait for their turn. Default: 1000; \
         over HTTP 200 at most.",
    ),
    key(
        "max-waiting",
        SettingKind::Whole(COUNT),
        "Requests that wait for their turn at it there; further ones are refused. Default: 1000.",
    ),
    key("queue-bytes", SettingKind::Size, "What may wait for a peer that does not read. Default: 16MiB."),
    key(
        "restart-delay",
        SettingKind::Duration,
        "Pause before the first restart; it doubles up to 30s. Default: 250ms.",
    ),
    key(
        "breaker-failures",
        SettingKind::Whole(COUNT),
        "Failures in a row after which it is left alone. Default: 5.",
    ),
    key("breaker-cooldown", SettingKind::Duration, "For how long it is left alone. Default: 30s."),
    key(
        "health-interval",
        SettingKind::Duration,
        "Idle time before it is asked whether it lives. Default: 30s.",
    ),
    key(
        "stderr-tail",
        SettingKind::Size,
        "Last bytes of its stderr kept for error messages. Default: 64KiB.",
    ),
    key("stderr-log", SettingKind::Size, "Its log on the disk. Default: 10MiB."),
];

/// The bounds of a client's weight.
pub(super) const WEIGHT: (u32, u32) = (1, 1000);
/// The bounds of a count.
pub(super) const COUNT: (u32, u32) = (1, u32::MAX);

/// The keys of `[tools.NAME.state]`.
pub(super) const STATE: &[SettingKey] = &[
    key("field", SettingKind::Text, "The name of the state field."),
    key(
        "pointer",
        SettingKind::Text,
        "JSON pointer (RFC 6901) to the part of the results that is taken. Default: all of them.",
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
        .collect();
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
