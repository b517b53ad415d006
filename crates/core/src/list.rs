//! The lists that servers have, and their names in the protocol.

use serde_json::{Map, Value};

/// The extension by which servers offer skills (SEP-2640).
pub const SKILLS: &str = "io.modelcontextprotocol/skills";

/// A list that servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerList {
    /// `tools/list`
    Tools,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
    /// `prompts/list`
    Prompts,
    /// `skills/list`, of the extension for skills (SEP-2640)
    Skills,
}

impl ServerList {
    /// All lists, in the order of their discriminants.
    pub const ALL: [ServerList; 5] = [
        ServerList::Tools,
        ServerList::Resources,
        ServerList::ResourceTemplates,
        ServerList::Prompts,
        ServerList::Skills,
    ];

    /// Returns the method that asks for the list.
    pub fn method(self) -> &'static str {
        match self {
            ServerList::Tools => "tools/list",
            ServerList::Resources => "resources/list",
            ServerList::ResourceTemplates => "resources/templates/list",
            ServerList::Prompts => "prompts/list",
            ServerList::Skills => "skills/list",
        }
    }

    /// Returns the member of the result that has its items.
    pub fn member(self) -> &'static str {
        match self {
            ServerList::Tools => "tools",
            ServerList::Resources => "resources",
            ServerList::ResourceTemplates => "resourceTemplates",
            ServerList::Prompts => "prompts",
            ServerList::Skills => "skills",
        }
    }

    /// Returns whether a server with these capabilities declares this list.
    pub fn is_declared(self, capabilities: &Map<String, Value>) -> bool {
        match self {
            ServerList::Tools => capabilities.contains_key("tools"),
            ServerList::Resources | ServerList::ResourceTemplates => capabilities.contains_key("resources"),
            ServerList::Prompts => capabilities.contains_key("prompts"),
            ServerList::Skills => capabilities.get("extensions").is_some_and(|all| all[SKILLS].is_object()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_list_has_the_names_of_the_protocol() {
        let of = |name: &str| Map::from_iter([(name.to_owned(), json!({}))]);
        let skills = Map::from_iter([("extensions".to_owned(), json!({ SKILLS: {} }))]);
        for (list, method, member, declared) in [
            (ServerList::Tools, "tools/list", "tools", of("tools")),
            (ServerList::Resources, "resources/list", "resources", of("resources")),
            (ServerList::ResourceTemplates, "resources/templates/list", "resourceTemplates", of("resources")),
            (ServerList::Prompts, "prompts/list", "prompts", of("prompts")),
            (ServerList::Skills, "skills/list", "skills", skills),
        ] {
            assert_eq!((list.method(), list.member()), (method, member));
            assert_eq!(ServerList::ALL[list as usize], list);
            assert!(list.is_declared(&declared), "{declared:?}");
            for other in [Map::new(), of("skills"), of("extensions")] {
                assert!(!list.is_declared(&other), "{method} {other:?}");
            }
        }
    }
}
