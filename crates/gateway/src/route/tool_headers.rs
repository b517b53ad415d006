//! The headers that tools want beside their arguments (`x-mcp-header`, 2026-07-28), by the names under which the tools are listed.
//!
//! Invariants: they are read once for a list, and never for a call. A tool whose annotations break the rules has none: clients over HTTP
//! leave such a tool out, so nothing says which headers they would send.

use std::collections::HashMap;

use serde_json::Value;
use unhang_upstream::http::param_headers::{ANNOTATION, ParamHeaders};
use unhang_wire::{Json, text_member};

/// Returns the headers of all listed tools that want any.
pub(super) fn of_listed<'a>(tools: impl Iterator<Item = &'a str>) -> HashMap<String, ParamHeaders> {
    tools.filter(|tool| may_want_headers(tool)).filter_map(of_tool).collect()
}

/// Returns whether a tool has to be read for that. JSON may write a character of the annotation as an escape.
fn may_want_headers(tool: &str) -> bool {
    tool.contains(ANNOTATION) || tool.contains(r"\u")
}

fn of_tool(tool: &str) -> Option<(String, ParamHeaders)> {
    let tool = Json::new(tool.as_bytes())?;
    let schema: Value = serde_json::from_str(tool.member("inputSchema")?.get()).ok()?;
    let headers = ParamHeaders::of_schema(&schema).ok().filter(|headers| !headers.is_empty())?;
    Some((text_member(tool, "name")?, headers))
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use unhang_bridge::Era;
    use unhang_core::list::ServerList;
    use unhang_upstream::http::param_headers::ReceivedParamHeaders;

    use super::*;
    use crate::route::{
        catalog::{Catalog, CatalogSource, ListedItems},
        names::Style,
    };

    fn tool(name: &str, annotation: &str, header: &str) -> Box<RawValue> {
        let schema = format!(
            r#"{{"type":"object","properties":{{"region":{{"type":"string","{annotation}":"{header}"}}}}}}"#
        );
        RawValue::from_string(format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#)).expect("JSON")
    }

    #[test]
    fn a_tool_wants_its_headers_under_the_name_that_is_listed() {
        let tools = vec![
            tool("query", ANNOTATION, "Region"),
            tool("escaped", r"x\u002dmcp-header", "Zone"),
            tool("broken", ANNOTATION, "two words"),
            tool("plain", "title", "x-mcp-header"),
            RawValue::from_string(r#"{"name":"x-mcp-header"}"#.to_owned()).expect("JSON"),
        ];
        let offered = ListedItems { tools, ..ListedItems::default() };
        let sources = [(0, "far", "far"), (1, "near", "")];
        let sources = sources.map(|(server_index, name, prefix)| CatalogSource {
            server_index,
            name,
            prefix,
            offered: &offered,
            is_awaited: false,
        });
        let catalog = Catalog::new(&Style::default(), &[], &sources);
        let call = Json::new(br#"{"region":"eu"}"#);
        let missing = |name| catalog.param_headers(name)?.check(call, &ReceivedParamHeaders::default()).err();
        for (name, header) in [
            ("far__query", "mcp-param-region"),
            ("query", "mcp-param-region"),
            ("far__escaped", "mcp-param-zone"),
        ] {
            assert!(missing(name).is_some_and(|error| error.contains(header)), "{name}");
        }
        // Clients over stdio can use a tool whose annotation is broken.
        assert!(catalog.list(ServerList::Tools, Era::Modern).contains(r#""name":"far__broken""#));
        for name in ["far__broken", "broken", "plain", "x-mcp-header", "unknown"] {
            assert_eq!(catalog.param_headers(name), None, "{name}");
        }
    }
}
