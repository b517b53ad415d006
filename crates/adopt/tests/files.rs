//! `TargetFile` on a real disk: it writes a file whole, refuses files that it may not replace, and leaves the old bytes after a failure.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use unhang_adopt::{
    AdoptionRecord, AdoptionRecords, ConfigDocument, FileSyntax, TargetError, TargetFile, UndoKind, plan,
    undo,
};

const TEXT: &str = "{\"mcpServers\": {\"a\": {\"command\": \"a\"}}}\n";
const NEW: &str = "{\"mcpServers\": {}}\n";

/// A folder with a file in it.
struct Place {
    folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("a path").join("mcp.json");
        fs::write(&path, TEXT).expect("a file");
        Place { folder, path }
    }

    fn read(&self) -> TargetFile {
        TargetFile::read(&self.path).expect("it can be read")
    }

    /// The names in the folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_file_is_replaced_in_one_step_and_keeps_its_mode_and_owner() {
    let place = Place::new();
    set_mode(&place.path, 0o640);
    let before = fs::metadata(&place.path).expect("it is there");
    place.read().replace(NEW).expect("it can be written");
    let after = fs::metadata(&place.path).expect("it is there");
    assert_eq!(fs::read_to_string(&place.path).expect("text"), NEW);
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "it was written in place");
    assert_eq!(place.names(), ["mcp.json"]);
}

#[test]
fn an_owner_who_is_not_root_stays_the_owner() {
    let place = Place::new();
    // Only root can give files away.
    if std::os::unix::fs::chown(&place.path, Some(1234), Some(4321)).is_err() {
        return;
    }
    place.read().replace(NEW).expect("root can write it");
    let after = fs::metadata(&place.path).expect("it is there");
    assert_eq!(
        (after.uid(), after.gid(), fs::read_to_string(&place.path).expect("text")),
        (1234, 4321, NEW.to_owned())
    );
}

#[test]
fn a_file_that_has_changed_since_is_not_written() {
    let place = Place::new();
    let target = place.read();
    fs::write(&place.path, "{}").expect("a file");
    assert!(matches!(target.replace(NEW), Err(TargetError::Changed)));
    assert_eq!(fs::read_to_string(&place.path).expect("text"), "{}");
    assert_eq!(place.names(), ["mcp.json"], "nothing is left");
    fs::remove_file(&place.path).expect("it is there");
    assert!(matches!(target.replace(NEW), Err(TargetError::Absent | TargetError::System { .. })));
    assert!(place.names().is_empty());
}

#[test]
fn a_file_whose_mode_or_names_have_changed_since_is_not_written() {
    let place = Place::new();
    let (other, moved) = (place.folder.path().join("other.json"), place.folder.path().join("moved.json"));
    let target = place.read();
    set_mode(&place.path, 0o600);
    assert!(matches!(target.replace(NEW), Err(TargetError::Changed)));
    assert_eq!(mode(&place.path), 0o600);

    let target = place.read();
    fs::hard_link(&place.path, &other).expect("a second name");
    assert!(matches!(target.replace(NEW), Err(TargetError::Changed)));
    fs::remove_file(&other).expect("it is there");

    let target = place.read();
    fs::rename(&place.path, &moved).expect("another name");
    symlink(&moved, &place.path).expect("a link");
    assert!(matches!(target.replace(NEW), Err(TargetError::Changed)));
    assert_eq!((fs::read_to_string(&moved).expect("text").as_str(), mode(&moved)), (TEXT, 0o600));
    assert_eq!(place.names(), ["mcp.json", "moved.json"]);
}

#[test]
fn a_link_stays_and_the_file_behind_it_is_written() {
    let place = Place::new();
    let other = tempfile::tempdir().expect("a folder");
    let link = other.path().join("link.json");
    symlink(&place.path, &link).expect("a link");
    let target = TargetFile::read(&link).expect("it can be read");
    assert_eq!((target.named(), target.path()), (link.as_path(), place.path.as_path()));
    target.replace(NEW).expect("it can be written");
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    assert_eq!(fs::read_to_string(&place.path).expect("text"), NEW);
    fs::remove_file(&place.path).expect("it is there");
    assert!(matches!(TargetFile::read(&link), Err(TargetError::Dangling)));
}

#[test]
fn read_only_files_and_folders_are_left_alone() {
    let place = Place::new();
    set_mode(&place.path, 0o444);
    let error = place.read().replace(NEW).expect_err("it is read-only");
    assert!(matches!(error, TargetError::ReadOnly(0o444)) && error.to_string().contains("0444"), "{error}");
    set_mode(&place.path, 0o644);
    set_mode(place.folder.path(), 0o555);
    let error = place.read().replace(NEW).expect_err("its folder is read-only");
    set_mode(place.folder.path(), 0o755);
    assert!(matches!(error, TargetError::ReadOnlyFolder { mode: 0o555, .. }), "{error}");
    assert_eq!((fs::read_to_string(&place.path).expect("text").as_str(), mode(&place.path)), (TEXT, 0o644));
    assert_eq!(place.names(), ["mcp.json"]);
}

#[test]
fn a_file_with_two_names_is_left_alone() {
    let place = Place::new();
    fs::hard_link(&place.path, place.folder.path().join("other.json")).expect("a second name");
    assert!(matches!(place.read().replace(NEW), Err(TargetError::SeveralNames(2))));
}

