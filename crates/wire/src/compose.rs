//! Writes messages as lines, without their endings.
//!
//! Invariant: `params` and `result` are JSON already and stay as they are. Every other text is escaped.

use crate::Id;

/// Writes a request. `params` is JSON.
pub fn request(id: &Id, method: &str, params: &str) -> Vec<u8> {
    let method = serde_json::Value::from(method);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#).into_bytes()
}

/// Writes a notification. `params` is JSON.
pub fn notification(method: &str, params: &str) -> Vec<u8> {
    let method = serde_json::Value::from(method);
    format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#).into_bytes()
}

/// Writes a `notifications/cancelled`, which withdraws a request.
pub fn cancelled(id: &Id, reason: &str) -> Vec<u8> {
    let reason = serde_json::Value::from(reason);
    notification("notifications/cancelled", &format!(r#"{{"requestId":{id},"reason":{reason}}}"#))
}

/// Writes the answer to a request. `result` is JSON.
pub fn answer(id: &Id, result: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

/// Writes an error in answer to a request.
pub fn refusal(id: &Id, code: i32, message: &str) -> Vec<u8> {
    error(id, code.into(), message, None)
}

/// Writes an error in answer to a request. `data` is JSON.
pub fn error(id: &Id, code: i64, message: &str, data: Option<&str>) -> Vec<u8> {
    let message = serde_json::Value::from(message);
    let data = data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Message, Piece, read};

    fn body(line: &[u8]) -> String {
        let pieces: Vec<Piece<'_>> = read(line).collect();
        let [Piece::Message(Message { body, .. })] = &pieces[..] else { panic!("{pieces:?}") };
        match body {
            Body::Request { id, method, .. } => format!("request {id} {method}"),
            Body::Notification { method, .. } => format!("notification {method}"),
            Body::Response { id, .. } => format!("response {id}"),
        }
    }

    #[test]
    fn what_is_written_is_read_again_whatever_is_in_its_texts() {
        let id = Id::Text("a \"quoted\" id".into());
        assert_eq!(body(&request(&id, "tools/\"call\"", "{}")), format!("request {id} tools/\"call\""));
        assert_eq!(body(&cancelled(&id, "a\nreason")), "notification notifications/cancelled");
        assert_eq!(body(&answer(&id, "{}")), format!("response {id}"));
        assert_eq!(body(&refusal(&id, -32601, "no \"method\"")), format!("response {id}"));
    }
}
