//! The lists that servers have, and their names in the protocol.

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
}

impl ServerList {
    /// Returns the method that asks for the list.
    pub fn method(self) -> &'static str {
        match self {
            ServerList::Tools => "tools/list",
            ServerList::Resources => "resources/list",
            ServerList::ResourceTemplates => "resources/templates/list",
            ServerList::Prompts => "prompts/list",
        }
    }

    /// Returns the member of the result that has its items.
    pub fn member(self) -> &'static str {
        match self {
            ServerList::Tools => "tools",
            ServerList::Resources => "resources",
            ServerList::ResourceTemplates => "resourceTemplates",
            ServerList::Prompts => "prompts",
        }
    }

    /// Returns the capability that a server with this list declares.
    pub fn capability(self) -> &'static str {
        match self {
            ServerList::Tools => "tools",
            ServerList::Resources | ServerList::ResourceTemplates => "resources",
            ServerList::Prompts => "prompts",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_has_the_names_of_the_protocol() {
        for (list, method, member, capability) in [
            (ServerList::Tools, "tools/list", "tools", "tools"),
            (ServerList::Resources, "resources/list", "resources", "resources"),
            (ServerList::ResourceTemplates, "resources/templates/list", "resourceTemplates", "resources"),
            (ServerList::Prompts, "prompts/list", "prompts", "prompts"),
        ] {
            assert_eq!((list.method(), list.member(), list.capability()), (method, member, capability));
        }
    }
}
