//! `[http]`: which clients may ask over HTTP, under which names, and how we prove our identity.
//!
//! Invariants: no message contains any part of a token, whatever is wrong with it. No file is opened here.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use unhang_net::{http::Url, oauth::ResourceSettings};

use super::{
    keys::{HTTP, RESOURCE, TLS, TOKEN, WEIGHT},
    section::{Complaint, SettingValue},
    server::{checked_url, shown_url, texts},
    shown::without_secrets,
};
use unhang_core::insertion::InsertEach;
use unhang_front::http::{Token, host_of, origin_of};

/// The settings of `[http]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// The tokens, each of which admits a client. Without any, and without `oauth`, no client is asked for one.
    pub tokens: Vec<Token>,
    /// The host names that clients may use, without ports, beside the address itself.
    pub allowed_hosts: Vec<String>,
    /// The origins of pages that may ask, as browsers send them.
    pub allowed_origins: Vec<String>,
    /// Whether clients of 2024-11-05 are served too, with the HTTP+SSE of that revision.
    pub sse: bool,
    /// The bytes that bodies of requests and whole replies may have together.
    pub message_memory: Option<u64>,
    /// The weight of each client, by its name: how many times as much as others it may have.
    pub weights: BTreeMap<String, NonZeroU32>,
    /// The certificate that proves our identity.
    pub tls: Option<TlsSettings>,
    /// The authorization server, which issues tokens as well.
    pub oauth: Option<ResourceSettings>,
}

/// The settings of `tls` in `[http]`: files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Our certificate, and the chain to its authority.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}

pub(super) fn read(field: &SettingValue<'_>, folder: &Path) -> Result<HttpSettings, Complaint> {
    let section = field.section(HTTP)?;
    let all = |name, read: fn(&SettingValue<'_>) -> Result<String, Complaint>| match section.get(name) {
        Some(list) => list.items()?.iter().map(read).collect(),
        None => Ok(Vec::new()),
    };
    Ok(HttpSettings {
        tokens: section.get("tokens").map(|field| tokens(&field)).transpose()?.unwrap_or_default(),
        allowed_hosts: all("allowed-hosts", host)?,
        allowed_origins: all("allowed-origins", origin)?,
        sse: section.get("sse").map(|field| field.flag()).transpose()?.unwrap_or_default(),
        message_memory: section.get("message-memory").map(|field| field.size()).transpose()?,
        weights: section.get("weights").map(|field| weights(&field)).transpose()?.unwrap_or_default(),
        tls: section.get("tls").map(|field| tls(&field, folder)).transpose()?,
        oauth: section.get("oauth").map(|field| oauth(&field)).transpose()?,
    })
}

fn tokens(field: &SettingValue<'_>) -> Result<Vec<Token>, Complaint> {
    if !field.is_list() {
        return Err(field.complaint("expected a list, as in [\"${TOKEN}\"]"));
    }
    field.items()?.iter().map(token).collect()
}

fn token(field: &SettingValue<'_>) -> Result<Token, Complaint> {
    if field.is_text() {
        return Token::new(field.plain()?).map_err(|why| field.complaint(why));
    }
    if !field.is_table() {
        return Err(field.complaint(
            "expected a text in quotes, or a table as in { token = \"${TOKEN}\", operator = true }",
        ));
    }
    let section = field.section(TOKEN)?;
    let text = section.require("token")?;
    let token = Token::new(text.plain()?).map_err(|why| text.complaint(why))?;
    let is_operator = section.get("operator").map(|field| field.flag()).transpose()?.unwrap_or_default();
    Ok(if is_operator { token.of_an_operator() } else { token })
}

fn weights(field: &SettingValue<'_>) -> Result<BTreeMap<String, NonZeroU32>, Complaint> {
    let weight = |(name, field): (&str, SettingValue<'_>)| {
        let is_token = name.strip_prefix("token ").is_some_and(|number| number.parse::<u64>().is_ok());
        let is_subject = name.strip_prefix("subject ").is_some_and(|subject| !subject.is_empty());
        if !is_token && !is_subject {
            return Err(field.complaint(
                "is not a client; the names of clients are such as \"token 1\" or \"subject NAME\"",
            ));
        }
        let weight = NonZeroU32::new(field.whole(WEIGHT)?).unwrap_or(NonZeroU32::MIN);
        Ok((name.to_owned(), weight))
    };
    field.fields()?.into_iter().map(weight).try_insert_each()
}

fn host(field: &SettingValue<'_>) -> Result<String, Complaint> {
    let (text, written) = (field.plain()?, field.text()?);
    host_of(&text).ok_or_else(|| {
        field.complaint(format!(
            "`{}` is not a host name alone, such as mcp.example.org: leave out scheme, port, path and star",
            without_secrets(written)
        ))
    })
}

fn origin(field: &SettingValue<'_>) -> Result<String, Complaint> {
    let (text, written) = (field.plain()?, field.text()?);
    origin_of(&text).ok_or_else(|| {
        field.complaint(format!(
            "`{}` is not an origin of a page, such as https://app.example.org: write scheme and host, and \
            the port if it has one",
            without_secrets(written)
        ))
    })
}

fn tls(field: &SettingValue<'_>, folder: &Path) -> Result<TlsSettings, Complaint> {
    let section = field.section(TLS)?;
    let file = |name| {
        let field = section.require(name)?;
        match field.plain()? {
            path if path.is_empty() => Err(field.complaint("is empty")),
            path => Ok(folder.join(path)),
        }
    };
    Ok(TlsSettings { certificate: file("certificate")?, key: file("key")? })
}

fn oauth(field: &SettingValue<'_>) -> Result<ResourceSettings, Complaint> {
    let section = field.section(RESOURCE)?;
    let (issuer, resource) = (section.require("issuer")?, section.require("resource")?);
    let scopes = section.get("scopes");
    let settings = ResourceSettings {
        issuer: bare_url(&issuer)?,
        resource: bare_url(&resource)?,
        scopes: scopes.as_ref().map(texts).transpose()?.unwrap_or_default(),
    };
    // Without https, anybody could pose as the authorization server.
    if !settings.is_secure() {
        let shown = shown_url(&issuer)?;
        return Err(issuer.complaint(format!("`{shown}` must be an https:// URL, or a URL on this machine")));
    }
    let is_scope = |scope: &String| {
        !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
    };
    match scopes.filter(|_| !settings.scopes.iter().all(is_scope)) {
        Some(field) => {
            Err(field.complaint("may have only ASCII characters, without blanks, quotes and backslashes"))
        }
        None => Ok(settings),
    }
}

/// Reads a URL that ends with its path, as those of authorization servers and resources do.
fn bare_url(field: &SettingValue<'_>) -> Result<String, Complaint> {
    let text = checked_url(field)?;
    let shown = shown_url(field)?;
    let url =
        Url::parse(&text).map_err(|error| field.complaint(format!("`{shown}` is not a URL: {error}")))?;
    let is_bare = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if is_bare { Ok(text) } else { Err(field.complaint("must not have a user name, `?` or `#`")) }
}
