//! `unhang::client` against real servers: side by side, withdrawn, asked, disposed of (C-10 to C-25, C-47 to C-61, L-05 to L-34).

use std::{
    fs,
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Map, Value, json, value::RawValue};
use tokio::{task::JoinSet, time::timeout};
use unhang::{
    client::{
        Client, ClientSpec, DecliningListener, Endpoint, Error, ListenerAnswer, RequestOptions,
        ServerListener, ServerPool,
    },
    fault::FaultKind,
    limits::Limits,
    process::{
        lifeline,
        server::{LifelineCommand, ServerSpec},
        spawn::Environment,
    },
};

use crate::harness::{PATIENCE, Sandbox, lab_program, wait_until};

mod subscriptions;

const UNHANG: &str = env!("CARGO_BIN_EXE_unhang");

/// A server of this sandbox.
pub(crate) fn spec(sandbox: &Sandbox, name: &str, program: &str, words: &[&str]) -> ClientSpec {
    let limits = Limits::default();
    let command = sandbox.unhang();
    let variables = command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let server = ServerSpec {
        program: program.into(),
        arguments: words.iter().map(Into::into).collect(),
        environment: Environment::Exactly(variables.collect()),
        folder: Some(sandbox.path().to_owned()),
        grace: limits.stop_grace,
        stop_limit: limits.stop_limit(),
        lifeline: LifelineCommand { program: UNHANG.into(), arguments: vec![lifeline::ARGUMENT.into()] },
    };
    ClientSpec {
        name: name.to_owned(),
        endpoint: Endpoint::Stdio(server),
        limits,
        listener: Arc::new(DecliningListener),
    }
}

pub(crate) fn faulty_server(sandbox: &Sandbox, name: &str, faulty_server: &[&str]) -> ClientSpec {
    spec(sandbox, name, lab_program(), &[&["zoo"], faulty_server].concat())
}

