//! The lists that a server offers, page by page.
//!
//! Invariants: a list ends, even if a server gives pages for ever: their number, their bytes and their time are bounded together. The items
//! stay as the server wrote them.

use std::{collections::HashMap, fmt, time::Duration};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};
use tokio::time::Instant;

use super::{Client, Error, Failure, RequestOptions, ServerInfo, ServerList};
use crate::listener::METHOD_NOT_FOUND;
use unhang_core::{config::LIST_PAGES, fault::FaultKind, units::in_words};

impl Client {
    /// Lists all pages, each item as received. Returns an empty list if the server does not declare it; tools are asked for all the same.
    /// `timeout` of the options bounds all pages together, and so does `max-message`.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does; also if an answer is not a list, the pages do not end, or together they exceed `max-message`.
    pub async fn list(
        &self,
        list: ServerList,
        options: &RequestOptions,
    ) -> Result<Vec<Box<RawValue>>, Error> {
        let session = self.ready().await?;
        let is_declared = list.is_declared(&session.capabilities);
        // Some servers have tools and do not declare them.
        if list != ServerList::Tools && !is_declared {
            return Ok(Vec::new());
        }
        let limit = options.timeout.unwrap_or(self.limits.request_timeout);
        let since = options.since.unwrap_or_else(Instant::now);
        let of_all = RequestOptions { timeout: Some(limit), since: Some(since), ..options.clone() };
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        let mut room = Some(self.limits.max_message);
        for pages in 0..LIST_PAGES {
            let params: Map<String, Value> =
                cursor.iter().map(|cursor| ("cursor".to_owned(), cursor.as_str().into())).collect();
            let page = match self.request(list.method(), params, &of_all).await {
                Err(Error::Server(refusal))
                    if !is_declared && refusal.code == i64::from(METHOD_NOT_FOUND) =>
                {
                    return Ok(Vec::new());
                }
                Err(Error::Failure(failure)) if failure.kind == FaultKind::Deadline && pages > 0 => {
                    return Err(self.unfinished(list, pages, limit, *failure));
                }
                page => page?,
            };
            let Some(ListPage { found, next }) = ListPage::read(&page, list.member(), &mut room) else {
                if room.is_none() {
                    return Err(self.too_much(list, pages + 1));
                }
                let happened = format!("`{}` answered `{}` without a list", self.name(), list.method());
                return Err(self.failure(
                    FaultKind::BadResponse,
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
        let happened = format!("`{}` gives pages without an end to `{}`", self.name(), list.method());
        Err(self.failure(FaultKind::BadResponse, list.method(), happened, "this is a fault of the server"))
    }

    /// Makes the error for a list whose time ran out after so many pages.
    fn unfinished(&self, list: ServerList, pages: usize, limit: Duration, failure: Failure) -> Error {
        let pages = counted(pages);
        let happened = format!(
            "`{}` had not finished `{}` within {}, after {pages}",
            self.name(),
            list.method(),
            in_words(limit)
        );
        Failure { happened, ..failure }.into()
    }

    /// Makes the error for pages that fit into a message one by one, but not together.
    fn too_much(&self, list: ServerList, pages: usize) -> Error {
        let happened = format!(
            "`{}` answered `{}` with {}, together more than the limit of {} bytes for a whole list",
            self.name(),
            list.method(),
            counted(pages),
            self.limits.max_message
        );
        self.failure(
            FaultKind::TooLarge,
            list.method(),
            happened,
            "make the server list less, or raise --max-message",
        )
    }

    /// Removes the tools of a stateless server over HTTP whose headers break the rules: such a tool must not be offered (2026-07-28).
    fn usable(
        &self,
        list: ServerList,
        session: &ServerInfo,
        items: Vec<Box<RawValue>>,
    ) -> Vec<Box<RawValue>> {
        match self.mirrors.as_ref().filter(|_| list == ServerList::Tools && session.revision.is_stateless()) {
            Some(mirrors) => mirrors.learn(&self.name, items),
            None => items,
        }
    }

    /// Lists the tools.
    ///
    /// # Errors
    /// Fails as [`Client::list`] does.
    pub async fn list_tools(&self, options: &RequestOptions) -> Result<Vec<Box<RawValue>>, Error> {
        self.list(ServerList::Tools, options).await
    }

    /// Lists the resources.
    ///
    /// # Errors
    /// Fails as [`Client::list`] does.
    pub async fn list_resources(&self, options: &RequestOptions) -> Result<Vec<Box<RawValue>>, Error> {
        self.list(ServerList::Resources, options).await
    }

    /// Lists the prompts.
    ///
    /// # Errors
    /// Fails as [`Client::list`] does.
    pub async fn list_prompts(&self, options: &RequestOptions) -> Result<Vec<Box<RawValue>>, Error> {
        self.list(ServerList::Prompts, options).await
    }
}

fn counted(pages: usize) -> String {
    if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") }
}

struct ListPage {
    found: Vec<Box<RawValue>>,
    next: Option<String>,
}

impl ListPage {
    /// Reads a page, and takes its size from `room`. If the room is not enough, sets it to `None` and returns `None`.
    fn read(answer: &RawValue, member: &str, room: &mut Option<usize>) -> Option<Self> {
        *room = room.and_then(|room| room.checked_sub(answer.get().len()));
        room.as_ref()?;
        let members: HashMap<String, &RawValue> = serde_json::from_str(answer.get()).ok()?;
        let mut items = serde_json::Deserializer::from_str(members.get(member)?.get());
        let found = CollectedItems(room).deserialize(&mut items).ok()?;
        // A cursor that is not text, above all `null`, counts as none.
        let next = members.get("nextCursor").and_then(|cursor| serde_json::from_str(cursor.get()).ok());
        Some(Self { found, next })
    }
}

/// The cost of an item besides its bytes: millions of empty ones count too.
const ITEM: usize = 32;

/// Collects items for as long as there is room.
struct CollectedItems<'a>(&'a mut Option<usize>);

impl<'de> DeserializeSeed<'de> for CollectedItems<'_> {
    type Value = Vec<Box<RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for CollectedItems<'_> {
    type Value = Vec<Box<RawValue>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element()? {
            *self.0 = self.0.and_then(|room| room.checked_sub(ITEM));
            if self.0.is_none() {
                return Err(A::Error::custom("there is no room"));
            }
            found.push(item);
        }
        Ok(found)
    }
}
