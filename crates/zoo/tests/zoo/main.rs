//! Every faulty server's vice is really there, and the well-behaved server is really well behaved.
#![cfg(test)]

mod answers;
mod combinations;
mod jobs;
mod lives;
mod load;
mod reference;
mod remotes;
mod slow;
mod tasks;
mod tee;
mod web;
mod zoo_client;

/// A vice that no test shows may have got lost; one that no end-to-end test meets is of no use.
#[test]
fn every_program_is_met_by_a_test_from_outside() {
    let own = texts(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/zoo"));
    let end_to_end = texts(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/it"));
    let meets = |texts: &[String], name: &str| {
        let starts = [format!("\"{name}\""), format!("\"{name} ")];
        texts.iter().any(|text| starts.iter().any(|start| text.contains(start)))
    };
    for faulty_server in unhang_zoo::faulty_servers() {
        assert!(meets(&end_to_end, faulty_server.name), "no end-to-end test meets {}", faulty_server.name);
        // A faulty client shows its faults only against a server, so only the end-to-end tests run it.
        let shown = faulty_server.kind == unhang_zoo::ProgramKind::Client || meets(&own, faulty_server.name);
        assert!(shown, "no test of the zoo shows the vice of {}", faulty_server.name);
    }
}

/// The sources in a folder and below it.
fn texts(folder: impl AsRef<std::path::Path>) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of the tests is readable") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            texts.extend(self::texts(path));
        } else {
            texts.push(std::fs::read_to_string(path).expect("a source is readable"));
        }
    }
    texts
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for line in [
        "unicorn",
        "slow-start soon",
        "leaves-daemon",
        "tee a b",
        "never-answers",
        "same-id-twice",
        "batches many -- cat",
        "exits-with 256",
        "dies-by 65",
        "odd-result",
        "leaves-behind --marker x",
        "auth-server --vice none",
    ] {
        let mut client = zoo_client::ZooClient::meet(line);
        assert_eq!(client.end().code(), Some(2), "{line}");
        assert_eq!(client.last_words().lines().count(), 1, "{line}");
        assert!(client.line().is_none(), "{line}");
    }
}

#[test]
fn the_list_and_the_page_are_shown() {
    for flag in ["--list", "--page"] {
        let mut client = zoo_client::ZooClient::meet(flag);
        assert!(client.end().success());
        let text: Vec<u8> = std::iter::from_fn(|| client.line()).flatten().collect();
        let text = String::from_utf8(text).expect("it is text");
        for faulty_server in unhang_zoo::faulty_servers() {
            assert!(text.contains(faulty_server.name), "{flag} lacks {}", faulty_server.name);
        }
    }
}

#[test]
fn the_program_itself_lists_what_there_is() {
    let printed = |words: &[&str]| {
        let mut client = zoo_client::ZooClient::of_the_program(words);
        let code = client.end().code();
        let text: Vec<u8> = std::iter::from_fn(|| client.line()).flatten().collect();
        (code, String::from_utf8(text).expect("text"))
    };
    let list = printed(&["zoo", "--list"]);
    assert!(list.0 == Some(0) && list.1.contains("well-behaved"), "{list:?}");
    assert_eq!(printed(&["--list"]), list);
    let help = printed(&["zoo", "--help"]);
    assert!(help.0 == Some(0) && help.1.contains("Usage: unhang-zoo NAME"), "{help:?}");
    assert_eq!(printed(&["--help"]), help);
}
