//! Results as bytes, for files and pipes: texts as they are, and other data decoded.
//!
//! Invariants: pure. A single content stays as it is. Between several, the only addition is a line feed if one is missing.

use data_encoding::BASE64;
use serde_json::Value;
use unhang::exit;
use unhang_terminal::failure::CommandFailure;

/// Returns the bytes of a tool's result: its content, or its structured content as JSON if it has no other.
pub(super) fn of_tool(result: &Value) -> Result<Vec<u8>, CommandFailure> {
    let content = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    match (content, result.get("structuredContent")) {
        ([], Some(structured)) => Ok(format!("{structured}\n").into_bytes()),
        _ => joined(content.iter().map(one)),
    }
}

/// Returns the bytes of a resource.
pub(super) fn of_resource(result: &Value) -> Result<Vec<u8>, CommandFailure> {
    joined(result["contents"].as_array().into_iter().flatten().map(embedded))
}

fn joined(parts: impl Iterator<Item = Result<Vec<u8>, CommandFailure>>) -> Result<Vec<u8>, CommandFailure> {
    let mut bytes = Vec::new();
    for part in parts {
        if bytes.last().is_some_and(|last| *last != b'\n') {
            bytes.push(b'\n');
        }
        bytes.extend(part?);
    }
    Ok(bytes)
}

fn one(item: &Value) -> Result<Vec<u8>, CommandFailure> {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    match text("type") {
        "text" => Ok(text("text").as_bytes().to_vec()),
        "image" | "audio" => decoded(text("data")),
        "resource" => embedded(&item["resource"]),
        "resource_link" => Ok(text("uri").as_bytes().to_vec()),
        _ => Ok(item.to_string().into_bytes()),
    }
}

fn embedded(resource: &Value) -> Result<Vec<u8>, CommandFailure> {
    match (resource["text"].as_str(), resource["blob"].as_str()) {
        (Some(text), _) => Ok(text.as_bytes().to_vec()),
        (None, Some(blob)) => decoded(blob),
        (None, None) => Ok(resource.to_string().into_bytes()),
    }
}

fn decoded(base64: &str) -> Result<Vec<u8>, CommandFailure> {
    let compact: String = base64.split_ascii_whitespace().collect();
    BASE64.decode(compact.as_bytes()).map_err(|error| CommandFailure {
        code: exit::PROTOCOL,
        kind: "bad_response",
        message: format!("the server gave content that is not base64: {error}"),
        hint: Some("--output json prints the result as it came".to_owned()),
        data: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn f_77_what_is_raw_is_what_the_server_has() {
        let resource = |contents: Value| of_resource(&json!({ "contents": contents }));
        assert_eq!(resource(json!([{ "text": "# a\r\nb" }])).unwrap(), b"# a\r\nb");
        assert_eq!(resource(json!([{ "blob": "AP8=" }])).unwrap(), [0, 255]);
        assert_eq!(
            resource(json!([{ "text": "a" }, { "text": "b\n" }, { "text": "c" }])).unwrap(),
            b"a\nb\nc"
        );
        assert_eq!(resource(json!([{ "blob": "?" }])).unwrap_err().code, exit::PROTOCOL);
        let tool = |result: Value| of_tool(&result).unwrap();
        assert_eq!(tool(json!({ "content": [{ "type": "text", "text": "\u{1b}x" }] })), b"\x1bx");
        assert_eq!(tool(json!({ "content": [{ "type": "image", "data": "aGk=" }] })), b"hi");
        assert_eq!(tool(json!({ "content": [], "structuredContent": { "a": 1 } })), b"{\"a\":1}\n");
    }
}
