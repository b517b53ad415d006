//! Tools and prompts that a server has and never lists: the server decides about requests for them, as it does without unhang.

use std::fs;

use serde_json::{Value, json};

use crate::{
    gateway::{finish_windows, listed, window},
    harness::{Client, Sandbox},
};

/// A server of 2025-11-25 that lists one tool and one prompt, has others besides, and refuses each unknown one in the way that its argument says.
const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"%s"}}\n' "$id" "$1" "$2"; }
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$2"
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"completions":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"shown","inputSchema":{"type":"object"}}]}' ;;
    *'"prompts/list"'*) answer '{"prompts":[{"name":"greet"}]}' ;;
    *'"prompts/get"'*'"name":"secret"'*) answer '{"messages":[],"description":"mine"}' ;;
    *'"completion/complete"'*'"name":"secret"'*) answer '{"completion":{"values":["a"]}}' ;;
    *'"prompts/get"'*|*'"completion/complete"'*) refuse -32602 'Unknown prompt' ;;
    *'"name":"shown"'*|*'"name":"hidden"'*|*'"name":"denied"'*) answer '{"content":[{"type":"text","text":"done"}]}' ;;
    *'"tools/call"'*)
      if [ "$1" = error ]; then refuse -32602 'Unknown tool'
      else answer '{"content":[{"type":"text","text":"Unknown tool"}],"isError":true}'; fi ;;
    *'"id"'*) refuse -32601 no ;;
  esac
done
"#;

/// That server, with this name, prefix and way to refuse.
fn configured(sandbox: &Sandbox, name: &str, prefix: &str, way: &str) -> String {
    let path = sandbox.path().join("server.sh");
    fs::write(&path, SERVER).expect("a file");
    let heard = sandbox.path().join(format!("{name}.heard"));
    format!(
        "[servers.{name}]\ncommand = \"sh\"\nargs = [{path:?}, {way:?}, {heard:?}]\nprefix = {prefix:?}\ndeny = [\"denied\"]\n"
    )
}

/// Windows in front of these servers, the leader first.
fn windows(sandbox: &Sandbox, servers: &[String]) -> [Client; 2] {
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    [(); 2].map(|()| {
        let mut client = window(sandbox, &[]);
        listed(&mut client, "tools/list", "tools", "name");
        client
    })
}

fn call(client: &mut Client, tool: &str) -> Value {
    let id = client.call(tool, json!({}));
    client.answer(id)
}

#[test]
fn the_server_that_a_name_says_decides_about_a_tool_that_it_does_not_list() {
    for (prefix, other) in [("srv", "other"), ("", "other")] {
        let sandbox = Sandbox::with_jobs();
        let one = configured(&sandbox, "srv", prefix, "error");
        let mut both = windows(&sandbox, &[one, configured(&sandbox, "other", other, "result")]);
        let named =
            |tool: &str| if prefix.is_empty() { tool.to_owned() } else { format!("{prefix}__{tool}") };
        for client in &mut both {
            let answer = call(client, &named("hidden"));
            assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
            let error = call(client, &named("showm"))["error"].clone();
            let hint = format!("no server lists `{}`; did you mean `{}`?", named("showm"), named("shown"));
            assert_eq!(error, json!({ "code": -32602, "message": format!("Unknown tool ({hint})") }));
            let error = call(client, &named("unlike-all"))["error"].clone();
            assert_eq!(error, json!({ "code": -32602, "message": "Unknown tool" }), "as the server says it");
            let result = call(client, "other__showm")["result"].clone();
            let texts = [&result["content"][0]["text"], &result["content"][1]["text"]];
            let hint = "no server lists `other__showm`; did you mean `other__shown`?";
            assert_eq!((texts, &result["isError"]), ([&json!("Unknown tool"), &json!(hint)], &json!(true)));
            let denied = call(client, &named("denied"));
            assert!(denied["error"]["data"]["origin"] == "unhang", "clients may not have that: {denied}");
        }
        let heard = fs::read_to_string(sandbox.path().join("srv.heard")).expect("it has heard");
        assert!(heard.contains("\"hidden\"") && !heard.contains("denied"), "{heard}");
        finish_windows(both, &sandbox);
    }
}

#[test]
fn a_name_that_two_servers_could_mean_is_for_neither() {
    let sandbox = Sandbox::with_jobs();
    let servers = ["one", "two"].map(|name| configured(&sandbox, name, "", "error"));
    let mut both = windows(&sandbox, &servers);
    for client in &mut both {
        let answer = call(client, "hidden");
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["data"]["origin"]),
            (&json!(-32602), &json!("unhang"))
        );
    }
    finish_windows(both, &sandbox);
}

#[test]
fn the_server_that_a_name_says_decides_about_a_prompt_that_it_does_not_list() {
    for prefix in ["srv", ""] {
        let sandbox = Sandbox::with_jobs();
        let one = configured(&sandbox, "srv", prefix, "error");
        let mut both = windows(&sandbox, &[one, configured(&sandbox, "other", "other", "error")]);
        let named =
            |prompt: &str| if prefix.is_empty() { prompt.to_owned() } else { format!("{prefix}__{prompt}") };
        for client in &mut both {
            let get = |client: &mut Client, name: String| {
                let id = client.request("prompts/get", json!({ "name": name }));
                client.answer(id)
            };
            let answer = get(client, named("secret"));
            assert_eq!(answer["result"]["description"], "mine", "{answer}");
            let reference = json!({ "type": "ref/prompt", "name": named("secret") });
            let argument = json!({ "name": "a", "value": "" });
            let id = client.request("completion/complete", json!({ "ref": reference, "argument": argument }));
            let answer = client.answer(id);
            assert_eq!(answer["result"]["completion"]["values"], json!(["a"]), "{answer}");
            let hint = format!("no server lists `{}`; did you mean `{}`?", named("gret"), named("greet"));
            let error = get(client, named("gret"))["error"].clone();
            assert_eq!(error, json!({ "code": -32602, "message": format!("Unknown prompt ({hint})") }));
        }
        finish_windows(both, &sandbox);
    }
}
