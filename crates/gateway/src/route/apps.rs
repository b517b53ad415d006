//! MCP Apps (`io.modelcontextprotocol/ui`): tools with views, which are resources of the scheme `ui://`.
//!
//! A view calls the tools of its own server by the names that its server knows. The client passes such a call on unchanged, so that the name
//! is not the public one. So the catalog finds the tools of servers with views by their own names too, where just one of these servers has
//! that name.

use serde_json::{Value, json};
use unhang_wire::Json;

use super::links::{OF_LISTED_TOOL, each_uri};

/// The extension.
pub const UI: &str = "io.modelcontextprotocol/ui";

/// The content of views that clients can show.
const VIEW_TYPE: &str = "text/html;profile=mcp-app";

/// The beginning of the members of `_meta` that name a view, in either form. Text without it needs no parsing.
pub(super) const VIEW_MEMBER: &str = r#""ui"#;

/// Those for whom a tool is: models, and views of its own server.
const MODEL: &str = "model";
const APP: &str = "app";

/// Returns the settings of the extension that the gateway declares to servers, for clients that can show views.
#[must_use]
pub fn declared() -> Value {
    json!({ "mimeTypes": [VIEW_TYPE] })
}

/// Returns the URIs of the views of this tool.
pub(super) fn views_of(tool: Json<'_>) -> Vec<String> {
    let mut views = Vec::new();
    each_uri(tool, &OF_LISTED_TOOL, |uri| views.push(uri.to_owned()));
    views
}

/// Returns whether a listed tool is for views alone, so that a client that shows none has no use for it.
#[must_use]
pub fn is_for_views_alone(tool: Json<'_>) -> bool {
    is_for(tool, APP) && !is_for(tool, MODEL)
}

/// Returns whether views may call this tool.
pub(super) fn is_for_views(tool: Json<'_>) -> bool {
    is_for(tool, APP)
}

fn is_for(tool: Json<'_>, whom: &str) -> bool {
    let visibility = tool.member("_meta").and_then(|meta| meta.member("ui")?.member("visibility"));
    let Some(visibility) = visibility else { return true };
    let mut is_named = false;
    let is_list = visibility.each_element(|name| is_named |= name.text().is_some_and(|name| name == whom));
    // What is not a list says nothing.
    is_named || !is_list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_for_everybody_unless_it_says_for_whom_it_is() {
        for (ui, for_views, alone) in [
            ("{}", true, false),
            (r#"{"visibility":["model","app"]}"#, true, false),
            (r#"{"visibility":["model"]}"#, false, false),
            (r#"{"visibility":["app"]}"#, true, true),
            (r#"{"visibility":[]}"#, false, false),
            (r#"{"visibility":"app"}"#, true, false),
        ] {
            let tool = format!(r#"{{"name":"t","_meta":{{"ui":{ui}}}}}"#);
            let tool = Json::new(tool.as_bytes()).expect("JSON");
            assert_eq!((is_for_views(tool), is_for_views_alone(tool)), (for_views, alone), "{ui}");
        }
        let plain = Json::new(br#"{"name":"t"}"#).expect("JSON");
        assert!(is_for_views(plain) && !is_for_views_alone(plain));
    }
}
