//! The image of a container: a program that needs no shared library, the certificates of well-known authorities, and a user.
//!
//! `buildah` builds the image from nothing and writes it as `docker load` and `podman load` read it. Its storage is below `target/`.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::debian_tool;
use crate::failure::ChoreFailure;
use crate::files;
use crate::run::{self, ProgramRun};
use crate::tools;

use super::archive::PAPERS;
use super::release::Release;

/// Where the program is in the image.
pub(super) const PROGRAM: &str = "usr/bin/unhang";
/// Where programs look for the authorities that they trust.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
const CONTAINERFILE: &str = "packaging/container/Containerfile";
/// The user of the image, as `Containerfile` names it.
const USERS: &str = "root:x:0:0::/root:/sbin/nologin\nunhang:x:10001:10001::/var/lib/unhang:/sbin/nologin\n";
const GROUPS: &str = "root:x:0:\nunhang:x:10001:\n";
/// No image comes from elsewhere, so none is refused.
const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// The image's name.
pub(super) fn name(release: &Release) -> String {
    format!("unhang:{}", release.version())
}

/// Where the image lies, if there is one.
pub(super) fn path(release: &Release) -> Option<PathBuf> {
    release.static_program()?;
    let processor = release.own().target.debian?;
    Some(release.folder().join(format!("unhang-{}-container-{processor}.tar.gz", release.version())))
}

pub(super) fn pack(release: &Release) -> Result<(), ChoreFailure> {
    let (Some(program), Some(path)) = (release.static_program(), path(release)) else { return Ok(()) };
    let stage = release.stage("container")?;
    let root = stage.join("root");
    files::copy_program(program, &root.join(PROGRAM))?;
    let authorities = tools::authorities(release.project())?;
    files::copy(&authorities.certificates, &root.join(AUTHORITIES))?;
    files::copy(&authorities.licence, &root.join("usr/share/doc/ca-certificates/LICENSE"))?;
    files::write(&root.join("etc/passwd"), USERS)?;
    files::write(&root.join("etc/group"), GROUPS)?;
    for licence in PAPERS.into_iter().filter(|paper| paper.starts_with("LICENSE")) {
        files::copy(&release.source(licence), &root.join("usr/share/doc/unhang").join(licence))?;
    }
    // The folder above that of the user's data is root's, as all others are.
    folder(&root.join("var/lib"), 0o755)?;
    // This also sets the modes of the folders.
    files::below(&root)?;
    folder(&stage.join("state"), 0o700)?;
    folder(&root.join("tmp"), 0o1777)?;
    files::copy(&release.source(CONTAINERFILE), &stage.join("Containerfile"))?;
    let storage = ImageStorage::new(release, "container-storage")?;
    let version = format!("VERSION={}", release.version());
    // The format of Docker has a random host name in it.
    let build = ["build", "--isolation", "chroot", "--format", "oci", "--timestamp", release.time()];
    let task = storage.task("container-build", &build, &stage);
    run::run(task.arguments(["--build-arg", &version, "--tag", &name(release), "."]))?;
    let unpacked = stage.join("image.tar");
    let archive = format!("docker-archive:{}:{}", unpacked.display(), name(release));
    run::run(
        storage.task("container-push", &["push", "--quiet"], &stage).arguments([name(release), archive]),
    )?;
    storage.remove()?;
    tools::GZIP.require(release.project())?;
    let task = release.task("container-gzip", "gzip", &stage);
    run::run(task.arguments(["-9", "--no-name", "--force", "image.tar"]))?;
    let packed = stage.join("image.tar.gz");
    fs::rename(&packed, &path).map_err(|error| ChoreFailure::io(path.display(), &error))
}

fn folder(path: &Path, mode: u32) -> Result<(), ChoreFailure> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(|error| ChoreFailure::io(path.display(), &error))
}

/// Images and containers of `buildah`, in a folder of their own.
#[derive(Debug)]
pub(super) struct ImageStorage<'a> {
    release: &'a Release<'a>,
    folder: PathBuf,
    buildah: PathBuf,
}

impl<'a> ImageStorage<'a> {
    /// Makes an empty one.
    pub(super) fn new(release: &'a Release<'a>, name: &str) -> Result<Self, ChoreFailure> {
        let buildah = debian_tool::BUILDAH.program(release.project())?;
        let folder = release.stage(name)?;
        files::write(&folder.join("policy.json"), POLICY)?;
        Ok(Self { release, folder, buildah })
    }

    /// A command of `buildah` with its first words, in `folder`.
    pub(super) fn task(&self, name: &str, words: &[&str], folder: &Path) -> ProgramRun {
        let task = self.release.task(name, &self.buildah, folder);
        let below = |name: &str| self.folder.join(name);
        let task = task.variable("HOME", below("home")).variable("TMPDIR", &self.folder);
        let storage: [OsString; 6] = [
            "--root".into(),
            below("images").into(),
            "--runroot".into(),
            below("run").into(),
            "--storage-driver".into(),
            "vfs".into(),
        ];
        let (command, others) = words.split_first().unwrap_or((&"help", &[]));
        let task = task.arguments(storage).arguments([command]);
        let reads_images = ["build", "from", "push"].contains(command);
        let policy: [OsString; 2] = ["--signature-policy".into(), below("policy.json").into()];
        let task = if reads_images { task.arguments(policy) } else { task };
        task.arguments(others)
    }

    /// Removes all of it. The files belong to whoever runs this, also those of other users in the image.
    pub(super) fn remove(self) -> Result<(), ChoreFailure> {
        fs::remove_dir_all(&self.folder).map_err(|error| ChoreFailure::io(self.folder.display(), &error))
    }
}

/// Returns why no image was made, or nothing.
pub(super) fn missing(release: &Release) -> &'static str {
    if path(release).is_some() {
        return "";
    }
    "no container: that needs a program with the C library in it, which `cargo xtask dist` builds on Linux unless --binary names a \
     program\n"
}
