//! The request that one line of a batch makes.
//!
//! Invariants: pure. The error about an invalid line says what is wrong, and keeps its id if that can be read. Reading changes no number.

use serde_json::{Map, Value};

use super::lines::LONGEST;
use crate::commands::large_numbers;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchItem {
    pub(super) id: Option<Value>,
    pub(super) line: u64,
    pub(super) server: Option<String>,
    pub(super) asked: ItemRequest,
}

/// The tool, resource or prompt that the line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ItemRequest {
    Tool(String, Map<String, Value>),
    Resource(String),
    Prompt(String, Map<String, Value>),
}

/// A line that does not hold a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InvalidItem {
    pub(super) id: Option<Value>,
    pub(super) reason: String,
}

impl InvalidItem {
    pub(super) fn too_long() -> Self {
        InvalidItem { id: None, reason: format!("has more than {} MiB", LONGEST >> 20) }
    }
}

/// All members that a line may have.
const MEMBERS: [&str; 6] = ["id", "server", "tool", "uri", "prompt", "arguments"];

impl BatchItem {
    /// Reads a line.
    pub(super) fn read(line: u64, text: &[u8]) -> Result<BatchItem, InvalidItem> {
        let mut members: Map<String, Value> = match serde_json::from_slice(text) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Err(InvalidItem { id: None, reason: "is JSON, but not an object".to_owned() }),
            Err(error) => return Err(InvalidItem { id: None, reason: format!("is not JSON: {error}") }),
        };
        let id = members.remove("id").filter(|id| !id.is_null());
        if let Some(number) = large_numbers::in_json(text) {
            // An id with a changed number could be that of another line.
            let id = id.filter(|id| !id.is_f64());
            return Err(InvalidItem { id, reason: large_numbers::told(number, "it") });
        }
        let wrong = |reason: String| InvalidItem { id: id.clone(), reason };
        if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            return Err(wrong(format!("has the member `{unknown}`; there are {}", MEMBERS.join(", "))));
        }
        let mut text = |name: &str| match members.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(format!("has a `{name}` that is not a text"))),
        };
        let (server, tool, uri, prompt) = (text("server")?, text("tool")?, text("uri")?, text("prompt")?);
        let arguments = match members.remove("arguments") {
            None | Some(Value::Null) => None,
            Some(Value::Object(arguments)) => Some(arguments),
            Some(_) => return Err(wrong("has `arguments` that are not an object".to_owned())),
        };
        let asked = match (tool, uri, prompt) {
            (Some(tool), None, None) => ItemRequest::Tool(tool, arguments.unwrap_or_default()),
            (None, Some(uri), None) if arguments.is_none() => ItemRequest::Resource(uri),
            (None, Some(_), None) => {
                return Err(wrong("has a `uri` and `arguments`, but a resource has no arguments".to_owned()));
            }
            (None, None, Some(prompt)) => ItemRequest::Prompt(prompt, arguments.unwrap_or_default()),
            _ => return Err(wrong("must have one of `tool`, `uri` and `prompt`".to_owned())),
        };
        Ok(BatchItem { id, line, server, asked })
    }
}

/// Returns whether a tool's result says that the tool failed.
pub(super) fn says_error(result: &str) -> bool {
    // The search is cheap, and few results contain the word.
    result.contains("isError")
        && serde_json::from_str::<Map<String, Value>>(result)
            .is_ok_and(|members| members.get("isError") == Some(&Value::Bool(true)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_a_call_a_read_or_a_prompt() {
        let read = |line: Value| BatchItem::read(7, line.to_string().as_bytes()).unwrap();
        let call = read(json!({ "id": "a", "server": "s", "tool": "t", "arguments": { "x": 1 } }));
        let arguments = Map::from_iter([("x".to_owned(), json!(1))]);
        assert_eq!((call.id, call.server.as_deref(), call.line), (Some(json!("a")), Some("s"), 7));
        assert_eq!(call.asked, ItemRequest::Tool("t".to_owned(), arguments));
        assert_eq!(
            read(json!({ "uri": "a:/b", "id": null })).asked,
            ItemRequest::Resource("a:/b".to_owned())
        );
        assert_eq!(read(json!({ "prompt": "p" })).asked, ItemRequest::Prompt("p".to_owned(), Map::new()));
    }

    #[test]
    fn what_is_none_is_told_with_its_id() {
        for (line, id, expect) in [
            ("{", None, "is not JSON"),
            ("[]", None, "not an object"),
            (r#"{"id":1}"#, Some(json!(1)), "one of `tool`, `uri` and `prompt`"),
            (r#"{"id":1,"tool":"a","uri":"b"}"#, Some(json!(1)), "one of `tool`, `uri` and `prompt`"),
            (r#"{"id":1,"tool":5}"#, Some(json!(1)), "`tool` that is not a text"),
            (r#"{"id":1,"tool":"a","arguments":[1]}"#, Some(json!(1)), "`arguments` that are not an object"),
            (r#"{"id":1,"uri":"a","arguments":{}}"#, Some(json!(1)), "a resource has no arguments"),
            (r#"{"id":1,"tol":"a"}"#, Some(json!(1)), "has the member `tol`"),
            (
                r#"{"id":1,"tool":"a","arguments":{"b":[18446744073709551616]}}"#,
                Some(json!(1)),
                "18446744073709551616 in it does not fit into 64 bits",
            ),
            (r#"{"id":18446744073709551616,"tool":"a"}"#, None, "does not fit into 64 bits"),
        ] {
            let wrong = BatchItem::read(1, line.as_bytes()).unwrap_err();
            assert!(wrong.id == id && wrong.reason.contains(expect), "{line}: {wrong:?}");
        }
    }

    #[test]
    fn only_the_result_itself_says_that_it_failed() {
        assert!(says_error(r#"{"content":[],"isError":true}"#));
        assert!(!says_error(r#"{"content":[{"text":"\"isError\":true"}],"isError":false}"#));
        assert!(!says_error("{}"));
    }
}
