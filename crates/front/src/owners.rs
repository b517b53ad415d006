//! Finds the server that a request is about, and keeps requests until it is known.
//!
//! Invariants: a name that no server owns is refused once every server that could own it has been listed or has failed, and not before. The
//! time that a request has waited for that is part of its limit.

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::Value;
use unhang_bridge::Splice;
use unhang_wire::{self as wire, Id, Json};

use super::{
    client_request::{ClientRequest, MOST_ECHOED, invalid_params},
    effects::ReplyRoute,
    session_catalog::SessionCatalog,
    subscriptions::{SUBSCRIBE, UNSUBSCRIBE},
};
use unhang_core::{
    refusal::ErrorReport,
    wording::{nearest, shortened},
};
use unhang_gateway::{
    KnownServers,
    route::{catalog::Catalog, names::Owner},
};
use unhang_upstream::{client::ServerList, http::param_headers::ReceivedParamHeaders};

/// A request to a server, in the server's own names.
pub(super) struct RequestSubject {
    pub method: &'static str,
    pub owner: Owner,
    /// The params with the server's own name for the subject, and otherwise as the client wrote them.
    pub params: String,
    /// The name of the subject for people.
    pub about: String,
    /// The requested URI, as JSON.
    pub asked_for: Option<String>,
}

/// The reason why no server is asked.
pub(super) enum NotAsked {
    /// There is no such resource.
    Resource(String),
    Told(ErrorReport<'static>),
}

/// A request about a name whose server is not known yet.
#[derive(Clone, Debug)]
pub(super) struct UnroutedRequest {
    pub method: &'static str,
    /// The name of its subject for people.
    pub about: String,
    /// The params as the client wrote them.
    params: String,
    /// The only server that may turn out to own the name, if there is just one.
    server: Option<String>,
    /// Servers are asked whether they have added its subject.
    pub awaits_refresh: bool,
    /// The headers that have to be compared with the arguments once the tool is known.
    param_headers: Option<Arc<ReceivedParamHeaders>>,
}

/// The subject of a request.
struct RequestedItem<'a> {
    method: &'static str,
    /// The member that holds its name.
    member: &'static str,
    /// The object that has that member, if it is not the params themselves.
    holder: Option<Json<'a>>,
    about: Option<String>,
}

impl<'a> RequestedItem<'a> {
    /// Reads the subject of a request. Returns `None` if requests of this method have no named subject.
    fn by(request: &ClientRequest<'a>) -> Option<RequestedItem<'a>> {
        let params = request.params.unwrap_or(Json::EMPTY);
        let (method, member, holder) = match &*request.method {
            "tools/call" => ("tools/call", "name", None),
            "prompts/get" => ("prompts/get", "name", None),
            "resources/read" => ("resources/read", "uri", None),
            "resources/directory/read" => ("resources/directory/read", "uri", None),
            "skills/get" => ("skills/get", "uri", None),
            SUBSCRIBE => (SUBSCRIBE, "uri", None),
            UNSUBSCRIBE => (UNSUBSCRIBE, "uri", None),
            "completion/complete" => {
                let reference = params.member("ref").unwrap_or(Json::EMPTY);
                let kind = reference.member("type").and_then(Json::text);
                let member = if kind.is_some_and(|kind| kind == "ref/prompt") { "name" } else { "uri" };
                ("completion/complete", member, Some(reference))
            }
            _ => return None,
        };
        let about = wire::text_member(holder.unwrap_or(params), member);
        Some(RequestedItem { method, member, holder, about })
    }

    fn owner(&self, catalog: &Catalog) -> Option<Owner> {
        let about = self.about.as_deref()?;
        match (self.method, self.member) {
            ("tools/call", _) => catalog.tool(about),
            (_, "name") => catalog.prompt(about),
            ("completion/complete", _) => catalog.template(about).or_else(|| catalog.resource(about)),
            ("skills/get" | "resources/directory/read", _) => catalog.skill(about),
            _ => catalog.resource(about),
        }
    }

    /// Returns the server that may own the subject although it lists nothing of the kind.
    fn unlisted(&self, known: &KnownServers) -> Option<Owner> {
        let about = self.about.as_deref()?;
        match (self.method, self.member) {
            ("tools/call", _) => known.tool(about),
            (_, "name") => known.prompt(about),
            _ => None,
        }
    }
}

/// Finds the server that owns the subject of a request. Fails with the refusal if there is none.
pub(super) fn subject(known: &KnownServers, request: &ClientRequest<'_>) -> Result<RequestSubject, NotAsked> {
    let catalog = &*known.catalog;
    let told = |happened: String, hint| NotAsked::Told(invalid_params(happened, hint));
    let Some(requested) = RequestedItem::by(request) else {
        return Err(told(
            format!("`{}` does not name its subject", request.method),
            "name the subject in the request",
        ));
    };
    let owner =
        requested.owner(catalog).or_else(|| requested.unlisted(known)).or_else(|| request.owner.clone());
    let RequestedItem { method, member, holder, about } = requested;
    let Some(about) = about else {
        let parent = if holder.is_some() { "params.ref" } else { "params" };
        let happened = format!("`{method}` has no name in {parent}.{member}");
        return Err(told(happened, "give the name there"));
    };
    let Some(owner) = owner else {
        return Err(match (method, member) {
            ("resources/read", _) => NotAsked::Resource(about),
            (_, "name") => NotAsked::Told(missing(known, "prompt", &about).unwrap_or_else(|| {
                no_such("prompt", "prompts/list names all prompts", &about, catalog.prompt_names())
            })),
            ("skills/get", _) => told(
                format!("there is no skill `{}`", shortened(&about, MOST_ECHOED)),
                "skills/list names the skills that servers list",
            ),
            _ => told(
                format!("there is no resource or template `{}`", shortened(&about, MOST_ECHOED)),
                "resources/templates/list names the templates",
            ),
        });
    };
    let params = request.params.unwrap_or(Json::EMPTY);
    let own = Value::from(owner.name.as_str()).to_string();
    let renamed =
        |object: Json<'_>| Splice::new(object).set(member, own.as_str()).apply().map(Cow::into_owned);
    let params = match holder {
        None => renamed(params),
        Some(reference) => renamed(reference)
            .and_then(|own| Splice::new(params).set("ref", own).apply().map(Cow::into_owned)),
    };
    // An object can be changed, so this succeeds.
    let params = params.unwrap_or_default();
    Ok(RequestSubject { method, owner, params, asked_for: (member == "uri").then_some(own), about })
}

/// Words the error for a name of a server that could not be listed, with the reason. Returns `None` if the name is not of such a server.
pub(super) fn missing(known: &KnownServers, what: &str, name: &str) -> Option<ErrorReport<'static>> {
    let (absent, why) = known.failed_owner(name)?;
    let name = shortened(name, MOST_ECHOED);
    let happened =
        format!("the {what} `{name}` is not available, because `{}` is not available: {why}", absent.server);
    Some(invalid_params(happened, "fix that server; unhang tries it again by itself"))
}

