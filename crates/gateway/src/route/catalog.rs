//! Everything that the servers offer, in the words of a client: the lists that the client gets, and the owner of each item.
//!
//! Invariants
//!
//! - An item is as its server wrote it, byte for byte. Exceptions are the name or URI under which clients know it, and members that a
//!   client of the other era could not read.
//! - An item that is listed can be asked for, and the request goes to the server that listed it.
//! - A URI that a server mentions gets a public form that leads back to this server.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, HashMap, hash_map::Entry},
};

use serde_json::value::RawValue;
use unhang_bridge::{Era, Splice, result};
use unhang_wire::Json;

use super::{
    apps::{self, VIEW_MEMBER},
    extensions::{self, Extensions},
    links,
    names::{NameClash, Names, Owner, ServerNames, Style},
    skills::{self, SkillFolders},
    template, tool_headers,
    uris::{Resources, Uris, VIEW, has_scheme},
};
use unhang_core::{insertion::InsertEach, list::ServerList};
use unhang_upstream::http::param_headers::ParamHeaders;

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
    /// The items of `skills/list`.
    pub skills: Vec<Box<RawValue>>,
    /// The extensions that it declares.
    pub extensions: Extensions,
    /// Whether it declares resources. It may have resources that it does not list.
    pub declares_resources: bool,
    /// The owners of its tools, if this is a gateway that names them.
    pub owners: Owners,
}

impl ListedItems {
    /// Returns the items of this list.
    pub(crate) fn items(&self, list: ServerList) -> &Vec<Box<RawValue>> {
        match list {
            ServerList::Tools => &self.tools,
            ServerList::Prompts => &self.prompts,
            ServerList::Resources => &self.resources,
            ServerList::ResourceTemplates => &self.templates,
            ServerList::Skills => &self.skills,
        }
    }

