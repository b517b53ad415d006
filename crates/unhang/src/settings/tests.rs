//! Files as users write them, right and wrong.

use std::{collections::BTreeMap, num::NonZeroU32};

use unhang_jobs::{document::Pointer, folder::FileName, shims::ShimCommand, submission::LOG_LIMIT};
use unhang_net::oauth::{ClientSettings, ResourceSettings};

use serde_json::{Map, Value};

use super::*;
use unhang_core::{config::MAX_WAITING_OF_ALL, limits::Limits, promotion::Promotion};
use unhang_front::http::Token;
use unhang_gateway::route::rules::{ToolRule, ToolRules};

mod foreign;

fn lookup(name: &str) -> Option<String> {
    (name == "PYTHON").then(|| "/opt/python".to_owned())
}

fn read(text: &str) -> Result<Loaded, Complaint> {
    Settings::read(text, "unhang.toml", Path::new("/project"), &lookup)
}

const EXAMPLE: &str = r#"
[jobs]
max-concurrent = 4
retention = "7d"
memory-limit = 90
join-same-call = false

[tools.simulate]
description = "Simulates the digester"
command = ["${PYTHON}", "simulate_cli.py", "--cod", "{args.cod}", ["--days", "{args.days}"]]
mode = "job"
input-schema = { type = "object", properties = { cod = { type = "number", maximum = 1.5e3 }, days = {} }, required = ["cod"] }
inputs = { "basis.json" = "basis_of_design" }
results = "results.json"
state = { field = "simulation_results", pointer = "/digester" }
timeout = "30m"
cwd = "scripts"
env = { MODEL = "${MODEL:-adm1}" }

[tools.echo]
command = ["echo"]

[servers.time]
command = "${PYTHON}"
args = ["-m", "mcp_server_time"]
env = { TZ = "UTC" }
cwd = "servers"
quiet = true
allow = ["get_*", "${MODEL:-convert}_time"]
deny = ["*_secret"]
idle-timeout = "10m"
instances = 3
limits = { call-timeout = "30s", promote-after = "20s", job-timeout = "1h", busy-after = "2s", max-message = "1MiB", max-in-flight = 7, max-waiting = 8 }

[servers.time.tools.get_time]
description = "What time it is, ${here}"
call-timeout = "2m"
promote-after = "off"
job-timeout = "3h"
join-same-call = true
max-in-flight = 1

[servers.search]
per-session = true
url = "https://example.org/mcp"
transport = "sse"
headers = { Authorization = "Bearer ${env:PYTHON}" }
oauth = { client-id = "unhang", client-secret = "${PYTHON}", client-metadata-url = "https://example.org/unhang.json", scopes = ["read", "write"] }

[http]
tokens = ["0123456789abcdef", { token = "${PYTHON}-and-a-bit-more", operator = true }]
allowed-hosts = ["MCP.example.org", "192.0.2.1", "[2001:db8::1]"]
allowed-origins = ["https://app.example.org:443", "http://localhost:3000/"]
message-memory = "96MiB"
sse = true
weights = { "token 1" = 4, "subject me" = 2 }
tls = { certificate = "cert.pem", key = "/keys/key.pem" }

[clients.cursor]
call-clock = "90s"

[clients."My Agent"]
call-clock = "none"

[clients.cline]

[gateway]
max-in-flight = 9
max-instances = 5

[http.oauth]
issuer = "https://login.example.org"
resource = "https://mcp.example.org/mcp"
scopes = ["mcp"]

[telemetry]
otlp = "http://127.0.0.1:4318"
headers = { Authorization = "Bearer ${PYTHON}" }
service-name = "ours"
"#;