/// Words the error for an unknown name, and suggests the nearest known name.
pub(super) fn no_such<'a>(
    what: &str,
    hint: &'static str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> ErrorReport<'static> {
    let meant = nearest(name, known);
    let meant = meant.map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"));
    let happened = format!("there is no {what} `{}`{meant}", shortened(name, MOST_ECHOED));
    invalid_params(happened, hint)
}

/// Returns whether a request is about an unknown name that a starting server may still own.
pub(super) fn is_of_nobody_yet(session_catalog: &SessionCatalog, request: &ClientRequest<'_>) -> bool {
    let Some(known) = session_catalog.servers().filter(|known| !known.is_settled) else { return false };
    let Some(requested) = RequestedItem::by(request) else { return false };
    // The beginning of a name tells which server could own it; a URI does not tell that.
    let may_come = |about: &str| match requested.member {
        "name" => known.absent.iter().any(|absent| absent.may_bring(about)),
        _ => true,
    };

    requested.owner(&known.catalog).is_none()
        && requested.about.as_deref().is_some_and(|name| {
            may_come(name) && (requested.method != "tools/call" || !session_catalog.has_tool(name))
        })
}

/// Returns the list in which a server may have added the subject of a request without an announcement. Returns `None` if somebody owns the
/// subject, or servers were asked already.
pub(super) fn list_to_refresh(
    session_catalog: &SessionCatalog,
    request: &ClientRequest<'_>,
) -> Option<ServerList> {
    let known = session_catalog.servers().filter(|_| !request.were_lists_refreshed)?;
    let requested = RequestedItem::by(request)?;
    let name = requested.about.as_deref()?;
    let is_own = requested.method == "tools/call" && session_catalog.has_tool(name);
    if is_own || requested.owner(&known.catalog).is_some() || requested.unlisted(known).is_some() {
        return None;
    }
    Some(match (requested.method, requested.member) {
        ("tools/call", _) => ServerList::Tools,
        (_, "name") => ServerList::Prompts,
        ("skills/get", _) => ServerList::Skills,
        ("completion/complete", _) => ServerList::ResourceTemplates,
        _ => ServerList::Resources,
    })
}

impl UnroutedRequest {
    /// Keeps a request that has a named subject. Returns `None` for any other request.
    pub(super) fn of(request: &ClientRequest<'_>, known: Option<&KnownServers>) -> Option<UnroutedRequest> {
        let RequestedItem { method, about: Some(about), .. } = RequestedItem::by(request)? else {
            return None;
        };
        let params = request.params.unwrap_or(Json::EMPTY).get().to_owned();
        let absent = known.iter().flat_map(|known| known.absent.iter());
        let mut may_be = absent.filter(|absent| method != "resources/read" && absent.may_bring(&about));
        let server = may_be.next().filter(|_| may_be.next().is_none()).map(|absent| absent.server.clone());
        let param_headers = request.param_headers.clone().filter(|_| method == "tools/call");
        Some(UnroutedRequest { method, about, params, server, awaits_refresh: false, param_headers })
    }

    /// Returns whether its headers may still turn out to differ from its arguments.
    pub(super) fn has_unchecked_headers(&self) -> bool {
        self.param_headers.is_some()
    }

    /// Returns the request as it came, after it has waited this long.
    pub(super) fn request(&self, id: Id, route: ReplyRoute, waited: Duration) -> ClientRequest<'_> {
        ClientRequest {
            id,
            method: self.method.into(),
            params: Json::new(self.params.as_bytes()),
            route,
            waited,
            server: self.server.as_deref(),
            // It has waited for lists.
            were_lists_refreshed: true,
            owner: None,
            param_headers: self.param_headers.clone(),
        }
    }
}
