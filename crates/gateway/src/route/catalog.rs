//! Everything that the servers offer, in the words of a client: the lists that the client gets, and the owner of each item.
//!
//! Invariants
//!
//! - An item is as its server wrote it, byte for byte. Exceptions are the name or URI under which clients know it, and members that a
//!   client of the other era could not read.
//! - An item that is listed can be asked for, and the request goes to the server that listed it.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use serde_json::value::RawValue;
use unhang_bridge::{Era, Splice, result};
use unhang_wire::Json;

use super::{
    names::{NameClash, Names, Owner, ServerNames, Style},
    template,
    uris::{Resources, Uris},
};
use unhang_core::list::ServerList;

/// The owners of tools, by the names that are listed: the server, and the server's name for the tool.
pub type Owners = BTreeMap<String, (String, String)>;

/// The items of one server that clients may have, as last listed: each as received, but for rules about tools.
#[derive(Clone, Debug, Default)]
pub struct ListedItems {
    /// The items of `tools/list`.
    pub tools: Vec<Box<RawValue>>,
    /// The items of `prompts/list`.
    pub prompts: Vec<Box<RawValue>>,
    /// The items of `resources/list`.
    pub resources: Vec<Box<RawValue>>,
    /// The items of `resources/templates/list`.
    pub templates: Vec<Box<RawValue>>,
    /// The owners of its tools, if this is a gateway that names them.
    pub owners: Owners,
}

/// One server, in the order of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct CatalogSource<'a> {
    /// The index of the server, which does not depend on its place in the configuration.
    pub server_index: usize,
    /// The server's name.
    pub name: &'a str,
    /// The beginning of its public names, see [`Style`].
    pub prefix: &'a str,
    /// The items that it offers.
    pub offered: &'a ListedItems,
}

/// The items of all servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// The indexes of the servers, in the order in which names and URIs count them.
    server_indexes: Vec<usize>,
    tools: Names,
    prompts: Names,
    resources: Uris,
    /// Public forms of templates are URIs as well.
    templates: Uris,
    lists: [CachedList; 4],
}

/// One list as JSON, for clients of both eras.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CachedList {
    /// The list as servers of either era wrote it.
    written: String,
    /// The list for clients of the handshake era, if it differs.
    legacy: Option<String>,
    /// The list for clients of the stateless era, if it differs.
    modern: Option<String>,
}

impl Catalog {
    /// Makes the catalog of these servers, behind tools of our own that have the names `own`.
    #[must_use]
    pub fn new(style: &Style, own: &[&str], sources: &[CatalogSource<'_>]) -> Self {
        let (tools, listed_tools) = named(style, own, sources, |offered| &offered.tools);
        let (prompts, listed_prompts) = named(style, &[], sources, |offered| &offered.prompts);
        let (resources, listed_resources) = located(sources, "uri", |offered| &offered.resources);
        let (templates, listed_templates) = located(sources, "uriTemplate", |offered| &offered.templates);
        let lists = [
            CachedList::new(ServerList::Tools, &listed_tools),
            CachedList::new(ServerList::Prompts, &listed_prompts),
            CachedList::new(ServerList::Resources, &listed_resources),
            CachedList::new(ServerList::ResourceTemplates, &listed_templates),
        ];
        let server_indexes = sources.iter().map(|source| source.server_index).collect();
        Self { server_indexes, tools, prompts, resources, templates, lists }
    }

    /// Returns the owner for a server's number and the server's name for an item. Puts the index of the server in the place of the number.
    fn of_server(&self, number: usize, name: &str) -> Option<Owner> {
        Some(Owner { server: *self.server_indexes.get(number)?, name: name.to_owned() })
    }

    /// Returns the owner of an item by the number of a server, which counts from 1 since our own tools have 0. Returns `None` for a tool of
    /// ours.
    fn behind_ours(&self, owner: Option<&Owner>) -> Option<Owner> {
        let owner = owner?;
        self.of_server(owner.server.checked_sub(1)?, &owner.name)
    }

    /// Returns the owner of this tool, or `None` if it is not a server's.
    #[must_use]
    pub fn tool(&self, public: &str) -> Option<Owner> {
        self.behind_ours(self.tools.owner(public))
    }

    /// Returns the public names of all tools of servers.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.listed().filter(|(_, owner)| owner.server > 0).map(|(public, _)| public)
    }