#[test]
fn the_file_is_read_with_its_defaults() {
    let Loaded { settings, warnings } = read(EXAMPLE).expect("it is right");
    assert_eq!(warnings, []);
    assert_eq!((settings.jobs.max_concurrent, settings.jobs.join_same_call), (Some(4), Some(false)));
    let [simulate, echo] = &settings.tools[..] else { panic!("two tools: {:?}", settings.tools) };
    assert_eq!((&*simulate.name, simulate.mode), ("simulate", Mode::Job));
    assert_eq!(simulate.command.program(), "/opt/python");
    let command = simulate.command.fill(&Map::from_iter([("cod".to_owned(), 5.into())])).expect("they fit");
    let command: Vec<_> = command.iter().map(|word| word.render(Path::new("/jobs/x"), "x")).collect();
    assert_eq!(command, ["/opt/python", "simulate_cli.py", "--cod", "5"]);
    assert_eq!(simulate.input_schema.schema()["properties"]["cod"]["maximum"], 1500.0);
    let [(file, field)] = &simulate.inputs[..] else { panic!("one input") };
    assert_eq!((file.as_str(), field.as_str()), ("basis.json", "basis_of_design"));
    let state = simulate.state.as_ref().expect("it has one");
    assert_eq!(
        (state.field.as_str(), state.pointer.as_ref().map(Pointer::as_str)),
        ("simulation_results", Some("/digester"))
    );
    assert_eq!(simulate.results.as_ref().map(FileName::as_str), Some("results.json"));
    assert_eq!(simulate.timeout, Some(Duration::from_secs(1800)));
    assert_eq!(simulate.folder, Path::new("/project/scripts"));
    assert_eq!(simulate.environment["MODEL"], "adm1");
    assert_eq!((&*echo.name, echo.mode, &*echo.folder), ("echo", Mode::Child, Path::new("/project")));
    assert_eq!((echo.timeout, echo.log_limit), (None, LOG_LIMIT));
    assert_eq!(read("").expect("an empty file is one").settings.jobs, JobSettings::default());
    let shim = ShimCommand { program: "unhang".into(), arguments: Vec::new() };
    let mut options = EngineOptions::new("/data".into(), shim);
    settings.jobs.apply(&mut options);
    assert_eq!((options.rules.max_concurrent, options.rules.memory_limit), (4, 90.0));
}

#[test]
fn servers_are_read_with_their_limits() {
    let Loaded { settings, warnings } = read(EXAMPLE).expect("it is right");
    assert_eq!(warnings, []);
    let [time, search] = &settings.servers[..] else { panic!("two servers: {:?}", settings.servers) };
    let stdio = Transport::Stdio {
        command: "/opt/python".to_owned(),
        arguments: ["-m", "mcp_server_time"].map(str::to_owned).to_vec(),
        environment: BTreeMap::from([("TZ".to_owned(), "UTC".to_owned())]),
        inherits_environment: false,
        folder: "/project/servers".into(),
    };
    assert_eq!((&*time.name, &time.transport), ("time", &stdio));
    let mut limits = Limits::default();
    time.limits.apply(&mut limits);
    let expect = Limits {
        call_timeout: Duration::from_secs(30),
        promote_after: Promotion::After(Duration::from_secs(20)),
        job_timeout: Duration::from_secs(3600),
        busy_after: Duration::from_secs(2),
        max_message: 1 << 20,
        max_in_flight: 7,
        max_waiting: 8,
        quiet: true,
        ..Limits::default()
    };
    assert_eq!(limits, expect);
    let rules = &time.tool_rules;
    let allowed = ["get_time", "convert_time", "get_secret", "set_time"].map(|name| rules.allows(name));
    assert_eq!(allowed, [true, true, false, false]);
    let rule = ToolRule {
        description: Some("What time it is, ${here}".to_owned()),
        call_timeout: Some(Duration::from_secs(120)),
        promote_after: Some(Promotion::Off),
        job_timeout: Some(Duration::from_secs(3 * 3600)),
        max_in_flight: Some(1),
        join_same_call: Some(true),
    };
    assert_eq!(rules.tools, BTreeMap::from([("get_time".to_owned(), rule)]));
    assert_eq!(search.tool_rules, ToolRules::default());
    assert_eq!(settings.gateway.capacity().requests, Bounds { permits: 9, room: MAX_WAITING_OF_ALL });
    assert_eq!(settings.gateway.capacity().instances, 5);
    assert_eq!([time.per_session, search.per_session], [false, true]);
    assert_eq!([time.instances, search.instances], [3, 1]);
    assert_eq!((time.idle_timeout, search.idle_timeout), (Some(Duration::from_secs(600)), None));
    let http = Transport::Http {
        url: "https://example.org/mcp".to_owned(),
        headers: BTreeMap::from([("Authorization".to_owned(), "Bearer /opt/python".to_owned())]),
        dialect: Some(HttpDialect::Sse),
        oauth: ClientSettings {
            client_id: Some("unhang".to_owned()),
            client_secret: Some("/opt/python".to_owned()),
            client_metadata_url: Some("https://example.org/unhang.json".to_owned()),
            scopes: vec!["read".to_owned(), "write".to_owned()],
        },
    };
    assert_eq!((&*search.name, &search.transport), ("search", &http));
}

