//! A store that is a folder.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use unhang_artifacts::{ArtifactError, ArtifactKey, ArtifactLocation, ArtifactStore, ObjectAccess};
use unhang_jobs::id::JobId;

fn open(path: &Path) -> ArtifactStore {
    let location = ArtifactLocation::parse(path.to_str().unwrap()).unwrap();
    ArtifactStore::new(&location, ObjectAccess::default())
}

fn store() -> (TempDir, ArtifactStore, ArtifactKey) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let key = ArtifactKey::of(JobId::random().unwrap(), 3, "results.json", b"content");
    (folder, store, key)
}

/// Returns the path of the object.
fn path(folder: &TempDir, key: &ArtifactKey) -> PathBuf {
    folder.path().join(key.to_string())
}

#[test]
fn an_object_is_written_for_its_owner_alone_and_read_again_and_removed() {
    let (folder, store, key) = store();
    store.put(&key, "content".into()).unwrap();
    // A second write of the same object finds it.
    store.put(&key, "content".into()).unwrap();
    assert_eq!(store.get(&key, "results.json", 7).unwrap(), b"content");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let object = path(&folder, &key);
    assert_eq!(mode(&object), 0o600);
    let attempt = object.parent().unwrap();
    assert_eq!((mode(attempt), mode(attempt.parent().unwrap())), (0o700, 0o700));
    // A killed writer leaves an unfinished file. The removal of the object removes that file too.
    let digest = object.file_name().unwrap().to_str().unwrap();
    fs::write(attempt.join(format!(".{digest}.abcdefghij23")), "con").unwrap();
    store.remove(&key).unwrap();
    store.remove(&key).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "empty folders go, too");
    assert!(matches!(store.get(&key, "results.json", 7), Err(ArtifactError::Missing { .. })));
}

#[test]
fn an_object_that_is_not_what_was_written_is_told_as_damaged() {
    let (folder, store, key) = store();
    store.put(&key, "content".into()).unwrap();
    for (content, expect) in [
        ("conten", "it has 6 bytes, and 7 were written"),
        ("contents", "it has more than 7 bytes"),
        ("cantent", "its 7 bytes are not those that were written"),
    ] {
        fs::write(path(&folder, &key), content).unwrap();
        let error = store.get(&key, "results.json", 7).unwrap_err();
        assert!(matches!(error, ArtifactError::Damaged { .. }), "{error:?}");
        let told = error.to_string();
        let named = [expect, &key.to_string(), store.shown()];
        assert!(named.iter().all(|part| told.contains(part)), "{told}");
    }
}

#[test]
fn a_folder_that_is_not_mounted_is_not_made() {
    let (folder, _, key) = store();
    let missing = folder.path().join("missing");
    let store = open(&missing);
    let told = store.put(&key, "content".into()).unwrap_err().to_string();
    assert!(told.contains(store.shown()) && told.contains("it may not be mounted"), "{told}");
    assert!(!missing.exists());
    fs::write(&missing, "").unwrap();
    let told = store.get(&key, "results.json", 7).unwrap_err().to_string();
    assert!(told.contains("it is not a folder"), "{told}");
}

#[test]
fn a_folder_that_cannot_be_written_is_told_as_a_refusal() {
    let (folder, store, key) = store();
    // Root writes into any folder, so this is a file in the place of a folder for it.
    let job = folder.path().join(key.to_string().split('/').next().unwrap());
    fs::write(&job, "").unwrap();
    let told = store.put(&key, "content".into()).unwrap_err().to_string();
    assert!(told.contains(store.shown()) && told.contains("cannot make"), "{told}");
    fs::remove_file(&job).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).unwrap();
    match store.put(&key, "content".into()) {
        Ok(()) => store.remove(&key).unwrap(),
        Err(error) => assert!(matches!(error, ArtifactError::Refused { .. }), "{error:?}"),
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
}
