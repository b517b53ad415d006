//! What a server offers, page by page.
//!
//! Invariants: a list ends, also where a server gives pages for ever; what an item is stays as the server wrote it.

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{Client, Error, Options, Session, listener::METHOD_NOT_FOUND};
use crate::{config::LIST_PAGES, fault::Kind};

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
    pub(crate) fn method(self) -> &'static str {
        match self {
            List::Tools => "tools/list",
            List::Resources => "resources/list",
            List::ResourceTemplates => "resources/templates/list",
            List::Prompts => "prompts/list",
        }
    }

    pub(crate) fn member(self) -> &'static str {
        match self {
            List::Tools => "tools",
            List::Resources => "resources",
            List::ResourceTemplates => "resourceTemplates",
            List::Prompts => "prompts",
        }
    }

    /// What a server that has this list declares.
    fn capability(self) -> &'static str {
        match self {
            List::Tools => "tools",
            List::Resources | List::ResourceTemplates => "resources",
            List::Prompts => "prompts",
        }
    }
}

impl Client {
    /// All pages of a list, each item as received. A server that does not declare the list has none of it.
    ///
    /// # Errors
    /// As [`Client::request`]; also where an answer is no list, or there is no end of pages.
    pub async fn list(&self, list: List, options: &Options) -> Result<Vec<Box<RawValue>>, Error> {
        let session = self.ready().await?;
        let is_declared = session.capabilities.contains_key(list.capability());
        // Some servers have tools and do not declare them.
        if list != List::Tools && !is_declared {
            return Ok(Vec::new());
        }
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..LIST_PAGES {
            let params: Map<String, Value> =
                cursor.iter().map(|cursor| ("cursor".to_owned(), cursor.as_str().into())).collect();
            let page = match self.request(list.method(), params, options).await {
                Err(Error::Server(refusal))
                    if !is_declared && refusal.code == i64::from(METHOD_NOT_FOUND) =>
                {
                    return Ok(Vec::new());
                }
                page => page?,
            };
            let Some(Page { found, next }) = Page::read(&page, list.member()) else {
                let happened = format!("`{}` answered `{}` without a list", self.name(), list.method());
                return Err(self.failure(
                    Kind::BadResponse,
                    list.method(),
                    happened,
                    "this is a fault of the server",
                ));
            };
            items.extend(found);
            match next {
                None => return Ok(self.usable(list, &session, items)),
                next if next == cursor => break,
                next => cursor = next,
            }
        }
        let happened = format!("`{}` gives no end of pages to `{}`", self.name(), list.method());
        Err(self.failure(Kind::BadResponse, list.method(), happened, "this is a fault of the server"))
    }

    /// A tool over HTTP whose headers break the rules must not be offered (2026-07-28).
    fn usable(&self, list: List, session: &Session, items: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        match self.mirrors.as_ref().filter(|_| list == List::Tools && session.revision.is_stateless()) {
            Some(mirrors) => mirrors.learn(&self.name, items),
            None => items,
        }
    }

    /// The tools.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_tools(&self, options: &Options) -> Result<Vec<Box<RawValue>>, Error> {
        self.list(List::Tools, options).await
    }

    /// The resources.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_resources(&self, options: &Options) -> Result<Vec<Box<RawValue>>, Error> {
        self.list(List::Resources, options).await
    }

    /// The prompts.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_prompts(&self, options: &Options) -> Result<Vec<Box<RawValue>>, Error> {
        self.list(List::Prompts, options).await
    }
}

struct Page {
    found: Vec<Box<RawValue>>,
    next: Option<String>,
}

impl Page {
    fn read(answer: &RawValue, member: &str) -> Option<Self> {
        let mut members = std::collections::HashMap::<String, Box<RawValue>>::deserialize(
            &mut serde_json::Deserializer::from_str(answer.get()),
        )
        .ok()?;
        let found = serde_json::from_str(members.remove(member)?.get()).ok()?;
        // A cursor that is no text, `null` above all, is none.
        let next = members.remove("nextCursor").and_then(|cursor| serde_json::from_str(cursor.get()).ok());
        Some(Self { found, next })
    }
}