    /// Returns the public names of all prompts.
    pub fn prompt_names(&self) -> impl Iterator<Item = &str> {
        self.prompts.listed().map(|(public, _)| public)
    }

    /// Returns the owner of this prompt, or `None` if there is none.
    #[must_use]
    pub fn prompt(&self, public: &str) -> Option<Owner> {
        self.behind_ours(self.prompts.owner(public))
    }

    /// Returns the owner of this resource, and the server's URI for it. The resource is listed, names its server, or fits a template.
    /// Returns `None` otherwise.
    #[must_use]
    pub fn resource(&self, public: &str) -> Option<Owner> {
        if let Some((server, own)) = self.resources.owner(public) {
            return self.of_server(server, own);
        }
        // Of several templates that fit, the one with the longest literals counts.
        let fitting = self.templates.listed().filter(|(_, _, own)| template::fits(own, public));
        let (_, server, _) = fitting.max_by_key(|(_, _, own)| template::literals(own))?;
        self.of_server(server, public)
    }

    /// Returns the owner of this template, and the server's text of it.
    #[must_use]
    pub fn template(&self, public: &str) -> Option<Owner> {
        let (server, own) = self.templates.owner(public)?;
        self.of_server(server, own)
    }

    /// Returns the public URI of a resource that the server at this index has just mentioned. The URI stays as the server wrote it if the
    /// server is not in the catalog any more.
    #[must_use]
    pub fn uri_of(&self, server_index: usize, uri: &str) -> String {
        match self.server_indexes.iter().position(|known| *known == server_index) {
            Some(server) => self.resources.public_of(server, uri),
            None => uri.to_owned(),
        }
    }

    /// Returns a whole list as JSON, for a client of this era. Tools of our own are not in it.
    #[must_use]
    pub fn list(&self, list: ServerList, era: Era) -> &str {
        let listed = match list {
            ServerList::Tools => &self.lists[0],
            ServerList::Prompts => &self.lists[1],
            ServerList::Resources => &self.lists[2],
            ServerList::ResourceTemplates => &self.lists[3],
        };
        match era {
            Era::Legacy => listed.legacy.as_ref(),
            Era::Modern => listed.modern.as_ref(),
        }
        .unwrap_or(&listed.written)
    }

    /// Returns the tools and prompts that would have had the same name. Servers are numbered from 1 in their order; our own tools have 0.
    pub fn clashes(&self) -> impl Iterator<Item = &NameClash> {
        self.tools.clashes().iter().chain(self.prompts.clashes())
    }
}

