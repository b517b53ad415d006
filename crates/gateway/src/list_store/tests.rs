//! What is kept on the disk, and what is passed over of what is found there.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tokio::{runtime, time::timeout};

use super::*;

fn memory(folder: &Path) -> ListStore {
    ListStore::new(folder, "srv", [&b"TOKEN"[..], b"secret"])
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

const TOOL: &str = r#"{ "name":"now",  "x" : 1.0e0 }"#;

fn kept(memory: &ListStore) -> StoredLists {
    StoredLists {
        format: FORMAT,
        identity: memory.0.identity.clone(),
        server: "srv".to_owned(),
        revision: Some("2025-06-18".to_owned()),
        server_info: Some(json!({ "name": "zoo" })),
        tools: vec![raw(TOOL)],
        prompts: Vec::new(),
        resources: vec![raw(r#"{"uri":"note:1"}"#)],
        templates: Vec::new(),
        skills: vec![raw(r#"{"uri":"skill://a/SKILL.md"}"#)],
        extensions: [("io.modelcontextprotocol/skills".to_owned(), json!({}))].into_iter().collect(),
        declares_resources: true,
    }
}

async fn keep(memory: &ListStore, what: &StoredLists) {
    memory.keep(what);
    memory.settled().await;
}

#[test]
fn a_file_is_named_by_the_server_and_by_its_parts_and_tells_none_of_them() {
    let file = |name: &str, parts: &[&str]| {
        ListStore::new(Path::new("/data"), name, parts.iter().map(|part| part.as_bytes())).0.file.clone()
    };
    let files = [
        file("srv", &["a", "bc"]),
        file("srv", &["ab", "c"]),
        file("srv", &["a", "bc", ""]),
        file("other", &["a", "bc"]),
    ];
    for (index, one) in files.iter().enumerate() {
        assert!(!files[..index].contains(one), "{one}");
    }
    assert_eq!(files[0], file("srv", &["a", "bc"]), "it is the same tomorrow");
    let odd = file(&"../ä".repeat(100), &["secret"]);
    assert!(odd.len() < 100 && !odd.contains(['/', '.']) || odd.ends_with(".json"), "{odd}");
    assert!(!odd.contains("secret"), "{odd}");
}

#[tokio::test]
async fn what_is_kept_is_as_the_server_said_it_and_for_its_owner_alone() {
    let data = tempfile::tempdir().expect("a folder");
    let memory = memory(data.path());
    assert!(memory.read().is_none());
    keep(&memory, &kept(&memory)).await;
    let found = memory.read().expect("it is kept");
    assert_eq!((found.tools[0].get(), found.tools.len()), (TOOL, 1));
    assert_eq!(found.revision.as_deref(), Some("2025-06-18"));
    let (folder, path) = (memory.0.folder.clone(), memory.0.folder.join(&memory.0.file));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
    let text = fs::read_to_string(&path).expect("text");
    assert!(!text.contains("secret") && !text.contains("TOKEN"), "{text}");
    // What has not changed is not written again.
    fs::remove_file(&path).expect("removed");
    keep(&memory, &kept(&memory)).await;
    assert!(!path.exists());
    memory.forget_revision();
    memory.settled().await;
    assert!(!path.exists(), "there is nothing to be wrong");
    keep(&memory, &kept(&memory)).await;
    memory.forget_revision();
    memory.settled().await;
    let found = memory.read().expect("it is kept");
    assert_eq!((found.revision, found.tools.len()), (None, 1), "the lists stay");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
}

#[tokio::test]
async fn what_is_not_whole_or_not_ours_is_passed_over() {
    let data = tempfile::tempdir().expect("a folder");
    let memory = memory(data.path());
    keep(&memory, &kept(&memory)).await;
    let path = memory.0.folder.join(&memory.0.file);
    let whole = fs::read(&path).expect("it is there");
    for end in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..end]).expect("written");
        assert!(memory.read().is_none(), "{end}");
    }
    let later = StoredLists { format: FORMAT + 1, ..kept(&memory) };
    let others = StoredLists { identity: "0".repeat(64), ..kept(&memory) };
    for passed_over in [later, others] {
        fs::write(&path, serde_json::to_vec(&passed_over).expect("JSON")).expect("written");
        assert!(memory.read().is_none());
    }
    let mut long = whole;
    long.resize(usize::try_from(MAX_FILE).expect("it fits") + 1, b' ');
    fs::write(&path, &long).expect("written");
    assert!(memory.read().is_none());
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder");
    assert!(memory.read().is_none());
}

#[tokio::test]
async fn what_is_too_large_is_not_kept() {
    let data = tempfile::tempdir().expect("a folder");
    let memory = memory(data.path());
    let text = format!(r#"{{"name":"{}"}}"#, "x".repeat(usize::try_from(MAX_FILE).expect("it fits")));
    keep(&memory, &StoredLists { tools: vec![raw(&text)], ..kept(&memory) }).await;
    assert!(!memory.0.folder.exists());
}

#[tokio::test]
async fn what_nobody_has_used_for_long_is_removed() {
    let data = tempfile::tempdir().expect("a folder");
    let memory = memory(data.path());
    keep(&memory, &kept(&memory)).await;
    let ago = |age: Duration| SystemTime::now() - age;
    let make = |name: &str, age: Duration| {
        let path = memory.0.folder.join(name);
        File::create(&path).and_then(|file| file.set_modified(ago(age))).expect("a file");
        path
    };
    let (old, recent) = (make("old.json", UNUSED * 2), make("recent.json", UNUSED / 2));
    let ours = make(&memory.0.file, UNUSED * 2);
    fs::write(&ours, serde_json::to_vec(&kept(&memory)).expect("JSON")).expect("written");
    File::open(&ours).and_then(|file| file.set_modified(ago(UNUSED * 2))).expect("it is old");
    memory.read().expect("it is kept");
    memory.0.tidy(SystemTime::now()).expect("it is ours");
    assert_eq!((old.exists(), recent.exists(), ours.exists()), (false, true, true));
}

#[test]
fn a_stuck_disk_keeps_no_server_from_being_listed() {
    let data = tempfile::tempdir().expect("a folder");
    let memory = memory(data.path());
    let (release, hangs) = std::sync::mpsc::sync_channel::<()>(0);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let stuck = memory.clone();
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let reading = read_ahead_by(vec![stuck], move |_| {
                // Until it is released.
                let _released = hangs.recv();
                None
            });
            // F-30: whoever is on the same thread goes on meanwhile.
            let (mut reading, mut admission) = (std::pin::pin!(reading), 0);
            while timeout(Duration::from_millis(10), &mut reading).await.is_err() {
                admission += 1;
            }
            tell.send(admission)
        })
    });
    let admission = told.recv_timeout(Duration::from_secs(30)).expect("it is given up");
    assert!(admission > 5, "the event loop stood still");
    drop(release);
    // One thread for the disk, and it hangs.
    let (release, hangs) = std::sync::mpsc::sync_channel::<()>(0);
    let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let runtime = runtime.expect("a runtime");
    runtime.spawn_blocking(move || hangs.recv());
    runtime.block_on(async {
        memory.keep(&kept(&memory));
        timeout(Duration::from_secs(30), memory.settled()).await.expect("nobody waits for it");
    });
    drop(release);
}

#[test]
fn a_server_that_has_changed_is_asked_anew_what_it_knows() {
    let (one, two) = (json!({ "version": "1" }), json!({ "version": "2" }));
    let mut recalled = RecalledLists::default();
    assert!(!recalled.started(), "nothing is known");
    assert!(recalled.learn(true, Some(&one)));
    assert!(recalled.started() && recalled.learn(true, Some(&one)));
    assert!(recalled.started());
    assert!(!recalled.learn(true, Some(&two)), "it may know more by now");
    assert!(!recalled.learn(true, Some(&two)), "and was not asked");
    assert!(!recalled.started());
    assert!(recalled.learn(true, Some(&two)), "it knows no more");
    assert!(recalled.started() && recalled.learn(false, Some(&two)), "it knows more");
    assert!(!recalled.started());
}
