//! The test programs of the fault build, and where cargo put them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::guards::Test;
use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run;

/// What makes it a fault build.
const FEATURE: &str = "unhang-switches/faults";

/// How long the build may take on a small machine.
const BUILD_LIMIT: Duration = Duration::from_mins(20);

/// The test programs, by room and target.
#[derive(Debug)]
pub(super) struct Programs(BTreeMap<(String, String), PathBuf>);

impl Programs {
    /// Builds all of them.
    pub(super) fn build(project: &Project) -> Result<Self, ChoreFailure> {
        let messages = project.below_target("xtask/faults-build.json");
        let task = project
            .cargo("faults-build", BUILD_LIMIT)
            .answer(messages.clone())
            .arguments(["test", "--no-run", "--workspace", "--locked", "--offline"])
            .arguments(["--features", FEATURE, "--message-format", "json-render-diagnostics"])
            .arguments(["--target-dir".as_ref(), project.below_target("faults").as_os_str()]);
        run::run(task)?;
        let text =
            fs::read_to_string(&messages).map_err(|error| ChoreFailure::io(messages.display(), &error))?;
        Ok(Self::read(&text))
    }

    /// Picks the test programs out of cargo's messages.
    fn read(messages: &str) -> Self {
        let programs = messages.lines().filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let is_test = message["profile"]["test"].as_bool()?;
            let program = message["executable"].as_str().filter(|_| is_test)?;
            let room = Path::new(message["manifest_path"].as_str()?).parent()?.file_name()?.to_str()?;
            let target = match message["target"]["kind"][0].as_str()? {
                "test" => message["target"]["name"].as_str()?,
                kind => kind,
            };
            Some(((room.to_owned(), target.to_owned()), PathBuf::from(program)))
        });
        Self(programs.collect())
    }

    /// The program that has a test.
    pub(super) fn of(&self, test: Test) -> Result<&Path, ChoreFailure> {
        let key = (test.room.to_owned(), test.target.to_owned());
        let program = self.0.get(&key).map(PathBuf::as_path);
        program.ok_or_else(|| ChoreFailure::new(format!("{} has no test program {}", test.room, test.target)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_told_from_other_artifacts() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/wire/Cargo.toml","target":{"kind":["lib"],"name":"unhang_wire"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/wire/Cargo.toml","target":{"kind":["lib"],"name":"unhang_wire"},"profile":{"test":true},"executable":"/t/wire-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/cli/Cargo.toml","target":{"kind":["bin"],"name":"unhang"},"profile":{"test":false},"executable":"/t/unhang"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/cli/Cargo.toml","target":{"kind":["test"],"name":"it"},"profile":{"test":true},"executable":"/t/it-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let programs = Programs::read(messages);
        assert_eq!(programs.0.len(), 2);
        let test = Test { room: "cli", target: "it", path: "any" };
        assert_eq!(programs.of(test).expect("it is there"), Path::new("/t/it-1"));
        assert!(programs.of(Test { target: "else", ..test }).is_err());
    }
}