#[test]
fn clocks_of_clients_are_read() {
    let clocks = read(EXAMPLE).expect("it is right").settings.clocks;
    assert_eq!(clocks.call("Cursor-vscode", None), Some(Duration::from_secs(90)));
    assert_eq!(
        (clocks.call("my agent", None), clocks.call("codex", None)),
        (None, Some(Duration::from_secs(60)))
    );
    assert_eq!(clocks.call("cline", None), Some(Duration::from_secs(60)), "nothing is said of it");
    assert_eq!(read("").expect("it is right").settings.clocks, Clocks::default());
}

#[test]
fn who_may_ask_is_read() {
    let Loaded { settings, warnings } = read(EXAMPLE).expect("it is right");
    assert_eq!(warnings, []);
    let token = |text: &str| Token::new(text.to_owned()).expect("a token");
    let expect = HttpSettings {
        tokens: vec![token("0123456789abcdef"), token("/opt/python-and-a-bit-more").of_an_operator()],
        allowed_hosts: ["mcp.example.org", "192.0.2.1", "[2001:db8::1]"].map(str::to_owned).to_vec(),
        allowed_origins: ["https://app.example.org", "http://localhost:3000"].map(str::to_owned).to_vec(),
        sse: true,
        message_memory: Some(96 << 20),
        weights: [("token 1", 4), ("subject me", 2)]
            .map(|(name, weight)| (name.to_owned(), NonZeroU32::new(weight).expect("a weight")))
            .into(),
        tls: Some(TlsSettings { certificate: "/project/cert.pem".into(), key: "/keys/key.pem".into() }),
        oauth: Some(ResourceSettings {
            issuer: "https://login.example.org".to_owned(),
            resource: "https://mcp.example.org/mcp".to_owned(),
            scopes: vec!["mcp".to_owned()],
        }),
    };
    assert_eq!(settings.http, expect);
    assert!(!format!("{settings:?}").contains("0123456789abcdef"));
    assert_eq!(read("").expect("an empty file is one").settings.http, HttpSettings::default());
}

#[test]
fn where_requests_are_told_is_read() {
    let telemetry = read(EXAMPLE).expect("it is right").settings.telemetry;
    assert_eq!(telemetry.otlp.as_deref(), Some("http://127.0.0.1:4318"));
    assert_eq!(telemetry.headers.expect("they are said")["Authorization"], "Bearer /opt/python");
    assert_eq!(telemetry.service_name.as_deref(), Some("ours"));
    assert_eq!(read("").expect("it is right").settings.telemetry, TelemetrySettings::default());
}

