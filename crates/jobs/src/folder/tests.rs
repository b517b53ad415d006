//! Files are named, written and read as the rest relies on.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use super::*;

#[test]
fn a_file_name_is_one_plain_part_of_a_path_and_none_of_ours() {
    let longest = "a".repeat(255);
    for name in [
        "basis.json",
        "input.json",
        "job.json",
        "A_b-1.tar.gz",
        "with space.txt",
        "ü.txt",
        ".hidden",
        "-x",
        "a\nb",
        &longest,
    ] {
        assert_eq!(FileName::new(name).unwrap().as_str(), name);
    }
    for name in ["", ".", "..", "a/b", "../x", "/etc/passwd", "a\0", "error.json"] {
        assert!(FileName::new(name).is_err(), "{name}");
    }
    // What is no text is in no record.
    assert_eq!(
        InputName::new(OsStr::from_bytes(b"bad\xffname")).unwrap().as_os_str().as_bytes(),
        b"bad\xffname"
    );
    assert!(InputName::new(OsStr::from_bytes(b"\xff/x")).is_err());
    assert!(FileName::new(&"a".repeat(256)).unwrap_err().to_string().contains("1 to 255 bytes"));
}

#[test]
fn a_file_is_replaced_whole_and_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    for content in ["a longer one", "short"] {
        replace(folder.path(), "file", content.as_bytes(), Durability::Disk).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), content);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(folder.path().join("file").metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_is_there_is_left_alone_where_only_a_missing_one_is_wanted() {
    let (data, id) = (tempfile::tempdir().unwrap(), JobId::random().unwrap());
    let folder = DataFolder::open(data.path()).unwrap().job(id);
    folder.create().unwrap();
    for content in ["first", "second"] {
        folder.write_if_missing("file", &content).unwrap();
        assert_eq!(folder.text("file", 100).unwrap(), "\"first\"\n");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(folder.file("file").metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_too_long_or_no_plain_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    assert!(read_at_most(&path, 4).unwrap().is_none());
    fs::write(&path, "12345").unwrap();
    assert!(read_at_most(&path, 4).unwrap_err().to_string().contains("more than 4 bytes"));
    assert_eq!(read_at_most(&path, 5).unwrap().unwrap(), b"12345");
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(read_at_most(&link, 5).is_err());
    assert!(read_at_most(folder.path(), 5).is_err());
}
