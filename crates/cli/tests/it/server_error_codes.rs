//! Codes of errors that a server of 2025-11-25 chooses: they reach a client of the same era unchanged, in each window.

use std::fs;

use serde_json::json;

use crate::{
    gateway::{finish_windows, listed, window},
    harness::Sandbox,
};

/// A server of 2025-11-25 that refuses each call with the code in its arguments.
const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"no"}}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"refuse","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*)
      echo call >> "$1"
      refuse "$(printf '%s' "$line" | sed 's/.*"code":\(-[0-9]*\).*/\1/')" ;;
    *'"id"'*) refuse -32601 ;;
  esac
done
"#;

#[test]
fn a_code_of_an_older_server_reaches_an_older_client_of_each_window_unchanged() {
    const CODES: [i64; 5] = [-32020, -32021, -32022, -32600, -5];
    let sandbox = Sandbox::with_jobs();
    let (path, calls) = (sandbox.path().join("server.sh"), sandbox.path().join("calls"));
    fs::write(&path, SERVER).expect("a file");
    let config = format!("[servers.srv]\ncommand = \"sh\"\nargs = [{path:?}, {calls:?}]\n");
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    let mut both = [(); 2].map(|()| {
        let mut client = window(&sandbox, &[]);
        listed(&mut client, "tools/list", "tools", "name");
        client
    });
    for (number, client) in both.iter_mut().enumerate() {
        for code in CODES {
            let id = client.call("srv__refuse", json!({ "code": code }));
            let answer = client.answer(id);
            assert_eq!(answer["error"], json!({ "code": code, "message": "no" }), "window {number}");
        }
    }
    let made = fs::read_to_string(calls).expect("a file").lines().count();
    assert_eq!(made, 2 * CODES.len(), "each call came once");
    finish_windows(both, &sandbox);
}
