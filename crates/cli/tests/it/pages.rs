//! Lists that come in pages: all pages of one together have one limit of time and one of bytes, and so does a call with the list before it.

use std::{fs, time::Duration};

use serde_json::json;

use crate::{
    gateway::{finish, gateway},
    harness::{PATIENCE, Sandbox, run_to_end, timed, wait_until},
};

/// Generous, and far below what a thousand pages would take.
const HOME: Duration = Duration::from_secs(15);

/// A server whose lists have a page of one item for each number. `PAUSE` is slept before each; `$long` makes it long.
const SERVER: &str = r#"
say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
long=$(head -c BYTES /dev/zero | tr '\0' x); n=0
page() {
  PAUSE; n=$((n + 1))
  say "\"result\":{\"$1\":[{\"name\":\"t$n\",\"description\":\"$long\",\"inputSchema\":{\"type\":\"object\"}}],\"nextCursor\":\"c$n\"}"
}
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *server/discover*) say '"error":{"code":-32601,"message":"no"}';;
    *'"initialize"'*) say '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *notifications/*) ;;
    *LIST/list*) page LIST;;
    *tools/list*) say '"result":{"tools":[{"name":"one","inputSchema":{"type":"object"}}]}';;
    *) say '"result":{"content":[]}';;
  esac
done"#;

/// Writes a server that gives pages of this list without end, and returns where it is.
fn pages(sandbox: &Sandbox, list: &str, bytes: &str, pause: &str) -> String {
    let path = sandbox.path().join("pages.sh");
    let script = SERVER.replace("LIST", list).replace("BYTES", bytes).replace("PAUSE", pause);
    fs::write(&path, script).expect("a file");
    path.display().to_string()
}

/// Runs `unhang WORDS -- sh SCRIPT`, and demands that it ends in time, without a result: with this exit code, and what it says.
#[track_caller]
fn told(sandbox: &Sandbox, words: &[&str], script: &str, code: i32) -> String {
    let mut command = sandbox.unhang();
    command.args(words).args(["--", "sh", script]);
    let ((found, stdout, stderr), took) = timed(|| run_to_end(command));
    assert!(took < HOME, "{words:?} took {took:?}: {stderr}");
    assert_eq!((found, &*stdout), (code, ""), "{words:?}: {stderr}");
    stderr
}

#[test]
fn a_list_whose_pages_are_too_much_together_ends() {
    let sandbox = Sandbox::new();
    let script = pages(&sandbox, "tools", "100000", ":");
    let stderr = told(&sandbox, &["tools", "--max-message", "1MiB"], &script, 5);
    let says = "`pages` answered `tools/list` with 11 pages";
    let limit = ", together more than the limit of 1048576 bytes for a whole list";
    assert!(stderr.contains(says) && stderr.contains(limit), "{stderr}");
}

#[test]
fn the_gateway_takes_a_server_with_too_long_a_list_to_have_none_and_says_so_once() {
    for (list, says) in [("tools", "cannot be listed: "), ("prompts", "")] {
        let sandbox = Sandbox::with_jobs();
        let script = pages(&sandbox, list, "100000", ":");
        let limits = "limits = { max-message = \"1MiB\", breaker-cooldown = \"200ms\" }";
        let servers = format!("[servers.srv]\ncommand = \"sh\"\nargs = [{script:?}]\n{limits}\n");
        let mut client = gateway(&sandbox, &[servers]);
        let warned = format!("{says}`srv` answered `{list}/list` with 11 pages");
        wait_until("it is told", PATIENCE, || sandbox.log().contains(&warned));
        let id = client.request(&format!("{list}/list"), json!({}));
        assert!(!client.answer(id).to_string().contains("srv__t1"));
        let answered = client.request("tools/call", json!({ "name": "srv__one", "arguments": {} }));
        let answer = client.answer(answered);
        assert!(answer["error"].is_null(), "its tools can be called all the same: {answer}");
        assert_eq!(
            sandbox.log().lines().filter(|line| line.contains(&warned) && line.contains("WARN")).count(),
            1
        );
        finish(client, &sandbox);
    }
}

#[test]
fn all_pages_of_a_list_have_the_limit_of_one_request() {
    let sandbox = Sandbox::new();
    let script = pages(&sandbox, "tools", "10", "sleep 0.4");
    let stderr = told(&sandbox, &["tools", "--request-timeout", "1s"], &script, 4);
    let says = "`pages` had not finished `tools/list` within 1s, after ";
    assert!(stderr.contains(says) && stderr.contains("raise --request-timeout"), "{stderr}");
}

#[test]
fn a_call_has_one_limit_with_the_list_before_it() {
    let sandbox = Sandbox::new();
    let script = pages(&sandbox, "tools", "10", "sleep 0.4");
    let words = ["call", "t1", "--call-timeout", "2s", "--request-timeout", "1m"];
    let stderr = told(&sandbox, &words, &script, 4);
    assert!(stderr.contains("within 2s, after ") && stderr.contains("raise --call-timeout"), "{stderr}");

    // What the list takes is missing to the call.
    let path = sandbox.path().join("slow.sh");
    let slow = SERVER.replace("*LIST/list*) page LIST;;", "");
    let slow = slow.replace("*tools/list*) say", "*tools/call*) ;;\n    *tools/list*) sleep 1.5; say");
    fs::write(&path, slow.replace("BYTES", "10").replace("PAUSE", ":")).expect("a file");
    let words = ["call", "one", "--call-timeout", "3s"];
    let stderr = told(&sandbox, &words, &path.display().to_string(), 4);
    assert!(stderr.contains("did not answer `tools/call` within 3s, 1."), "{stderr}");
    assert!(stderr.contains(" of which its list of tools took"), "{stderr}");
}