#[test]
fn what_is_wrong_with_a_token_is_told_without_the_token() {
    for (text, expect) in [
        (
            "tokens = [\"secret-secret\"]",
            "unhang.toml:2:11: http.tokens[0]: has only 13 characters; use at least 16",
        ),
        ("tokens = [\n\n\"secret secret secret\"]", "unhang.toml:4:1: http.tokens[0]: has a character that"),
        (
            "tokens = \"secret-secret-secret\"",
            "unhang.toml:2:1: http.tokens: expected a list, as in [\"${TOKEN}\"]",
        ),
        ("tokens = [7351735173517351]", "unhang.toml:2:11: http.tokens[0]: expected a text in quotes"),
        ("tokens = [\"${TEAM_TOKEN}\"]", "http.tokens[0]: the variable TEAM_TOKEN is not set"),
        ("weights = { me = 2 }", "unhang.toml:2:13: http.weights.me: is not a client"),
        ("weights = { \"token 1\" = 0 }", "http.weights.\"token 1\": "),
        ("tokens = [\"${TEAM_TOKEN:-}\"]", "http.tokens[0]: has only 0 characters"),
    ] {
        let told = read(&format!("[http]\n{text}")).expect_err(text).to_string();
        assert!(told.contains(expect) && !told.contains("secret") && !told.contains("7351"), "{told}");
    }
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_key() {
    for (text, expect) in [
        (
            "[jobs]\nretention = 7",
            "unhang.toml:2:1: jobs.retention: expected a length of time with a unit in quotes",
        ),
        ("[jobs]\nretention = \"7\"", "jobs.retention: needs a unit: 7ms, 7s or 7m?"),
        (
            "[jobs]\n\nmemory-limit = 101",
            "unhang.toml:3:1: jobs.memory-limit: expected a whole number from 1 to 100",
        ),
        ("[jobs]\nlog-limit = \"8\"", "jobs.log-limit: needs a unit"),
        ("jobs = 3", "unhang.toml:1:1: jobs: expected a table, found the number 3"),
        ("[jobs", "unhang.toml:1:6: is not valid TOML: "),
        ("separator = \"::\"", "unhang.toml:1:1: separator: `::` must be one to eight letters, digits,"),
        ("separator = \"\"", "separator: `` must be one to eight letters"),
        ("[tools.a]\nmode = \"job\"", "unhang.toml:1:8: tools.a: `command` is missing"),
        ("[tools.a]\ncommand = \"run it\"", "tools.a.command: expected a list, found the text \"run it\""),
        ("[tools.a]\ncommand = []", "tools.a.command: is empty"),
        (
            "[tools.a]\ncommand = [\"a\", 1]",
            "tools.a.command[1]: expected a text in quotes, found the number 1",
        ),
        ("[tools.a]\ncommand = [\"${NOWHERE}\"]", "tools.a.command[0]: the variable NOWHERE is not set"),
        ("[tools.a]\ncommand = [\"a\"]\nmode = \"direct\"", "tools.a.mode: expected \"job\" or \"child\""),
        ("[tools.\"a b\"]\ncommand = [\"a\"]", "tools.\"a b\": is not a name for a tool"),
        ("[tools.a]\ncommand = [\"a\"]\nresults = \"../x\"", "`../x` cannot be a file of a job"),
        ("[tools.a]\ncommand = [\"a\"]\nresults = \"error.json\"", "`error.json` cannot be a file of a job"),
        (
            "[tools.a]\ncommand = [\"a\"]\nresults = \"input.json\"",
            "`input.json` cannot be a file of a tool's job",
        ),
        (
            "[tools.a]\ncommand = [\"a\"]\ninputs = { \"input.json\" = \"c\" }",
            "`input.json` cannot be a file of a tool's job",
        ),
        ("[tools.a]\ncommand = [\"a\"]\ninputs = { \"a/b\" = \"c\" }", "`a/b` cannot be a file of a job"),
        ("[tools.a]\ncommand = [\"a\"]\ninputs = { a = \"../c\" }", "`../c` is not a name of a state field"),
        ("[tools.a]\ncommand = [\"a\"]\nstate = { field = \"f\" }", "`state` needs `results`"),
        (
            "[tools.a]\ncommand = [\"a\"]\nresults = \"r\"\nstate = { field = \"f\", pointer = \"a\" }",
            "unhang.toml:4:24: tools.a.state.pointer: `a` is not a JSON pointer",
        ),
        (
            "[tools.a]\ncommand = [\"a\"]\ninput-schema = { type = \"string\" }",
            "must have `type = \"object\"`",
        ),
        (
            "[tools.a]\ncommand = [\"a\"]\ninput-schema = { maximum = inf }",
            "a number that JSON does not have",
        ),
        ("[tools.a]\ncommand = [\"a\\u0000\"]", "zero byte"),
        (
            "[tools.a]\ncommand = [\"a\",\n\"{args.b}\"]",
            "unhang.toml:3:1: tools.a.command[1]: `{args.b}` is not one of the `properties` of input-schema",
        ),
        (
            "[tools.a]\ncommand = [\"a\", [\"b\", [\"c\"]]]",
            "tools.a.command[1][1]: expected a text in quotes, found a list",
        ),
        (
            "[tools.a]\ncommand = [\"a\"]\ninput-schema = { properties = { a = { type = \"int\" } } }",
            "unhang.toml:3:1: tools.a.input-schema: is not a usable JSON schema: `/properties/a/type`: ",
        ),
        ("[servers.a]\n[servers]\nb = 1", "servers.a: `command` or `url` is missing"),
        ("[servers]\nb = 1", "servers.b: expected a table"),
        (
            "[servers.a]\ncommand = \"a\"\nurl = \"https://b\"",
            "unhang.toml:3:1: servers.a.url: a server has a command or a URL",
        ),
        ("[servers.a]\ncommand = \"\"", "servers.a.command: is empty"),
        ("[servers.a]\nurl = \"b\"", "`b` is not a URL that begins with http:// or https://"),
        ("[servers.a]\nurl = \"https://b\"\nargs = []", "servers.a.args: is for a server with a command"),
        ("[servers.a]\ncommand = \"a\"\nheaders = {}", "servers.a.headers: is for a server with a URL"),
        ("[servers.a]\nurl = \"https://b\"\nheaders = { A = \"a\\nb\" }", "a header cannot have"),
        ("[servers.a]\ncommand = \"a\"\noauth = {}", "servers.a.oauth: is for a server with a URL"),
        ("[servers.a]\ncommand = \"a\"\ninstances = 0", "instances: expected a whole number from 1 to 64"),
        ("[servers.a]\ncommand = \"a\"\ninstances = 65", "instances: expected a whole number from 1 to 64"),
        (
            "[servers.a]\ncommand = \"a\"\ninstances = \"2\"",
            "instances: expected a whole number from 1 to 64",
        ),
        (
            "[servers.a]\nurl = \"https://b\"\ninstances = 2",
            "servers.a.instances: is for a server with a command, which unhang can start more than once; this \
             one has a URL, and answers as many calls at a time as it can",
        ),
        (
            "[servers.a]\ncommand = \"a\"\nper-session = true\ninstances = 2",
            "servers.a.instances: is for a server that all sessions share; with `per-session`, each session \
             has its own instance",
        ),
        ("[servers.a]\ncommand = \"a\"\nlimits.busy-after = 1", "servers.a.limits.busy-after: "),
        (
            "[servers.a]\nurl = \"https://b\"\noauth = { client-secret = \"c\" }",
            "unhang.toml:3:11: servers.a.oauth.client-secret: is the secret of a client, but the \
             `client-id` is missing",
        ),
        (
            "[servers.a]\nurl = \"https://b\"\noauth = { client-metadata-url = \"https://c/\" }",
            "oauth.client-metadata-url: must be an https:// URL with a path",
        ),
        (
            "[servers.a]\nurl = \"https://b\"\noauth = { client-metadata-url = \"http://c/d\" }",
            "oauth.client-metadata-url: must be an https:// URL with a path",
        ),
        ("[servers.a]\nurl = \"https://b\"\noauth = { scopes = \"c\" }", "oauth.scopes: expected a list"),
        ("[servers.a]\nurl = \"https://${HOST}\"", "the variable HOST is not set"),
        ("[servers.a]\ncommand = \"a\"\ninherit-env = 1", "expected `true` or `false`, found the number 1"),
        (
            "[servers.a]\ncommand = \"a\"\nlimits = { call-timeout = \"30\" }",
            "limits.call-timeout: needs a unit: 30ms, 30s or 30m?",
        ),
        (
            "[servers.a]\ncommand = \"a\"\nlimits = { call-timeout = 30 }",
            "expected a length of time with a unit",
        ),
        (
            "[servers.a]\ncommand = \"a\"\nallow = [\"b*\", \"c[\"]",
            "unhang.toml:3:16: servers.a.allow[1]: `c[` is not a pattern: invalid range pattern at its \
             character 2",
        ),
        (
            "[servers.a]\ncommand = \"a\"\nidle-timeout = \"999ms\"",
            "unhang.toml:3:1: servers.a.idle-timeout: must be at least 1s",
        ),
        ("[servers.a]\ncommand = \"a\"\ndeny = \"b\"", "servers.a.deny: expected a list"),
        (
            "[servers.a]\ncommand = \"a\"\n[servers.a.tools.b]\nmax-in-flight = 0",
            "unhang.toml:4:1: servers.a.tools.b.max-in-flight: expected a whole number from 1",
        ),
        (
            "[servers.a]\ncommand = \"a\"\ntools.b.call-timeout = 3",
            "servers.a.tools.b.call-timeout: expected a length of time with a unit",
        ),
        (
            "[servers.a]\ncommand = \"a\"\ntools.b.promote-after = 3",
            "servers.a.tools.b.promote-after: expected a length of time with a unit in quotes, such as \"30s\", or \"off\"",
        ),
        (
            "[servers.a]\ncommand = \"a\"\nlimits = { promote-after = \"never\" }",
            "unhang.toml:3:12: servers.a.limits.promote-after: `never` is not a length of time; write a \
             number with a unit",
        ),
        ("[jobs]\njoin-same-call = \"no\"", "jobs.join-same-call: expected `true` or `false`, found"),
        (
            "[http]\nallowed-hosts = [\"a:80\"]",
            "unhang.toml:2:18: http.allowed-hosts[0]: `a:80` is not a host name",
        ),
        (
            "[clients.cursor]\ncall-clock = 90",
            "unhang.toml:2:1: clients.cursor.call-clock: expected a length of time with a unit in \
             quotes, such as \"30s\" or \"5m\", found the number 90; or write \"none\"",
        ),
        (
            "[clients.cursor]\ncall-clock = \"90\"",
            "clients.cursor.call-clock: needs a unit: 90ms, 90s or 90m?; or write \"none\"",
        ),
        ("[clients.a]\n[clients.A]", "unhang.toml:2:10: clients.A: occurs twice"),
        ("[clients.\" \"]", "clients.\" \": is not a name of a client"),
        ("[clients]\ncursor = \"90s\"", "clients.cursor: expected a table"),
        ("[telemetry]\notlp = \"a:4317\"", "telemetry.otlp: `a:4317` is not a URL that begins with"),
        ("[telemetry]\nheaders = { a = \"b\\u0001\" }", "telemetry.headers.a: has a character that"),
        ("[http]\nallowed-hosts = [\"https://a\"]", "`https://a` is not a host name alone"),
        ("[http]\nallowed-hosts = [\"*.a\"]", "`*.a` is not a host name alone"),
        ("[http]\nallowed-hosts = [\"2001:db8::1\"]", "`2001:db8::1` is not a host name alone"),
        ("[http]\nallowed-origins = [\"*\"]", "http.allowed-origins[0]: `*` is not an origin of a page"),
        ("[http]\nallowed-origins = [\"https://a/b\"]", "`https://a/b` is not an origin of a page"),
        ("[http]\ntls = { key = \"a\" }", "unhang.toml:2:1: http.tls: `certificate` is missing"),
        ("[http]\ntls = { key = \"\", certificate = \"a\" }", "http.tls.key: is empty"),
        ("[http.oauth]\nissuer = \"https://a\"", "unhang.toml:1:7: http.oauth: `resource` is missing"),
        (
            "[http.oauth]\nissuer = \"http://a\"\nresource = \"https://b\"",
            "unhang.toml:2:1: http.oauth.issuer: `http://a` must be an https:// URL, or a URL on this \
             machine",
        ),
        (
            "[http.oauth]\nissuer = \"https://a\"\nresource = \"https://b?c\"",
            "unhang.toml:3:1: http.oauth.resource: must not have a user name",
        ),
        (
            "[http.oauth]\nissuer = \"https://a\"\nresource = \"https://b\"\nscopes = [\"c d\"]",
            "unhang.toml:4:1: http.oauth.scopes: may have only ASCII",
        ),
    ] {
        let told = read(text).expect_err(text).to_string();
        assert!(told.contains(expect), "{told}\n{expect}");
    }
}

#[test]
fn what_has_no_effect_is_told() {
    let text =
        "[job]\n[tools.a]\ncommand = [\"a\"]\ncomand = 1\n[servers.time]\ncommand = \"uvx\"\narg = [\"x\"]
[servers.b]\nbusy-after = \"1s\"\ncommand = \"b\"\ndeny = [\"d*\"]\ntools = { c = { max-inflight = 1 }, d = {} }";
    let Loaded { settings, warnings } = read(text).expect("nothing is wrong");
    let told: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "unhang.toml:1:2: job: is not known and has no effect; did you mean `jobs`?",
            "unhang.toml:4:1: tools.a.comand: is not known and has no effect; did you mean `command`?",
            "unhang.toml:7:1: servers.time.arg: is not known and has no effect; did you mean `args`?",
            "unhang.toml:9:1: servers.b.busy-after: is not known and has no effect; did you mean `limits.busy-after`?",
            "unhang.toml:12:17: servers.b.tools.c.max-inflight: is not known and has no effect; did you mean `max-in-flight`?",
            "unhang.toml:12:37: servers.b.tools.d: is not offered, because of `allow` and `deny`, so \
             this has no effect",
        ]
    );
    assert_eq!(settings.servers[0].name, "time");
}

