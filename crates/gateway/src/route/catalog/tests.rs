//! What a client is listed, and who owns what it asks for.

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
            is_awaited: name == "late",
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
        templates: raw(&[r#"{"uriTemplate":"file:///{path}"}"#, r#"{"uriTemplate":"db://{table}/{row}"}"#]),
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
}

fn listing(resources: &[&str], tools: &[&str]) -> ListedItems {
    ListedItems {
        tools: raw(tools),
        resources: raw(resources),
        declares_resources: true,
        ..ListedItems::default()
    }
}

/// The result of this method with public URIs, from the server of this number.
fn public(catalog: &Catalog, server: usize, method: &str, result: &str) -> String {
    let result = RawValue::from_string(result.to_owned()).expect("JSON");
    catalog.with_public_uris(GONE + server, method, &result).unwrap_or(result).get().to_owned()
}

fn link(uri: &str) -> String {
    format!(r#"{{"content":[{{"type":"resource_link","uri":"{uri}"}}]}}"#)
}

#[test]
fn the_only_server_with_resources_has_those_that_nobody_lists() {
    let (files, time) = (listing(&[], &[]), ListedItems::default());
    let one = catalog(&[("time", "time", &time), ("files", "files", &files)]);
    assert_eq!(one.resource("demo://never/listed"), owner(1, "demo://never/listed"));
    assert_eq!(public(&one, 1, "tools/call", &link("demo://a")), link("demo://a"));
    // A server that declares no resources may have some all the same.
    assert_eq!(public(&one, 0, "tools/call", &link("demo://a")), link("time+demo://a"));
    assert_eq!(one.resource("time+demo://a"), owner(0, "demo://a"));
    let alone = catalog(&[("time", "time", &time)]);
    assert_eq!(alone.resource("demo://a"), owner(0, "demo://a"));
    assert_eq!(catalog(&[]).resource("demo://a"), None);
    let late = catalog(&[("files", "files", &files), ("late", "late", &time)]);
    assert_eq!(late.resource("demo://a"), None, "the other may have it");
    // A URI that looks as if it named the server.
    assert_eq!(public(&alone, 0, "tools/call", &link("time+demo://a")), link("time+time+demo://a"));
    assert_eq!(public(&alone, 0, "tools/call", &link("demo://time")), link("demo://time"));
}

#[test]
fn a_link_of_one_of_several_servers_leads_back_to_it() {
    let files = listing(&[r#"{"uri":"file:///a"}"#, r#"{"uri":"https://listed.example"}"#], &[]);
    let notes = ListedItems {
        templates: raw(&[r#"{"uriTemplate":"note://{id}"}"#]),
        ..listing(&[r#"{"uri":"file:///a"}"#], &[])
    };
    let catalog = catalog(&[("files", "files", &files), ("notes", "notes", &notes)]);
    for (server, uri, expect) in [
        (0, "demo://a", "files+demo://a"),
        (1, "demo://a", "notes+demo://a"),
        (0, "file:///a", "files+file:///a"),
        (1, "file:///a", "notes+file:///a"),
        (1, "note://7", "note://7"),
        (0, "note://7", "files+note://7"),
        // Clients read it by themselves, unless a server lists it.
        (1, "https://example.com/a", "https://example.com/a"),
        (0, "https://listed.example", "https://listed.example"),
        (1, "https://listed.example", "notes+https://listed.example"),
        // No name can stand before it.
        (1, "relative/path", "relative/path"),
        (1, "", ""),
    ] {
        assert_eq!(public(&catalog, server, "tools/call", &link(uri)), link(expect), "{server} {uri}");
        if expect.contains(':') && !expect.contains("example.com") {
            assert_eq!(catalog.resource(expect), owner(server, uri), "{expect}");
        }
    }
    assert_eq!(catalog.resource("demo://a"), None, "nobody can tell whose");
    let read = r#"{"contents":[{"uri":"file:///a","text":"x"}]}"#;
    assert_eq!(
        public(&catalog, 1, "resources/read", read),
        r#"{"contents":[{"uri":"notes+file:///a","text":"x"}]}"#
    );
    let unknown = RawValue::from_string(link("demo://a")).expect("JSON");
    assert!(catalog.with_public_uris(0, "tools/call", &unknown).is_none(), "the server has gone");
}

/// A tool with a view.
fn viewed(name: &str, view: &str, visibility: &str) -> String {
    format!(r#"{{"name":"{name}","_meta":{{"ui":{{"resourceUri":"{view}"{visibility}}}}}}}"#)
}

#[test]
fn views_of_two_servers_with_one_uri_are_told_apart_and_each_tool_names_its_own() {
    let tools =
        [viewed("show", "ui://clock/view", ""), viewed("secret", "ui://own", r#","visibility":["app"]"#)];
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let listed = r#"{"uri":"ui://clock/view"}"#;
    let (a, b) = (listing(&[listed], &tools), listing(&[], &tools[..1]));
    let plain = listing(&[], &[r#"{"name":"echo"}"#]);
    let catalog = catalog(&[("a", "a", &a), ("b", "b", &b), ("plain", "plain", &plain)]);
    assert_eq!(catalog.list(ServerList::Resources, Era::Modern), r#"[{"uri":"ui://a+clock/view"}]"#);
    assert_eq!(
        catalog.list(ServerList::Tools, Era::Modern),
        format!(
            r#"[{},{},{},{{"name":"plain__echo"}}]"#,
            viewed("a__show", "ui://a+clock/view", ""),
            viewed("a__secret", "ui://own", r#","visibility":["app"]"#),
            viewed("b__show", "ui://b+clock/view", "")
        )
    );
    assert_eq!(catalog.resource("ui://a+clock/view"), owner(0, "ui://clock/view"));
    assert_eq!(catalog.resource("ui://b+clock/view"), owner(1, "ui://clock/view"));
    assert_eq!(catalog.resource("ui://own"), owner(0, "ui://own"), "its tool alone mentions it");
    assert_eq!(catalog.resource("ui://clock/view"), None, "nobody can tell whose");
    assert!(catalog.has_tools_for_views_alone());

    // A view knows the names of its own server.
    assert_eq!(catalog.tool("secret"), owner(0, "secret"));
    assert_eq!(catalog.tool("show"), None, "two servers with views have it");
    assert_eq!(catalog.tool("echo"), None, "its server has no views");
}

#[test]
fn a_view_of_a_server_behind_another_gateway_calls_the_tools_of_that_server() {
    let tools = [
        viewed("a__show", "ui://view", ""),
        r#"{"name":"a__only"}"#.to_owned(),
        r#"{"name":"b__echo"}"#.to_owned(),
    ];
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let owner_of = |name: &str| {
        let (server, tool) = name.split_once("__").expect("a prefix");
        (name.to_owned(), (server.to_owned(), tool.to_owned()))
    };
    let owners = ["a__show", "a__only", "b__echo"].map(owner_of).into_iter().collect();
    let leader = ListedItems { owners, ..listing(&[], &tools) };
    let catalog = catalog(&[("leader", "", &leader)]);
    assert_eq!(catalog.tool("only"), owner(0, "a__only"));
    assert_eq!(catalog.tool("echo"), None, "its server has no views");
    assert_eq!([catalog.behind(GONE, "a__only"), catalog.behind(GONE, "only")], [Some("a"), None]);
    assert_eq!(catalog.behind(GONE + 1, "a__only"), None);
}

#[test]
fn a_resource_that_is_listed_with_a_name_has_that_name_in_results_although_a_template_fits() {
    let shared = r#"{"uri":"mem://both"}"#;
    let a = listing(&[shared], &[]);
    let b =
        ListedItems { templates: raw(&[r#"{"uriTemplate":"mem://{+path}"}"#]), ..listing(&[shared], &[]) };
    let catalog = catalog(&[("a", "a", &a), ("b", "b", &b)]);
    for (server, uri, expect) in
        [(1, "mem://both", "b+mem://both"), (1, "mem://x", "mem://x"), (0, "mem://x", "a+mem://x")]
    {
        assert_eq!(public(&catalog, server, "tools/call", &link(uri)), link(expect), "{server} {uri}");
    }
}

#[test]
fn a_uri_that_two_templates_fit_equally_well_belongs_to_the_first_server() {
    let having =
        || ListedItems { templates: raw(&[r#"{"uriTemplate":"mem://{+path}"}"#]), ..listing(&[], &[]) };
    let (a, b) = (having(), having());
    let catalog = catalog(&[("a", "a", &a), ("b", "b", &b)]);
    for (uri, expect) in [("mem://x", 0), ("a+mem://x", 0), ("b+mem://x", 1)] {
        assert_eq!(catalog.resource(uri), owner(expect, "mem://x"), "{uri}");
    }
    for (server, expect) in [(0, "mem://x"), (1, "b+mem://x")] {
        assert_eq!(public(&catalog, server, "tools/call", &link("mem://x")), link(expect), "{server}");
    }
}

#[test]
fn skills_of_all_servers_are_listed_and_those_with_one_uri_are_told_apart() {
    let skill = |prefix: &str, name: &str| {
        format!(
            r#"{{"uri":"{prefix}skill://{name}/SKILL.md","frontmatter":{{"name":"{name}"}},"resources":[{{"uri":"{prefix}skill://{name}/SKILL.md","size":1}},{{"uri":"{prefix}skill://{name}/a.md","size":2}}]}}"#
        )
    };
    let having = |skills: &[String], directory_read: bool| ListedItems {
        skills: raw(&skills.iter().map(String::as_str).collect::<Vec<_>>()),
        extensions: serde_json::from_str(&format!(
            r#"{{"io.modelcontextprotocol/skills":{{"directoryRead":{directory_read}}}}}"#
        ))
        .expect("extensions"),
        ..listing(&[], &[])
    };
    let a = having(&[skill("", "refunds"), skill("", "pdf"), skill("", "pdf")], false);
    let b = having(&[skill("", "refunds")], true);
    let catalog = catalog(&[("a", "a", &a), ("b", "b", &b)]);
    let expect = [skill("a+", "refunds"), skill("", "pdf"), skill("b+", "refunds")].join(",");
    assert_eq!(catalog.list(ServerList::Skills, Era::Modern), format!("[{expect}]"));
    assert_eq!(catalog.list(ServerList::Resources, Era::Modern), "[]", "they are listed as skills alone");
    for (uri, expect) in [
        ("a+skill://refunds/SKILL.md", owner(0, "skill://refunds/SKILL.md")),
        ("b+skill://refunds/a.md", owner(1, "skill://refunds/a.md")),
        ("b+skill://refunds", owner(1, "skill://refunds")),
        ("skill://pdf/SKILL.md", owner(0, "skill://pdf/SKILL.md")),
        ("skill://pdf", owner(0, "skill://pdf")),
        ("skill://pdf/never/listed.md", owner(0, "skill://pdf/never/listed.md")),
        ("skill://refunds/SKILL.md", None),
        ("skill://never/SKILL.md", None),
    ] {
        assert_eq!(catalog.resource(uri), expect, "{uri}");
    }
    let got = |prefix: &str| format!(r#"{{"skill":{}}}"#, skill(prefix, "refunds"));
    assert_eq!(public(&catalog, 1, "skills/get", &got("")), got("b+"));
    assert_eq!(catalog.extensions()["io.modelcontextprotocol/skills"]["directoryRead"], true);
}

#[test]
fn a_skill_that_nobody_lists_leads_back_though_templates_of_others_fit() {
    let having = |templates: &[&str], extensions: serde_json::Value| ListedItems {
        templates: raw(templates),
        extensions: extensions.as_object().expect("an object").clone(),
        ..listing(&[], &[])
    };
    let skills = || serde_json::json!({ "io.modelcontextprotocol/skills": {} });
    let one = having(&[r#"{"uriTemplate":"skill://{name}/SKILL.md"}"#], skills());
    let two = having(&[r#"{"uriTemplate":"skill://{+path}"}"#], skills());
    let web = having(
        &[r#"{"uriTemplate":"https://{+page}"}"#, r#"{"uriTemplate":"skill://web/{+page}"}"#],
        serde_json::json!({}),
    );
    let all = catalog(&[("one", "one", &one), ("two", "two", &two), ("web", "web", &web)]);
    let entry = |uri: &str| {
        format!(r#"{{"skill":{{"uri":"{uri}/SKILL.md","resources":[{{"uri":"{uri}/a.md","size":1}}]}}}}"#)
    };
    for (server, name, folder) in
        [(0, "one", "skill://x"), (1, "two", "skill://x"), (0, "one", "https://example.com/x")]
    {
        let named = format!("{name}+{folder}");
        assert_eq!(public(&all, server, "skills/get", &entry(folder)), entry(&named), "{folder}");
        // Whatever a client reads beside it comes from its server.
        assert_eq!(all.resource(&format!("{named}/b.md")), owner(server, &format!("{folder}/b.md")));
        assert_eq!(all.skill(&format!("{named}/SKILL.md")), owner(server, &format!("{folder}/SKILL.md")));
    }
    assert_eq!(all.skill("skill://x/SKILL.md"), owner(0, "skill://x/SKILL.md"));
    let children = r#"{"resources":[{"uri":"skill://x/SKILL.md"}]}"#;
    let named = r#"{"resources":[{"uri":"one+skill://x/SKILL.md"}]}"#;
    assert_eq!(public(&all, 0, "resources/directory/read", children), named);

    // Only one server has skills, and what others have is none.
    let mixed = catalog(&[("one", "one", &one), ("web", "web", &web)]);
    assert_eq!(mixed.resource("skill://web/x/a.md"), owner(1, "skill://web/x/a.md"));
    assert_eq!(mixed.skill("skill://web/x/SKILL.md"), owner(0, "skill://web/x/SKILL.md"));
    assert_eq!(mixed.skill("skill://web/x"), owner(0, "skill://web/x"));
    assert_eq!(public(&mixed, 0, "skills/get", &entry("skill://web/x")), entry("one+skill://web/x"));

    // Nobody else can have it.
    let alone = catalog(&[("one", "one", &one)]);
    assert_eq!(public(&alone, 0, "skills/get", &entry("skill://x")), entry("skill://x"));
}