    /// Returns the items of this list, to be changed.
    pub(crate) fn items_mut(&mut self, list: ServerList) -> &mut Vec<Box<RawValue>> {
        match list {
            ServerList::Tools => &mut self.tools,
            ServerList::Prompts => &mut self.prompts,
            ServerList::Resources => &mut self.resources,
            ServerList::ResourceTemplates => &mut self.templates,
            ServerList::Skills => &mut self.skills,
        }
    }
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
    /// Whether nobody knows yet what it offers.
    pub is_awaited: bool,
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
    skills: SkillFolders,
    /// The numbers of the servers that declare skills.
    with_skills: Vec<usize>,
    /// The number of the only server that can have a skill that nobody lists.
    only_with_skills: Option<usize>,
    /// The number of the only server that can have a resource that nobody lists.
    only_with_resources: Option<usize>,
    /// The tools of servers with views, by their own names; `None` for a name that several of them have.
    bare_tools: HashMap<String, Option<Owner>>,
    has_tools_for_views_alone: bool,
    /// Some server has views, so that results may name some.
    has_views: bool,
    /// The owners of the tools of other gateways, by the indexes of those.
    owners: BTreeMap<usize, Owners>,
    extensions: Extensions,
    lists: [CachedList; 5],
    /// The headers that tools want beside their arguments, by the public names of those tools.
    param_headers: HashMap<String, ParamHeaders>,
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
        let views: Vec<ServerViews> = sources.iter().map(|source| ServerViews::of(source.offered)).collect();
        let (tools, mut listed_tools) = named(style, own, sources, |offered| &offered.tools);
        let (prompts, listed_prompts) = named(style, &[], sources, |offered| &offered.prompts);
        let mut listed_skills = skills::listed(sources);
        let mentioned = |number: usize| {
            let of_skills = skills::uris_of(number, &listed_skills);
            views[number].uris.iter().cloned().chain(of_skills).collect()
        };
        let (resources, listed_resources) = located(sources, "uri", |offered| &offered.resources, mentioned);
        let (templates, listed_templates) =
            located(sources, "uriTemplate", |offered| &offered.templates, |_| Vec::new());
        let mut catalog = Self {
            server_indexes: sources.iter().map(|source| source.server_index).collect(),
            tools,
            prompts,
            resources,
            templates,
            skills: SkillFolders::new(&listed_skills),
            with_skills: skills::declaring(sources).collect(),
            only_with_skills: only_one(sources, skills::declares),
            only_with_resources: only_one(sources, |source| source.offered.declares_resources),
            bare_tools: bare_tools(&views),
            has_tools_for_views_alone: views.iter().any(|views| views.has_tools_for_views_alone),
            has_views: sources.iter().any(|source| source.offered.extensions.contains_key(apps::UI))
                || views.iter().any(|views| !views.uris.is_empty()),
            owners: sources
                .iter()
                .filter(|source| !source.offered.owners.is_empty())
                .map(|source| (source.server_index, source.offered.owners.clone()))
                .insert_each(),
            extensions: extensions::merged(sources.iter().map(|source| &source.offered.extensions)),
            lists: Default::default(),
            param_headers: HashMap::new(),
        };
        for (number, tool) in &mut listed_tools {
            catalog.lead_back(*number, tool, &links::OF_LISTED_TOOL);
        }
        for (number, skill) in &mut listed_skills {
            catalog.lead_back(*number, skill, &links::OF_LISTED_SKILL);
        }
        catalog.lists = [
            CachedList::new(ServerList::Tools, &listed_tools),
            CachedList::new(ServerList::Prompts, &listed_prompts),
            CachedList::new(ServerList::Resources, &listed_resources),
            CachedList::new(ServerList::ResourceTemplates, &listed_templates),
            CachedList::new(ServerList::Skills, &listed_skills),
        ];
        catalog.param_headers = tool_headers::of_listed(listed_tools.iter().map(|(_, tool)| tool.as_str()));
        catalog
    }

    /// Replaces the URIs at these places of an item of a server by their public forms.
    fn lead_back(&self, number: usize, item: &mut String, places: &[&[links::Step]]) {
        let json = Json::new(item.as_bytes());
        if let Some(changed) = json.and_then(|json| self.leading_back(number, json, places)) {
            *item = changed;
        }
    }

    fn leading_back(&self, number: usize, json: Json<'_>, places: &[&[links::Step]]) -> Option<String> {
        links::replaced(json, places, |uri| match self.public_uri(number, uri) {
            Cow::Borrowed(_as_it_was) => None,
            Cow::Owned(public) => Some(public),
        })
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

    /// Returns the owner of this tool, or `None` if it is not a server's. A tool of a server with views is also found by its own name, as
    /// its views call it.
    #[must_use]
    pub fn tool(&self, public: &str) -> Option<Owner> {
        if let Some(owner) = self.tools.owner(public) {
            return self.behind_ours(Some(owner));
        }
        let Owner { server, name } = self.bare_tools.get(public)?.as_ref()?;
        self.of_server(*server, name)
    }

    /// Returns whether some tools are for views alone ([`apps`]).
    #[must_use]
    pub fn has_tools_for_views_alone(&self) -> bool {
        self.has_tools_for_views_alone
    }

    /// Returns the extensions that the servers declare together.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the headers that this tool wants beside its arguments (2026-07-28). Returns `None` if it wants none.
    #[must_use]
    pub fn param_headers(&self, public: &str) -> Option<&ParamHeaders> {
        self.param_headers.get(public)
    }

    /// Returns the server behind the gateway of this index that has a tool of this name there.
    pub(crate) fn behind(&self, server: usize, tool: &str) -> Option<&str> {
        self.owners.get(&server)?.get(tool).map(|(behind, _)| behind.as_str())
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

    /// Returns the owner of this resource, and the server's URI for it. The resource is listed, names its server, belongs to a listed
    /// skill, fits a template, or can be of one server alone. Returns `None` otherwise.
    #[must_use]
    pub fn resource(&self, public: &str) -> Option<Owner> {
        let (number, own) = self.owner_of_resource(public)?;
        self.of_server(number, &own)
    }

    fn owner_of_resource<'a>(&'a self, public: &'a str) -> Option<(usize, Cow<'a, str>)> {
        self.resources
            .owner(public)
            .or_else(|| Some((self.skills.server_of(public)?, public.into())))
            .or_else(|| Some((self.server_with_template(public, |_| true)?, public.into())))
            .or_else(|| Some((self.only_with_resources?, public.into())))
    }

    /// Returns the owner of this skill, or of a folder of one, and the server's URI for it. A server that declares no skills has none,
    /// whatever its templates fit.
    #[must_use]
    pub fn skill(&self, public: &str) -> Option<Owner> {
        let listed = || Some((self.skills.server_of(public)?, public.into()));
        let has_skills = |number| self.with_skills.contains(&number);
        let fitting = || Some((self.server_with_template(public, has_skills)?, public.into()));
        let only = || Some((self.only_with_skills?, public.into()));
        let (number, own) = self.resources.owner(public).or_else(listed).or_else(fitting).or_else(only)?;
        self.of_server(number, &own)
    }

    /// Returns the number of the server with the template that fits this URI. Of several, the one with the longest literals counts, and of
    /// equals the first, as for names.
    fn server_with_template(&self, uri: &str, may_be: impl Fn(usize) -> bool) -> Option<usize> {
        let fits = |&(_, number, own): &(&str, usize, &str)| may_be(number) && template::fits(own, uri);
        let fitting = self.templates.listed().filter(fits);
        fitting.min_by_key(|(_, _, own)| Reverse(template::literals(own))).map(|(_, number, _)| number)
    }

    /// Returns the owner of this template, and the server's text of it.
    #[must_use]
    pub fn template(&self, public: &str) -> Option<Owner> {
        let (server, own) = self.templates.owner(public)?;
        self.of_server(server, &own)
    }

    /// Returns the result of a server with the public form of each URI in it. Returns `None` if the result can stay as it is.
    #[must_use]
    pub fn with_public_uris(
        &self,
        server_index: usize,
        method: &str,
        result: &RawValue,
    ) -> Option<Box<RawValue>> {
        let places = links::of_result(method);
        if places.is_empty() || !self.may_have_links(result.get()) {
            return None;
        }
        let number = self.server_indexes.iter().position(|known| *known == server_index)?;
        let json = Json::new(result.get().as_bytes())?;
        let changed = match links::is_of_skills(method) {
            true => links::replaced(json, places, |uri| self.public_uri_of_skill(number, uri)),
            false => self.leading_back(number, json, places),
        };
        RawValue::from_string(changed?).ok()
    }

    /// Returns whether a result may have URIs with another public form, so that most results need no parsing.
    fn may_have_links(&self, result: &str) -> bool {
        let has_some = result.contains(r#""uri""#) || (self.has_views && result.contains(VIEW_MEMBER));
        // The URIs of the only server stay, unless they look as if they named a server.
        has_some && (self.server_indexes.len() > 1 || self.resources.may_name(result))
    }

    /// Returns the public form of a URI that a server has mentioned: the URI itself if it leads back to the server, and the URI with the
    /// name of the server otherwise. Clients can read pages of the web by themselves.
    fn public_uri<'a>(&self, number: usize, uri: &'a str) -> Cow<'a, str> {
        let leads_back =
            self.owner_of_resource(uri).is_some_and(|(owner, own)| owner == number && own == uri);
        let is_of_the_web = || {
            ["https://", "http://"].iter().any(|scheme| uri.starts_with(scheme))
                && !self.resources.is_public(uri)
        };
        let named = || self.resources.with_name(number, uri);
        match leads_back || !has_scheme(uri) || is_of_the_web() {
            // A resource that is listed with a name has that name everywhere.
            true if !self.resources.is_public(&named()) => uri.into(),
            _ => named().into(),
        }
    }

    /// Returns the public form of a URI in the entry or in a folder of a skill, or `None` if the URI stays. Clients read files of a skill by
    /// URIs beside its own, which nobody lists and which templates of other servers may fit. So a URI that leads back by a template alone
    /// gets the name of its server. A URI without a name that leads to another server gets it too, whatever its scheme.
    fn public_uri_of_skill(&self, number: usize, uri: &str) -> Option<String> {
        if let Cow::Owned(public) = self.public_uri(number, uri) {
            return Some(public);
        }
        let owner = self.owner_of_resource(uri);
        let leads_elsewhere = owner.is_some_and(|(owner, own)| owner != number || own != uri);
        let is_known = self.resources.owner(uri).is_some() || self.skills.server_of(uri).is_some();
        let is_by_template = !is_known && self.server_with_template(uri, |_| true).is_some();
        let is_alone = self.only_with_resources == Some(number);
        (leads_elsewhere || (is_by_template && !is_alone)).then(|| self.resources.with_name(number, uri))
    }

    /// Returns a whole list as JSON, for a client of this era. Tools of our own are not in it.
    #[must_use]
    pub fn list(&self, list: ServerList, era: Era) -> &str {
        let listed = match list {
            ServerList::Tools => &self.lists[0],
            ServerList::Prompts => &self.lists[1],
            ServerList::Resources => &self.lists[2],
            ServerList::ResourceTemplates => &self.lists[3],
            ServerList::Skills => &self.lists[4],
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
    fn new(list: ServerList, items: &[(usize, String)]) -> Self {
        let items: Vec<&str> = items.iter().map(|(_, item)| item.as_str()).collect();
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

/// The views of one server, or of all servers behind another gateway.
#[derive(Debug, Default)]
struct ServerViews {
    /// The URIs of views that its tools name.
    uris: Vec<String>,
    /// Its tools that views may call, if it has views: each with the name that views know, and the name that it lists.
    tools: Vec<(String, String)>,
    has_tools_for_views_alone: bool,
}

impl ServerViews {
    fn of(offered: &ListedItems) -> Self {
        let mut views = Self::default();
        // Most servers have no views, and their tools need not be read.
        if !offered.tools.iter().any(|tool| tool.get().contains(VIEW_MEMBER)) {
            return views;
        }
        // The servers with views, and all tools that views may call, by their servers. A server that is no gateway is its own.
        let (mut with_views, mut callable) = (Vec::new(), Vec::new());
        for tool in offered.tools.iter().filter_map(|raw| Json::new(raw.get().as_bytes())) {
            let Some(name) = tool.member("name").and_then(Json::text).map(Cow::into_owned) else { continue };
            let (server, bare) =
                offered.owners.get(&name).cloned().unwrap_or_else(|| (String::new(), name.clone()));
            let uris = apps::views_of(tool).into_iter().filter(|uri| uri.starts_with(VIEW));
            let before = views.uris.len();
            views.uris.extend(uris);
            if views.uris.len() > before {
                with_views.push(server.clone());
            }
            views.has_tools_for_views_alone |= apps::is_for_views_alone(tool);
            if apps::is_for_views(tool) {
                callable.push((server, bare, name));
            }
        }
        let of_views = callable.into_iter().filter(|(server, ..)| with_views.contains(server));
        views.tools = of_views.map(|(_, bare, name)| (bare, name)).collect();
        views
    }
}

/// Returns the tools of servers with views, by their own names; `None` for a name that several of them have.
fn bare_tools(views: &[ServerViews]) -> HashMap<String, Option<Owner>> {
    let mut found: HashMap<String, Option<Owner>> = HashMap::new();
    for (server, views) in views.iter().enumerate() {
        for (bare, name) in &views.tools {
            let owner = Owner { server, name: name.clone() };
            match found.entry(bare.clone()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(Some(owner));
                }
                Entry::Occupied(mut occupied) => {
                    if occupied.get().as_ref().is_some_and(|known| *known != owner) {
                        occupied.insert(None);
                    }
                }
            }
        }
    }
    found
}

/// Returns the number of the only server that can have what nobody lists: the only one at all, or the only one that declares such things
/// once all are known.
fn only_one(sources: &[CatalogSource<'_>], declares: impl Fn(&CatalogSource<'_>) -> bool) -> Option<usize> {
    if sources.len() == 1 {
        return Some(0);
    }
    let may_have = |source: &CatalogSource<'_>| declares(source) || source.is_awaited;
    let mut having = sources.iter().enumerate().filter(|(_, source)| may_have(source));
    let (number, source) = having.next().filter(|_| having.next().is_none())?;
    (!source.is_awaited).then_some(number)
}

/// Returns the names of tools or prompts, and the items under them, each with the number of its server.
fn named(
    style: &Style,
    own: &[&str],
    sources: &[CatalogSource<'_>],
    of: impl Fn(&ListedItems) -> &Vec<Box<RawValue>>,
) -> (Names, Vec<(usize, String)>) {
    let found: Vec<CatalogItems<'_>> =
        sources.iter().map(|source| CatalogItems::new(of(source.offered), "name")).collect();
    let own = ServerNames { prefix: "", names: own.to_vec() };
    let listed = sources.iter().zip(&found);
    let listed = listed.map(|(source, items)| ServerNames { prefix: source.prefix, names: items.names() });
    let listed: Vec<ServerNames<'_>> = std::iter::once(own).chain(listed).collect();
    let names = Names::new(style, &listed);
    let under = |(public, owner): (&str, &Owner)| {
        let number = owner.server.checked_sub(1)?;
        Some((number, found.get(number)?.under(&owner.name, "name", public)?))
    };
    let listed = names.listed().filter_map(under).collect();
    (names, listed)
}

/// Returns the URIs of resources or templates, and the items under them, each with the number of its server. `mentioned` are
/// further URIs of a server that are not listed.
fn located(
    sources: &[CatalogSource<'_>],
    member: &str,
    of: impl Fn(&ListedItems) -> &Vec<Box<RawValue>>,
    mentioned: impl Fn(usize) -> Vec<String>,
) -> (Uris, Vec<(usize, String)>) {
    let found: Vec<CatalogItems<'_>> =
        sources.iter().map(|source| CatalogItems::new(of(source.offered), member)).collect();
    let listed = sources.iter().zip(&found).enumerate();
    let listed = listed.map(|(number, (source, items))| Resources {
        server: source.name,
        uris: items.names(),
        mentioned: mentioned(number),
    });
    let uris = Uris::new(&listed.collect::<Vec<_>>());
    let under = |(public, number, own): (&str, usize, &str)| {
        Some((number, found.get(number)?.under(own, member, public)?))
    };
    let listed = uris.listed().filter_map(under).collect();
    (uris, listed)
}

/// The items of one list of one server, by their names. An item without a name cannot be asked for, and is left out.
pub(super) struct CatalogItems<'a> {
    order: Vec<String>,
    by_name: HashMap<String, Json<'a>>,
}

impl<'a> CatalogItems<'a> {
    pub(super) fn new(items: &'a [Box<RawValue>], member: &str) -> Self {
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

    /// Returns the items in their order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Json<'a>> {
        self.order.iter().filter_map(|name| self.by_name.get(name).copied())
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
mod tests;