#[test]
fn the_schema_of_the_file_knows_what_the_reader_knows() {
    let schema = jsonschema::validator_for(&file_schema()).expect("it is a schema");
    let json = |text: &str| {
        let table = DeTable::parse(text).expect("it is TOML");
        let source = SettingsFile { file: "", text, lookup: &lookup, warnings: RefCell::default() };
        let all = Section::open(&source, String::new(), 0, table.get_ref(), FILE);
        let part = |name| all.get(name).map(|field| field.object().expect("a table"));
        let parts = ["jobs", "tools", "servers", "clients", "http"];
        Value::from(
            parts
                .map(|name| (name.to_owned(), part(name).unwrap_or_default().into()))
                .into_iter()
                .collect::<Map<_, _>>(),
        )
    };
    let told: Vec<_> = schema.iter_errors(&json(EXAMPLE)).map(|error| error.to_string()).collect();
    assert_eq!(told, [""; 0]);
    for wrong in [
        "[jobs]\nretention = 7",
        "[jobs]\nretain = 1",
        "[tools.a]\ncommand = \"a\"",
        "[jobs]\nlog-limit = \"8\"",
        "[servers.a]\nargs = \"a\"",
        "[servers.a]\nquiet = 1",
        "[servers.a]\noauth = { scopes = \"c\" }",
        "[servers.a]\nlimits = { call-timeout = 30 }",
        "[servers.a]\nlimits = { promote-after = \"never\" }",
        "[servers.a]\nallow = \"b\"",
        "[servers.a]\ntools.b.max-in-flight = 0",
        "[servers.a]\ntools.b.limit = 1",
        "[clients.a]\ncall-clock = \"never\"",
        "[clients.a]\nclock = \"1m\"",
        "[http]\ntokens = \"a\"",
        "[http]\ntoken = [\"a\"]",
        "[http]\ntls = { cert = \"a\" }",
    ] {
        assert!(!schema.is_valid(&json(wrong)), "{wrong}");
    }
}
