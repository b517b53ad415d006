//! The codes of errors on the way from a server through the leading window to a client of the handshake era at another window.
//!
//! Theory of operation. Windows speak 2026-07-28 with the leading window. That revision gave new meanings to some codes, so that they are
//! translated for older clients. An older server may use the same codes with meanings of its own, and they pass unchanged. Only the leading
//! window knows the era of the server. So it translates these codes for the client of the other window, which leaves them as they come.
//!
//! Invariant: such a code is translated exactly once, and only if the server speaks 2026-07-28 and the client does not.

use unhang_bridge::{Era, error::legacy_code};
use unhang_upstream::client::ServerError;
use unhang_wire::{Json, text_member};

use super::owners::NAME;

/// Prepares the error of a server for the session that asked. `asked` is the era in which the session asks, and `client` that of its client.
/// `server` is the era of the server, which `is_leader` says is the leading window. Returns the era whose codes the error has.
pub(super) fn told(
    error: &mut ServerError,
    (asked, client): (Era, Era),
    (server, is_leader): (Era, bool),
) -> Era {
    let Some(code) = legacy_code(error.code) else { return server };
    match (asked, client, server) {
        // The leading window has translated the code if that was due, unless the error is its own.
        (Era::Legacy, _, Era::Modern) if is_leader && !is_of_unhang(error) => Era::Legacy,
        (Era::Modern, Era::Legacy, Era::Modern) if !is_leader => {
            error.code = code;
            server
        }
        _ => server,
    }
}

/// Returns whether unhang itself made the error.
fn is_of_unhang(error: &ServerError) -> bool {
    let data = error.data.as_ref().and_then(|data| Json::new(data.get().as_bytes()));
    data.and_then(|data| text_member(data, "origin")).is_some_and(|origin| origin == NAME)
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::to_raw_value};

    use super::*;

    fn error(code: i64, origin: &str) -> ServerError {
        let data = to_raw_value(&json!({ "origin": origin })).ok();
        let (server, method, message) = ("srv".to_owned(), "tools/call".to_owned(), "no".to_owned());
        ServerError { server, method, code, message, data }
    }

    #[test]
    fn a_code_that_2026_07_28_added_is_translated_where_the_era_of_the_server_is_known() {
        let (old, new) = (Era::Legacy, Era::Modern);
        for (case, asked, client, server, is_leader, code, era) in [
            ("the leader, for an older client of a window", new, old, new, false, -32600, new),
            ("the same, of an older server", new, old, old, false, -32020, old),
            ("the leader, for a newer client of a window", new, new, new, false, -32020, new),
            ("the window of an older client", old, old, new, true, -32020, old),
            ("the window of a newer client", new, new, new, true, -32020, new),
            ("no other window", old, old, new, false, -32020, new),
        ] {
            let mut error = error(-32020, "somebody");
            assert_eq!(told(&mut error, (asked, client), (server, is_leader)), era, "{case}");
            assert_eq!(error.code, code, "{case}");
        }
        let mut of_leader = error(-32020, "unhang");
        assert_eq!(told(&mut of_leader, (old, old), (new, true)), new, "nobody has translated it");
        assert_eq!(told(&mut error(-32602, "somebody"), (old, old), (new, true)), new);
    }
}
