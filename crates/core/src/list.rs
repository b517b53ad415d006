//! The lists that servers have, and what each is called in the protocol.

/// A list that servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`
    Tools,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
    /// `prompts/list`
    Prompts,
}

impl List {
    /// Returns the method that asks for it.
    pub fn method(self) -> &'static str {
        match self {
            List::Tools => "tools/list",
            List::Resources => "resources/list",
            List::ResourceTemplates => "resources/templates/list",
            List::Prompts => "prompts/list",
        }
    }

    /// Returns the member of the result that has its items.
    pub fn member(self) -> &'static str {
        match self {
            List::Tools => "tools",
            List::Resources => "resources",
            List::ResourceTemplates => "resourceTemplates",
            List::Prompts => "prompts",
        }
    }

    /// What a server that has this list declares.
    pub fn capability(self) -> &'static str {
        match self {
            List::Tools => "tools",
            List::Resources | List::ResourceTemplates => "resources",
            List::Prompts => "prompts",
        }
    }
}
