//! The zoo as the soak uses it: arguments that make each faulty server quick enough for a thousand sessions, and groups for the
//! summary.
//!
//! # Invariants
//!
//! - Every server of the zoo's table takes part; one that needs an argument has it here.

use std::path::Path;

/// Arguments in place of a faulty server's own defaults. `{marker}` is the text by which survivors are found, `{folder}` a
/// folder of the session's own, `{lab}` the program with the faulty servers.
const ARGUMENTS: &[(&str, &[&str])] = &[
    ("busy-not-hung", &["300"]),
    ("deaf-flood", &["20000"]),
    ("dies-idle", &["150"]),
    ("flood-while-dying", &["5000"]),
    ("floods-after-cancel", &["5000"]),
    ("family-ignores-everything", &["--marker", "{marker}"]),
    ("floods-requests-to-client", &["500"]),
    ("forks-forever", &["--marker", "{marker}"]),
    ("giant-answer", &["1500000"]),
    ("giant-line-no-newline", &["3000000"]),
    ("hangs-idle", &["300", "--once", "{folder}/hung-once"]),
    ("json-logs", &["500"]),
    ("late-discover", &["500"]),
    ("leaves-daemon", &["--marker", "{marker}"]),
    ("leaves-daemon-empty-env", &["--marker", "{marker}"]),
    ("leaves-grandchild", &["--marker", "{marker}"]),
    ("leaves-setsid-child", &["--marker", "{marker}"]),
    ("leaves-three-sessions", &["--marker", "{marker}"]),
    ("never-answers", &["stuck"]),
    ("notification-flood", &["2000"]),
    ("prints-after-death", &["--marker", "{marker}"]),
    ("progress-flood", &["2000"]),
    ("restarts-broken", &["--count-file", "{folder}/starts", "2"]),
    ("restarts-dying", &["--count-file", "{folder}/starts", "2"]),
    ("restarts-refusing", &["--count-file", "{folder}/starts", "2"]),
    ("restarts-silent", &["--count-file", "{folder}/starts", "2"]),
    ("restarts-slowly", &["--count-file", "{folder}/starts", "--until", "{folder}/until", "2"]),
    ("slow-start", &["700"]),
    ("stderr-flood", &["300000"]),
    ("stderr-flood-while-dying", &["300000"]),
    ("tee", &["{folder}/from-client", "{folder}/from-server", "--", "{lab}", "zoo", "well-behaved"]),
];

/// What the words of a faulty server's command line stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandWords<'a> {
    pub(crate) marker: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) lab: &'a str,
}

/// The faulty servers that are servers.
pub(crate) fn names() -> Vec<&'static str> {
    unhang_zoo::faulty_servers()
        .filter(|faulty_server| faulty_server.kind.is_server())
        .map(|faulty_server| faulty_server.name)
        .collect()
}

/// The command of a faulty server, to follow `wrap --`.
pub(crate) fn command(faulty_server: &str, command_words: CommandWords<'_>) -> Vec<String> {
    let own =
        ARGUMENTS.iter().find(|(name, _)| *name == faulty_server).map_or(&[][..], |(_, arguments)| arguments);
    [command_words.lab, "zoo", faulty_server]
        .iter()
        .chain(own)
        .map(|word| fill(word, command_words))
        .collect()
}

fn fill(word: &str, command_words: CommandWords<'_>) -> String {
    let folder = command_words.folder.to_string_lossy();
    word.replace("{marker}", command_words.marker)
        .replace("{folder}", &folder)
        .replace("{lab}", command_words.lab)
}

/// What a faulty server is known for, in the summary.
pub(crate) fn group(faulty_server: &str) -> &'static str {
    let begins =
        |beginnings: &[&str]| beginnings.iter().any(|beginning| faulty_server.starts_with(beginning));
    if begins(&["well-behaved", "tee", "crlf", "server-error", "notification-before"]) {
        "honest"
    } else if begins(&["era-", "modern-only", "late-discover", "slow-", "requests-to-client"]) {
        "honest, but odd"
    } else if begins(&[
        "answers-then-dies",
        "dies-",
        "exits-",
        "flood-while-dying",
        "half-line-then-dies",
        "prints-after-death",
        "restarts-",
        "stderr-flood-while-dying",
    ]) {
        "dies"
    } else if begins(&["family-", "leaves-", "forks-", "ignores-", "sigint-", "stdin-thief"]) {
        "leaves or stays"
    } else if begins(&["never-", "hangs-", "stopped", "stops-", "silent-", "closes-", "half-line", "busy-"]) {
        "stuck"
    } else if begins(&[
        "deaf-flood",
        "floods-",
        "giant-",
        "notification-flood",
        "progress-flood",
        "stderr-",
        "json-logs",
    ]) {
        "floods"
    } else {
        "wrong answers"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_words() -> CommandWords<'static> {
        CommandWords { marker: "m-1", folder: Path::new("/f"), lab: "/bin/unhang-lab" }
    }

    #[test]
    fn an_animal_that_needs_an_argument_has_one() {
        for faulty_server in
            unhang_zoo::faulty_servers().filter(|faulty_server| faulty_server.kind.is_server())
        {
            let needs = !faulty_server.usage.is_empty() && !faulty_server.usage.starts_with('[');
            assert!(
                !needs || command(faulty_server.name, command_words()).len() > 3,
                "{} {}",
                faulty_server.name,
                faulty_server.usage
            );
        }
    }

    #[test]
    fn every_row_is_an_animal() {
        for (name, _) in ARGUMENTS {
            assert!(names().contains(name), "{name}");
        }
    }

    #[test]
    fn places_are_filled_in() {
        assert_eq!(
            command("leaves-daemon", command_words()),
            ["/bin/unhang-lab", "zoo", "leaves-daemon", "--marker", "m-1"]
        );
        assert_eq!(command("tee", command_words())[3..5], ["/f/from-client", "/f/from-server"]);
    }
}
