//! Answers of clients to questions of servers that are over the limit: the server hears at once that no answer comes.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use crate::{
    gateway::{finish, window},
    gateway_http,
    harness::{Sandbox, Web},
};

/// A server of 2025-11-25 whose only tool asks something, and tells the code of the error that comes in place of an answer.
const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) call=$id
      echo '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}' ;;
    *'"id":"q"'*) code=$(printf '%s' "$line" | sed -n 's/.*"code":\(-[0-9]*\).*/\1/p')
      id=$call; answer "{\"content\":[{\"type\":\"text\",\"text\":\"$code\"}]}" ;;
    *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
  esac
done
"#;

/// The limit of messages, and the time in which the server hears of one that is over it.
const LIMIT: &str = "64KiB";
const SOON: Duration = Duration::from_secs(10);

fn configured() -> Sandbox {
    let sandbox = Sandbox::with_jobs();
    let path = sandbox.path().join("server.sh");
    fs::write(&path, SERVER).expect("a file");
    let config = format!("[servers.srv]\ncommand = \"sh\"\nargs = [{path:?}]\n");
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    sandbox
}

/// An answer that is some bytes over the limit.
fn too_much(question: &Value) -> Value {
    let content = json!({ "text": "x".repeat(70_000) });
    json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": content } })
}

#[test]
fn a_server_hears_at_once_of_an_answer_that_is_too_long_for_a_line() {
    let sandbox = configured();
    let mut client = window(&sandbox, &["--max-message", LIMIT]);
    let call = client.call("srv__ask", json!({}));
    let question = client.find("a question", |message| message["method"] == "elicitation/create");
    client.send(&too_much(&question).to_string());
    assert_eq!(client.answer_within(call, SOON)["result"]["content"][0]["text"], "-31007");
    finish(client, &sandbox);
}

#[test]
fn a_server_hears_at_once_of_an_answer_that_is_too_long_for_a_post() {
    let sandbox = configured();
    let (process, web) = Web::start_with(&sandbox, &["-v"], &["--max-message", LIMIT]);
    let session = web.begin();
    let mut stream = web.call(&session, 1, "srv__ask", json!({}));
    let question = stream.next().expect("a question");
    let refused = web.post(&[("mcp-session-id", &session)], &too_much(&question));
    assert_eq!(refused.status, 413);
    let told = stream.last();
    assert_eq!(told["result"]["content"][0]["text"], "-31007", "{told}");
    gateway_http::finish(process, &sandbox);
}
