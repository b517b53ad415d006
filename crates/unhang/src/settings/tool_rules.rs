//! The rules of `[servers.NAME]` for the server's tools behind `unhang serve`: `allow`, `deny` and `[servers.NAME.tools.TOOL]`.
//!
//! Invariants: a malformed pattern is an error. Settings for a tool that is not offered are a warning.

use super::{
    keys::{COUNT, SERVER_TOOL},
    section::{Complaint, Section, SettingValue},
};
use unhang_gateway::route::rules::{Glob, NoGlob, ToolRule, ToolRules};

/// Reads the rules for the tools of one server.
pub(super) fn read(server: &Section<'_>) -> Result<ToolRules, Complaint> {
    let globs = |name| server.get(name).map(|field| globs(&field)).transpose();
    let mut rules = ToolRules {
        allow: globs("allow")?,
        deny: globs("deny")?.unwrap_or_default(),
        ..ToolRules::default()
    };
    for (name, field) in server.get("tools").map_or(Ok(Vec::new()), |field| field.fields())? {
        rules.tools.insert(name.to_owned(), rule(&field)?);
        if !rules.allows(name) {
            field.warn("is not offered, because of `allow` and `deny`, so this has no effect");
        }
    }
    Ok(rules)
}

fn globs(field: &SettingValue<'_>) -> Result<Vec<Glob>, Complaint> {
    let glob = |item: SettingValue<'_>| {
        item.plain()?.parse().map_err(|error: NoGlob| item.complaint(error.to_string()))
    };
    field.items()?.into_iter().map(glob).collect()
}

fn rule(field: &SettingValue<'_>) -> Result<ToolRule, Complaint> {
    let section = field.section(SERVER_TOOL)?;
    let duration = |name| section.get(name).map(|field| field.duration()).transpose();
    let count = section.get("max-in-flight").map(|field| field.whole(COUNT)).transpose()?;
    Ok(ToolRule {
        description: section.get("description").map(|field| field.text().map(str::to_owned)).transpose()?,
        call_timeout: duration("call-timeout")?,
        promote_after: section.get("promote-after").map(|field| field.promotion()).transpose()?,
        job_timeout: duration("job-timeout")?,
        join_same_call: section.get("join-same-call").map(|field| field.flag()).transpose()?,
        max_in_flight: count.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
    })
}