impl CachedList {
    fn new(list: ServerList, items: &[String]) -> Self {
        let written = format!("[{}]", items.join(","));
        let whole = format!(r#"{{"{}":{written}}}"#, list.member());
        let translated =
            Json::new(whole.as_bytes()).and_then(|whole| result::to_legacy(list.method(), whole));
        let legacy = translated.filter(|translated| *translated != whole).and_then(|translated| {
            Some(Json::new(translated.as_bytes())?.member(list.member())?.get().to_owned())
        });
        let tools = Json::new(written.as_bytes()).filter(|_| list == ServerList::Tools);
        let modern = tools.and_then(result::tools_to_modern);
        Self { written, legacy, modern }
    }
}

/// Returns the names of tools or prompts, and the items under them.
fn named(
    style: &Style,
    own: &[&str],
    sources: &[CatalogSource<'_>],
    of: impl Fn(&ListedItems) -> &Vec<Box<RawValue>>,
) -> (Names, Vec<String>) {
    let found: Vec<CatalogItems<'_>> =
        sources.iter().map(|source| CatalogItems::new(of(source.offered), "name")).collect();
    let own = ServerNames { prefix: "", names: own.to_vec() };
    let listed = sources.iter().zip(&found);
    let listed = listed.map(|(source, items)| ServerNames { prefix: source.prefix, names: items.names() });
    let listed: Vec<ServerNames<'_>> = std::iter::once(own).chain(listed).collect();
    let names = Names::new(style, &listed);
    let under = |(public, owner): (&str, &Owner)| {
        found.get(owner.server.checked_sub(1)?)?.under(&owner.name, "name", public)
    };
    let listed = names.listed().filter_map(under).collect();
    (names, listed)
}

/// Returns the URIs of resources or templates, and the items under them.
fn located(
    sources: &[CatalogSource<'_>],
    member: &str,
    of: impl Fn(&ListedItems) -> &Vec<Box<RawValue>>,
) -> (Uris, Vec<String>) {
    let found: Vec<CatalogItems<'_>> =
        sources.iter().map(|source| CatalogItems::new(of(source.offered), member)).collect();
    let listed = sources.iter().zip(&found);
    let listed: Vec<Resources<'_>> =
        listed.map(|(source, items)| Resources { server: source.name, uris: items.names() }).collect();
    let uris = Uris::new(&listed);
    let under = |(public, server, own): (&str, usize, &str)| found.get(server)?.under(own, member, public);
    let listed = uris.listed().filter_map(under).collect();
    (uris, listed)
}

/// The items of one list of one server, by their names. An item without a name cannot be asked for, and is left out.
struct CatalogItems<'a> {
    order: Vec<String>,
    by_name: HashMap<String, Json<'a>>,
}

impl<'a> CatalogItems<'a> {
    fn new(items: &'a [Box<RawValue>], member: &str) -> Self {
        let mut known = Self { order: Vec::new(), by_name: HashMap::new() };
        for raw in items {
            let item = Json::new(raw.get().as_bytes());
            let Some(name) = item.and_then(|item| item.member(member)?.text()) else { continue };
            // Of several items with one name the first counts, as with `Names`.
            if let Entry::Vacant(vacant) = known.by_name.entry(name.clone().into_owned()) {
                known.order.push(name.into_owned());
                item.map(|item| vacant.insert(item));
            }
        }
        known
    }

    fn names(&self) -> Vec<&str> {
        self.order.iter().map(String::as_str).collect()
    }

    fn under(&self, own: &str, member: &str, public: &str) -> Option<String> {
        renamed(*self.by_name.get(own)?, member, public)
    }
}

fn renamed(item: Json<'_>, member: &str, public: &str) -> Option<String> {
    // An item whose public name is its own stays as it was written.
    if item.member(member).and_then(Json::text).is_some_and(|own| own == public) {
        return Some(item.get().to_owned());
    }
    let public = serde_json::Value::from(public).to_string();
    Some(Splice::new(item).set(member, public).apply()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(items: &[&str]) -> Vec<Box<RawValue>> {
        items.iter().map(|item| RawValue::from_string((*item).to_owned()).expect("JSON")).collect()
    }

    fn catalog(sources: &[(&str, &str, &ListedItems)]) -> Catalog {
        // As after some have gone.
        let sources = (GONE..).zip(sources);
        let sources: Vec<CatalogSource<'_>> = sources
            .map(|(server_index, &(name, prefix, offered))| CatalogSource {
                server_index,
                name,
                prefix,
                offered,
            })
            .collect();
        Catalog::new(&Style::default(), &["get_job_status"], &sources)
    }

    /// Servers that were there before.
    const GONE: usize = 5;

    fn owner(server: usize, name: &str) -> Option<Owner> {
        Some(Owner { server: GONE + server, name: name.to_owned() })
    }

    #[test]
    fn what_is_listed_is_as_the_server_wrote_it_but_for_its_name() {
        let time = ListedItems {
            tools: raw(&["{ \"x-vendor\" : 1.0e0, \"name\" : \"now\" }"]),
            ..ListedItems::default()
        };
        let plain = ListedItems {
            tools: raw(&[
                "{ \"name\":\"\\u0065cho\" }",
                r#"{"name":"get_job_status","a":1}"#,
                r#"{"nameless":1}"#,
                "5",
            ]),
            ..ListedItems::default()
        };
        let catalog = catalog(&[("time", "time", &time), ("plain", "", &plain)]);
        let list = catalog.list(ServerList::Tools, Era::Modern);
        let other = catalog.clashes().next().expect("it has the name of one of ours");
        let expect = format!(
            "[{{ \"x-vendor\" : 1.0e0, \"name\" : \"time__now\" }},{{ \"name\":\"\\u0065cho\" }},{{\"name\":\"{}\",\"a\":1}}]",
            other.given
        );
        assert_eq!(list, expect);
        assert_eq!(catalog.tool("time__now"), owner(0, "now"));
        assert_eq!(catalog.tool("echo"), owner(1, "echo"));
        assert_eq!(catalog.tool(&other.given), owner(1, "get_job_status"));
        assert_eq!(catalog.tool("get_job_status"), None, "it is ours");
        assert_eq!((catalog.tool("now"), catalog.prompt("echo")), (None, None));
    }

    #[test]
    fn a_legacy_client_is_listed_what_it_can_read() {
        let offered = ListedItems {
            tools: raw(&[r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#]),
            prompts: raw(&[r#"{"name":"p"}"#]),
            ..ListedItems::default()
        };
        let catalog = catalog(&[("s", "s", &offered)]);
        let legacy = r#"[{"name":"s__a","inputSchema":{"type":"object"}}]"#;
        assert_eq!(catalog.list(ServerList::Tools, Era::Legacy), legacy);
        assert!(catalog.list(ServerList::Tools, Era::Modern).contains("outputSchema"));
        assert_eq!(catalog.list(ServerList::Prompts, Era::Legacy), r#"[{"name":"s__p"}]"#);
        assert_eq!(catalog.list(ServerList::Resources, Era::Legacy), "[]");
    }

    #[test]
    fn a_modern_client_hears_nothing_of_tasks_that_it_does_not_know() {
        let tool = r#"{"name":"a","execution":{"taskSupport":"required"}}"#;
        let offered = ListedItems { tools: raw(&[tool]), ..ListedItems::default() };
        let catalog = catalog(&[("s", "", &offered)]);
        assert_eq!(catalog.list(ServerList::Tools, Era::Legacy), format!("[{tool}]"));
        assert_eq!(catalog.list(ServerList::Tools, Era::Modern), r#"[{"name":"a"}]"#);
    }

    #[test]
    fn a_resource_is_found_by_its_uri_its_server_or_a_template() {
        let files = ListedItems {
            resources: raw(&[r#"{"uri":"file:///a","name":"a"}"#]),
            templates: raw(&[
                r#"{"uriTemplate":"file:///{path}"}"#,
                r#"{"uriTemplate":"db://{table}/{row}"}"#,
            ]),
            ..ListedItems::default()
        };
        let others = ListedItems {
            resources: raw(&[r#"{"uri":"file:///a"}"#, r#"{"uri":"note:1"}"#]),
            templates: raw(&[
                r#"{"uriTemplate":"file:///notes/{note}"}"#,
                r#"{"uriTemplate":"db://{table}/{row}"}"#,
            ]),
            ..ListedItems::default()
        };
        let catalog = catalog(&[("files", "files", &files), ("others", "others", &others)]);
        assert_eq!(
            catalog.list(ServerList::Resources, Era::Modern),
            r#"[{"uri":"files+file:///a","name":"a"},{"uri":"others+file:///a"},{"uri":"note:1"}]"#
        );
        for (public, expect) in [
            ("files+file:///a", owner(0, "file:///a")),
            ("note:1", owner(1, "note:1")),
            ("others+file:///never/listed", owner(1, "file:///never/listed")),
            ("file:///b", owner(0, "file:///b")),
            ("file:///notes/7", owner(1, "file:///notes/7")),
            ("nobody:x", None),
        ] {
            assert_eq!(catalog.resource(public), expect, "{public}");
        }
        assert_eq!(catalog.template("others+db://{table}/{row}"), owner(1, "db://{table}/{row}"));
        assert_eq!(catalog.template("file:///{path}"), owner(0, "file:///{path}"));
        assert_eq!(catalog.uri_of(GONE, "file:///a"), "files+file:///a");
        assert_eq!(catalog.uri_of(0, "file:///a"), "file:///a", "nobody is there any more");
    }
}