#[test]
fn what_is_no_text_or_no_file_is_not_read() {
    let place = Place::new();
    fs::write(&place.path, b"{\"a\": \"\xff\"}").expect("a file");
    assert!(matches!(TargetFile::read(&place.path), Err(TargetError::NotText(8))));
    assert!(matches!(TargetFile::read(place.folder.path()), Err(TargetError::NotAFile)));
    assert!(matches!(TargetFile::read(&place.folder.path().join("none")), Err(TargetError::Absent)));
    // A pipe without a writer is not waited for.
    let pipe = place.folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    assert!(matches!(TargetFile::read(&pipe), Err(TargetError::NotAFile)));
}

#[test]
fn a_record_is_for_its_owner_alone_and_gives_the_bytes_back() {
    let (place, data) = (Place::new(), tempfile::tempdir().expect("a folder"));
    let records = AdoptionRecords::in_data_folder(data.path());
    let held = records.lock().expect("a lock");
    assert!(held.is_some() && records.lock().expect("a file").is_none(), "two processes write");
    let target = place.read();
    let document = ConfigDocument::parse(target.text(), FileSyntax::Json).expect("JSON");
    let plan = plan(&document, "/bin/unhang", &|_| true, &|_| false).expect("a plan");
    let adopted = plan.patch.apply(target.text());
    let told = ("/bin/unhang", "1.0.0", "2026-11-27T00:00:00Z".to_owned());
    let record = AdoptionRecord::new(&target, (target.text(), &adopted), plan.wrapped(), told);
    records.keep(&record, target.text()).expect("it can be kept");
    assert_eq!(records.all(), (vec![record.clone()], Vec::new()));
    assert_eq!(records.of(&place.path), Ok(Some(record.clone())));
    assert_eq!(records.of(Path::new("/other")), Ok(None));
    let backup = records.backup_path(&record);
    assert_eq!((mode(&backup), mode(backup.parent().expect("a folder"))), (0o600, 0o700));
    assert_eq!(records.backup(&record).as_deref(), Some(TEXT));
    let undone = undo(&record, records.backup(&record).as_deref(), &adopted).expect("JSON");
    assert_eq!((undone.kind, undone.text.as_str()), (UndoKind::Exact, TEXT));

    // Bytes that are not those from before are no backup.
    fs::write(&backup, "{}").expect("it is ours");
    assert_eq!(records.backup(&record), None);
    let undone = undo(&record, None, &adopted).expect("JSON");
    assert_eq!((undone.kind, undone.text.as_str()), (UndoKind::Exact, TEXT));
    assert!(undo(&record, None, "{\"mcpServers\"").is_err(), "a broken file is left as it is");
    records.forget(&record).expect("it is there");
    assert!(records.all().0.is_empty() && !backup.exists());
}

/// Keeps a record of the file, whose text is `original`.
fn kept(place: &Place, records: &AdoptionRecords, original: &str) -> AdoptionRecord {
    let told = ("/bin/unhang", "1.0.0", "2026-11-27T00:00:00Z".to_owned());
    let record = AdoptionRecord::new(&place.read(), (original, "adopted"), Vec::new(), told);
    records.keep(&record, original).expect("it can be kept");
    record
}

#[test]
fn a_text_that_stays_for_a_person_outlives_the_next_record() {
    let (place, data) = (Place::new(), tempfile::tempdir().expect("a folder"));
    let records = AdoptionRecords::in_data_folder(data.path());
    let _held = records.lock().expect("a lock");
    let stays = records.forget_and_keep_text(&kept(&place, &records, TEXT)).expect("it stays");
    records.forget(&kept(&place, &records, NEW)).expect("it is there");
    assert_eq!(fs::read_to_string(&stays).expect("text"), TEXT);
    assert_eq!(mode(&stays), 0o600);
    assert!(records.all().0.is_empty());
}

#[test]
fn a_record_that_cannot_be_read_is_told() {
    let (place, data) = (Place::new(), tempfile::tempdir().expect("a folder"));
    let records = AdoptionRecords::in_data_folder(data.path());
    drop(records.lock().expect("a lock"));
    let record = kept(&place, &records, TEXT);
    let path = records.backup_path(&record).with_extension("json");
    let newer = fs::read_to_string(&path).expect("text").replace("\"format\": 1", "\"format\": 99");
    for (text, why) in [("{", "EOF"), (newer.as_str(), "the format 99")] {
        fs::write(&path, text).expect("it is ours");
        let error = records.of(&place.path).expect_err("it cannot be read");
        assert!(error.path == path && error.why.contains(why), "{error}");
        assert_eq!(records.all(), (Vec::new(), vec![error]));
    }
}

#[test]
fn what_a_killed_process_was_about_to_write_is_removed() {
    let (place, data) = (Place::new(), tempfile::tempdir().expect("a folder"));
    let records = AdoptionRecords::in_data_folder(data.path());
    drop(records.lock().expect("a lock"));
    let unfinished = data.path().join("adopted/.0123.original.42");
    fs::write(&unfinished, TEXT).expect("a file");
    for name in [".mcp.json.unhang-42", ".mcp.json.unhang-yours"] {
        fs::write(place.folder.path().join(name), TEXT).expect("a file");
    }
    let _held = records.lock().expect("a lock");
    place.read().replace(NEW).expect("it can be written");
    assert!(!unfinished.exists());
    assert_eq!(place.names(), [".mcp.json.unhang-yours", "mcp.json"]);
}
