//! Skills of servers (SEP-2640): folders of resources, each with a `SKILL.md`.
//!
//! Invariants
//!
//! - A file of a skill leads to the server that serves the skill, listed or not. If two servers have the folder, only a URI with the name
//!   of a server leads anywhere.
//! - An entry says what its server said, but for URIs.

use unhang_core::list::SKILLS;
use unhang_wire::Json;

use super::{
    catalog::{CatalogItems, CatalogSource},
    links::{OF_LISTED_SKILL, each_uri},
};

/// The folders of all listed skills, each with the number of its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SkillFolders(Vec<(String, usize)>);

/// Returns the entries of all skills as their servers wrote them, each with the number of its server.
pub(super) fn listed(sources: &[CatalogSource<'_>]) -> Vec<(usize, String)> {
    let of = |(number, source): (usize, &CatalogSource<'_>)| {
        let items = CatalogItems::new(&source.offered.skills, "uri");
        items.in_order().map(|item| (number, item.get().to_owned())).collect::<Vec<_>>()
    };
    sources.iter().enumerate().flat_map(of).collect()
}

/// Returns whether a server declares skills.
pub(super) fn declares(source: &CatalogSource<'_>) -> bool {
    source.offered.extensions.contains_key(SKILLS)
}

/// Returns the numbers of the servers that declare skills.
pub(super) fn declaring(sources: &[CatalogSource<'_>]) -> impl Iterator<Item = usize> {
    sources.iter().enumerate().filter(|(_, source)| declares(source)).map(|(number, _)| number)
}

/// Returns the URIs of the skills of one server, and of their files.
pub(super) fn uris_of(number: usize, listed: &[(usize, String)]) -> Vec<String> {
    let mut uris = Vec::new();
    for (_, skill) in listed.iter().filter(|(server, _)| *server == number) {
        if let Some(skill) = Json::new(skill.as_bytes()) {
            each_uri(skill, &OF_LISTED_SKILL, |uri| uris.push(uri.to_owned()));
        }
    }
    uris
}

impl SkillFolders {
    pub(super) fn new(listed: &[(usize, String)]) -> Self {
        let folder = |(number, skill): &(usize, String)| {
            let uri = Json::new(skill.as_bytes())?.member("uri")?.text()?;
            let (folder, _file) = uri.rsplit_once('/')?;
            Some((folder.to_owned(), *number))
        };
        Self(listed.iter().filter_map(folder).collect())
    }

    /// Returns the number of the server with the skill whose folder this is, or is in. Of nested skills the inner one counts. Returns `None`
    /// if several servers have that folder.
    pub(super) fn server_of(&self, uri: &str) -> Option<usize> {
        let is_in = |folder: &str| {
            uri.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let having = || self.0.iter().filter(|(folder, _)| is_in(folder));
        let (inner, number) = having().max_by_key(|(folder, _)| folder.len())?;
        let is_shared = having().any(|(folder, other)| folder == inner && other != number);
        (!is_shared).then_some(*number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_innermost_skill_of_one_server() {
        let listed: Vec<(usize, String)> = [
            (0, "skill://pdf/SKILL.md"),
            (1, "skill://pdf/forms/SKILL.md"),
            (0, "skill://both/SKILL.md"),
            (1, "skill://both/SKILL.md"),
            (1, "SKILL.md"),
        ]
        .map(|(number, uri)| (number, format!(r#"{{"uri":"{uri}","resources":"dynamic"}}"#)))
        .into();
        let folders = SkillFolders::new(&listed);
        for (uri, expect) in [
            ("skill://pdf", Some(0)),
            ("skill://pdf/never/listed.md", Some(0)),
            ("skill://pdf/forms/x.md", Some(1)),
            ("skill://pdfs/x.md", None),
            ("skill://both/x.md", None),
            ("skill://", None),
        ] {
            assert_eq!(folders.server_of(uri), expect, "{uri}");
        }
    }
}