/// A server that answers each request with what a shell finds fit: `$id` and `$line` are what it was asked with.
fn scripted(sandbox: &Sandbox, cases: &str) -> ClientSpec {
    let script = format!(
        r#"say() {{ printf '%s\n' "{{\"jsonrpc\":\"2.0\",\"id\":$id,$1}}"; }}
        while IFS= read -r line; do
            id=${{line#*\"id\":}}; id=${{id%%,*}}
            case $line in
                *server/discover*) say '"error":{{"code":-32601,"message":"no"}}';;
                *'"initialize"'*) say '"result":{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"s","version":"1"}}}}';;
                *notifications/*) ;;
                {cases}
            esac
        done"#
    );
    spec(sandbox, "scripted", "sh", &["-c", &script])
}

/// A modern one.
fn stateless(sandbox: &Sandbox, cases: &str) -> ClientSpec {
    scripted(sandbox, &format!("{cases}\n")).with_discovery()
}

trait WithDiscovery {
    fn with_discovery(self) -> Self;
}

impl WithDiscovery for ClientSpec {
    fn with_discovery(mut self) -> Self {
        let Endpoint::Stdio(server) = &mut self.endpoint else { panic!("a command") };
        let script = server.arguments[1].to_string_lossy().replace(
            r#""error":{"code":-32601,"message":"no"}"#,
            r#""result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#,
        );
        server.arguments[1] = script.into();
        self
    }
}

pub(crate) fn arguments(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("an object: {other}"),
    }
}

fn text(result: &RawValue) -> String {
    let result: Value = serde_json::from_str(result.get()).expect("JSON");
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}

/// Waits for a condition while the client goes on.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let look = async {
        while !condition() {
            // Between two looks: files and /proc cannot be waited on.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("in vain: {what}"));
}

pub(crate) async fn echo(client: &Client, words: &str) -> Result<String, Error> {
    let result =
        client.call_tool("echo", arguments(json!({ "text": words })), &RequestOptions::default()).await?;
    Ok(text(&result))
}

#[tokio::test]
async fn calls_run_side_by_side_over_one_connection_and_each_gets_its_own_answer() {
    let sandbox = Sandbox::new();
    let pool = ServerPool::new([faulty_server(&sandbox, "srv", &["well-behaved"])]);
    let pid = |client: Client| async move {
        client.call_tool("pid", Map::new(), &RequestOptions::default()).await.map(|result| text(&result))
    };
    let begun = tokio::time::Instant::now();
    let slow = (0..8).map(|_| {
        let client = pool.client("srv").expect("it is known");
        async move {
            client.call_tool("sleep", arguments(json!({ "ms": 1000 })), &RequestOptions::default()).await
        }
    });
    let slow: Vec<_> = slow.map(tokio::spawn).collect();
    let quick: Vec<_> = (0..50)
        .map(|number| {
            let client = pool.client("srv").expect("it is known");
            tokio::spawn(async move { (number.to_string(), echo(&client, &number.to_string()).await) })
        })
        .collect();
    for call in quick {
        let (asked, answered) = call.await.expect("no panic");
        assert_eq!(answered.expect("an answer"), asked);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "the quick ones do not wait for eight slow ones in turn"
    );
    for call in slow {
        call.await.expect("no panic").expect("an answer");
    }
    assert!(begun.elapsed() < Duration::from_secs(6), "they slept at the same time");
    let (one, other) =
        (pid(pool.client("srv").unwrap()).await.unwrap(), pid(pool.client("srv").unwrap()).await.unwrap());
    assert_eq!(one, other, "l_54: it is one process");
    pool.dispose().await;
}

#[tokio::test]
async fn c_64_disposing_ends_every_server_at_once_as_often_as_one_likes() {
    let sandbox = Sandbox::new();
    let stubborn = ["a", "b", "c"].map(|name| faulty_server(&sandbox, name, &["ignores-everything"]));
    let pool = ServerPool::new(stubborn);
    pool.register(faulty_server(&sandbox, "good", &["well-behaved"]));
    pool.register(faulty_server(&sandbox, "never-asked", &["well-behaved"]));
    for name in ["a", "b", "c", "good"] {
        assert_eq!(echo(&pool.client(name).expect("it is known"), "x").await.expect("an answer"), "x");
    }
    let good = pool.client("good").expect("it is known");
    let (begun, call) = (
        tokio::time::Instant::now(),
        tokio::spawn({
            let client = good.clone();
            async move {
                client
                    .call_tool("sleep", arguments(json!({ "ms": 3_600_000 })), &RequestOptions::default())
                    .await
            }
        }),
    );
    let mut disposed = pool.dispose().await;
    disposed.gone.sort();
    // c_53: three seconds for each and five for all together, on a machine that may be busy.
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(
        (disposed.gone, disposed.left),
        (vec!["a".into(), "b".into(), "c".into(), "good".to_owned()], vec![])
    );
    sandbox.assert_nothing_left_within(Duration::from_secs(1));
    let Err(Error::Failure(failure)) = call.await.expect("no panic") else { panic!("there is no answer") };
    assert_eq!(failure.kind, FaultKind::ShuttingDown, "c_49: whoever waits is told");
    assert!(pool.dispose().await.gone.is_empty(), "c_56: there is nothing left to do");
    assert!(good.dispose().await, "c_61");
    assert!(matches!(pool.client("good"), Err(Error::Disposed)), "c_16");
    assert_eq!(
        pool.client("good").unwrap_err().to_string(),
        "the MCP service is not available: it was disposed of",
        "c_25"
    );
}

#[tokio::test]
async fn whoever_stops_waiting_withdraws_the_request() {
    let sandbox = Sandbox::new();
    let said = sandbox.path().join("said");
    let words = ["tee", said.to_str().unwrap(), "/dev/null", "--", lab_program(), "zoo", "well-behaved"];
    let client = Client::start(faulty_server(&sandbox, "srv", &words));
    client.ready().await.expect("it is ready");
    let options = RequestOptions::default();
    let call = client.call_tool("sleep", arguments(json!({ "ms": 3_600_000 })), &options);
    assert!(timeout(Duration::from_millis(300), call).await.is_err());
    assert_eq!(echo(&client, "next").await.expect("an answer"), "next");
    let cancels = || fs::read_to_string(&said).is_ok_and(|said| said.contains("notifications/cancelled"));
    wait_until("the server is told", PATIENCE, cancels);
    // l_28: ids count up from 1.
    let said = fs::read_to_string(&said).expect("it is there");
    let ids: Vec<i64> =
        said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_i64()).collect();
    assert_eq!(ids, (1..=i64::try_from(ids.len()).unwrap()).collect::<Vec<_>>());
    assert!(client.dispose().await);
}

#[tokio::test]
async fn l_20_a_request_may_have_a_limit_of_its_own() {
    let sandbox = Sandbox::new();
    let client = Client::start(faulty_server(&sandbox, "srv", &["well-behaved"]));
    let options = RequestOptions { timeout: Some(Duration::from_millis(200)), ..RequestOptions::default() };
    let call = client.call_tool("sleep", arguments(json!({ "ms": 3_600_000 })), &options).await;
    let Err(Error::Failure(failure)) = call else { panic!("there is no answer") };
    assert_eq!(
        (failure.kind, failure.limit),
        (FaultKind::Deadline, Some(Duration::from_millis(200))),
        "l_74: by its type"
    );
    assert_eq!(echo(&client, "next").await.expect("an answer"), "next", "nobody else is harmed");
    client.dispose().await;
}

#[tokio::test]
async fn l_55_a_server_that_died_is_started_again_when_it_is_asked_again() {
    let sandbox = Sandbox::new();
    let pool = ServerPool::new([faulty_server(&sandbox, "srv", &["well-behaved"])]);
    let client = pool.client("srv").expect("it is known");
    let died = client.call_tool("die", arguments(json!({ "code": 3 })), &RequestOptions::default()).await;
    let Err(Error::Failure(failure)) = died else { panic!("it died") };
    assert_eq!((failure.kind, failure.exit.as_deref()), (FaultKind::ServerExited, Some("exit code 3")));
    assert!(echo(&client, "x").await.is_err(), "this one stays dead");
    assert_eq!(echo(&pool.client("srv").expect("it is known"), "x").await.expect("an answer"), "x");
    pool.dispose().await;
}

#[tokio::test]
async fn c_63_the_two_tools_of_the_contract_are_there() {
    let sandbox = Sandbox::new();
    let pool = ServerPool::new([faulty_server(&sandbox, "srv", &["well-behaved"])]);
    let result = pool.use_mcp_tool("srv", "echo", r#"{"text": "x"}"#).await.expect("a result");
    assert_eq!(text(&result), "x");
    let resource = pool.access_mcp_resource("srv", "zoo://numbers/1").await.expect("a resource");
    assert!(resource.get().contains("zoo://numbers/1"), "c_18: {resource}");
    for (outcome, expect, code) in [
        (
            pool.use_mcp_tool("srv", "echo", "{").await,
            "the arguments of `echo` are not a JSON object: EOF",
            2,
        ),
        (
            pool.use_mcp_tool("srv", "echo", "[]").await,
            "the arguments of `echo` are not a JSON object: invalid type",
            2,
        ),
        (pool.use_mcp_tool("srw", "echo", "{}").await, "there is no server `srw`; did you mean `srv`?", 6),
        (pool.use_mcp_tool("srv", "nothing", "{}").await, "`srv` refused `tools/call`", 1),
    ] {
        let error = outcome.expect_err("it is none");
        assert!(error.to_string().starts_with(expect) && error.exit_code() == code, "c_26, l_34: {error}");
    }
    pool.dispose().await;
}

/// Answers every question with the same, and remembers what it was asked.
struct AnsweringListener(Mutex<Vec<String>>);

impl ServerListener for AnsweringListener {
    fn capabilities(&self) -> Map<String, Value> {
        arguments(json!({ "elicitation": {} }))
    }

    fn asked(
        &self,
        method: String,
        _params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        self.0.lock().expect("not poisoned").push(method);
        Box::pin(async { Ok(json!({ "action": "accept", "content": { "name": "Ada" } })) })
    }
}

#[tokio::test]
async fn input_that_is_required_is_given_and_the_request_made_again() {
    let sandbox = Sandbox::new();
    let wants = r#"say '"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}},"requestState":"S"}'"#;
    let cases = format!(
        r#"*'"requestState":"S"'*) case $line in *'"inputResponses":{{"q":{{"action":"accept","content":{{"name":"Ada"}}}}}}'*) say '"result":{{"resultType":"complete","content":[{{"type":"text","text":"thanks"}}]}}';; *) say '"result":{{"content":[{{"type":"text","text":"wrong"}}]}}';; esac;;
           *greedy*) {wants};;
           *tools/call*) {wants};;"#
    );
    let listener = Arc::new(AnsweringListener(Mutex::default()));
    let client = Client::start(ClientSpec { listener: listener.clone(), ..stateless(&sandbox, &cases) });
    let result = client.call_tool("x", Map::new(), &RequestOptions::default()).await.expect("a result");
    assert_eq!(
        (text(&result).as_str(), listener.0.lock().expect("not poisoned").as_slice()),
        ("thanks", &["elicitation/create".to_owned()][..])
    );
    client.dispose().await;
    // Where nobody answers, that is what is told.
    let client = Client::start(stateless(&sandbox, &cases));
    let error = client.call_tool("x", Map::new(), &RequestOptions::default()).await.expect_err("declined");
    assert!(
        error.to_string().contains("`elicitation/create` is declined: this client has no user to ask"),
        "{error}"
    );
    client.dispose().await;
}

/// Says nothing to anything.
struct SilentListener;

impl ServerListener for SilentListener {
    fn asked(
        &self,
        _method: String,
        _params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn input_that_never_comes_is_waited_for_no_longer_than_the_request() {
    let sandbox = Sandbox::new();
    let wants = r#"say '"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}}}'"#;
    let spec = stateless(&sandbox, &format!("*tools/call*) {wants};;"));
    let client = Client::start(ClientSpec { listener: Arc::new(SilentListener), ..spec });
    let soon = RequestOptions { timeout: Some(Duration::from_secs(1)), ..RequestOptions::default() };
    let call = timeout(PATIENCE, client.call_tool("x", Map::new(), &soon)).await.expect("it has a limit");
    let error = call.expect_err("nobody answers");
    assert!(
        error.exit_code() == unhang::exit::DEADLINE && error.to_string().contains("got none within 1s"),
        "{error}"
    );
    client.dispose().await;
}

#[tokio::test]
async fn an_older_server_behind_another_unhang_asks_as_often_as_it_likes() {
    let sandbox = Sandbox::new();
    let wants = r#"'"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}},"requestState":"unhang.s.1"}'"#;
    let result = r#"'"result":{"resultType":"complete","content":[{"type":"text","text":"asked"}]}'"#;
    let often = "n=$((n+1)); if [ $n -le 30 ]";
    let cases = format!("*tools/call*) {often}; then say {wants}; else say {result}; fi;;");
    let listener = Arc::new(AnsweringListener(Mutex::default()));
    let client = Client::start(ClientSpec { listener: listener.clone(), ..stateless(&sandbox, &cases) });
    let result = client.call_tool("x", Map::new(), &RequestOptions::default()).await.expect("a result");
    let questions = listener.0.lock().expect("not poisoned").len();
    assert_eq!((text(&result).as_str(), questions), ("asked", 30));
    client.dispose().await;
}

#[tokio::test]
async fn what_has_no_end_is_ended() {
    let sandbox = Sandbox::new();
    let wants = r#"say '"result":{"resultType":"input_required","requestState":"S"}'"#;
    let client = Client::start(stateless(&sandbox, &format!("*tools/call*) {wants};;")));
    let soon = RequestOptions { timeout: Some(Duration::from_secs(10)), ..RequestOptions::default() };
    let error = client.call_tool("x", Map::new(), &soon).await.expect_err("no end");
    assert!(error.to_string().starts_with("`scripted` asked for more input 10 times"), "{error}");
    client.dispose().await;
    let page = r#"say '"result":{"tools":[{"name":"t"}],"nextCursor":"again"}'"#;
    let client = Client::start(scripted(&sandbox, &format!("*tools/list*) {page};;")));
    let error = client.list_tools(&RequestOptions::default()).await.expect_err("no end");
    assert!(
        error.to_string().starts_with("`scripted` gives pages without an end to `tools/list`"),
        "{error}"
    );
    assert_eq!(error.exit_code(), unhang::exit::PROTOCOL);
    client.dispose().await;
    let client = Client::start(scripted(&sandbox, r#"*tools/list*) say '"result":{"tools":5}';;"#));
    let error = client.list_tools(&RequestOptions::default()).await.expect_err("no list");
    assert!(error.to_string().starts_with("`scripted` answered `tools/list` without a list"), "{error}");
    client.dispose().await;
}

#[tokio::test]
async fn a_server_that_does_not_read_is_not_fed_without_end() {
    let sandbox = Sandbox::new();
    let mut never = faulty_server(&sandbox, "srv", &["never-reads-stdin"]);
    never.limits.max_in_flight = 3;
    never.limits.start_timeout = Duration::from_secs(1);
    let client = Client::start(never);
    let error = client.ready().await.expect_err("it answers nothing");
    assert_eq!(error.exit_code(), unhang::exit::DEADLINE, "{error}");
    client.dispose().await;

    let mut busy = faulty_server(&sandbox, "srv", &["well-behaved"]);
    busy.limits.max_in_flight = 3;
    let client = Client::start(busy);
    client.ready().await.expect("it is ready");
    let mut calls = JoinSet::new();
    for _ in 0..4 {
        let client = client.clone();
        calls.spawn(async move {
            client.call_tool("sleep", arguments(json!({ "ms": 3_600_000 })), &RequestOptions::default()).await
        });
    }
    let first = timeout(Duration::from_secs(10), calls.join_next()).await.expect("the fourth is refused");
    let Some(Ok(Err(Error::Failure(failure)))) = first else { panic!("an error: {first:?}") };
    assert_eq!(failure.kind, FaultKind::Overloaded);
    calls.abort_all();
    client.dispose().await;
}

#[tokio::test]
async fn progress_is_seen_while_the_call_runs() {
    let sandbox = Sandbox::new();
    let client = Client::start(faulty_server(&sandbox, "srv", &["well-behaved"]));
    let (progress, mut seen) = tokio::sync::watch::channel(None);
    let options = RequestOptions { progress: Some(progress), ..RequestOptions::default() };
    let call = client.call_tool("sleep", arguments(json!({ "ms": 1000 })), &options);
    let watch = async {
        seen.changed().await.expect("it lives");
        let params: Box<RawValue> = seen.borrow().clone().expect("progress");
        serde_json::from_str::<Value>(params.get()).expect("JSON")["progress"].as_f64().expect("a number")
    };
    let (result, progress) = tokio::join!(call, watch);
    assert!(result.is_ok() && progress >= 0.0, "{result:?} {progress}");
    client.dispose().await;
}

#[tokio::test]
async fn c_72_a_client_that_is_dropped_leaves_nothing() {
    let sandbox = Sandbox::new();
    let client = Client::start(faulty_server(&sandbox, "srv", &["ignores-everything"]));
    client.ready().await.expect("it is ready");
    drop(client);
    until("it goes", || sandbox.survivors().is_empty()).await;
}

/// It ignores what it does not know, as servers of old may, and would be waited for three times as long.
#[tokio::test]
async fn a_banner_on_stderr_is_a_sign_of_life() {
    let sandbox = Sandbox::new();
    let mut silent = scripted(&sandbox, "");
    let Endpoint::Stdio(server) = &mut silent.endpoint else { panic!("a command") };
    let script = server.arguments[1].to_string_lossy();
    let script = script.replace(
        r#"*server/discover*) say '"error":{"code":-32601,"message":"no"}';;"#,
        "*server/discover*) ;;",
    );
    server.arguments[1] = format!("echo running on stdio >&2\n{script}").into();
    let begun = tokio::time::Instant::now();
    let client = Client::start(silent);
    client.ready().await.expect("it is ready");
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(8), "{took:?}");
    client.dispose().await;
}

#[tokio::test]
async fn l_47_being_ready_is_one_handshake_and_no_sleep() {
    let sandbox = Sandbox::new();
    let said: PathBuf = sandbox.path().join("said");
    let words =
        ["tee", said.to_str().unwrap(), "/dev/null", "--", lab_program(), "zoo", "slow-start", "1500"];
    let begun = tokio::time::Instant::now();
    let client = Client::start(faulty_server(&sandbox, "srv", &words));
    let session = client.ready().await.expect("it is ready");
    assert!(begun.elapsed() >= Duration::from_millis(1500) && begun.elapsed() < PATIENCE, "l_12");
    assert!(session.server_info.is_some(), "{session:?}");
    client.dispose().await;
    let said = fs::read_to_string(said).expect("it is there");
    let asked = |method: &str| said.matches(&format!("\"{method}\"")).count();
    assert!(
        asked("server/discover") == 1 && asked("initialize") <= 1,
        "l_49: nothing is asked twice (X-11): {said}"
    );
}

/// When the client comes to look, the server has gone, and its answer lies in the pipe. Which of the two is looked at first is chance.
#[tokio::test]
async fn the_answer_of_a_server_that_ends_with_it_is_not_lost() {
    for _ in 0..8 {
        let sandbox = Sandbox::new();
        let cases = r#"*tools/call*) touch begun; until [ -e go ]; do sleep 0.01; done
            say '"result":{"content":[{"type":"text","text":"last"}]}'; exit 0;;"#;
        let client = Client::start(scripted(&sandbox, cases));
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call_tool("x", Map::new(), &RequestOptions::default()).await }
        });
        until("the call has arrived", || sandbox.path().join("begun").exists()).await;
        fs::write(sandbox.path().join("go"), "").expect("a file");
        // This keeps the client's only thread, on purpose.
        let has_gone = || !sandbox.survivors().iter().any(|(_, line)| line.starts_with("sh "));
        wait_until("the server has gone", PATIENCE, has_gone);
        assert_eq!(text(&call.await.expect("no panic").expect("an answer")), "last");
        client.dispose().await;
    }
}

#[tokio::test]
async fn an_argument_that_was_begun_is_completed() {
    let sandbox = Sandbox::new();
    let client = Client::start(faulty_server(&sandbox, "srv", &["well-behaved"]));
    let reference = json!({ "type": "ref/prompt", "name": "greeting" });
    let found =
        client.complete(reference, "name", "a", &RequestOptions::default()).await.expect("it answers");
    let found: Value = serde_json::from_str(found.get()).expect("JSON");
    assert_eq!(found["completion"]["values"], json!(["ada", "alan"]));
    client.dispose().await;
}
