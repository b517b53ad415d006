//! Every input that was kept is lived through again: the corpus, and what once broke an invariant.

use std::{fs, panic, path::Path};

use unhang_fuzz::{TARGETS, story};

/// The inputs of a folder, in the order of their names.
fn inputs(folder: &str, target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = files.map(|file| file.expect("it can be listed").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_none_or(|extension| extension != "md")).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.display().to_string(), fs::read(path).expect("it can be read")))
        .collect()
}

fn replay(folder: &str) {
    for (target, check) in TARGETS {
        let inputs = inputs(folder, target);
        assert!(!inputs.is_empty(), "there are no inputs for {target} in {folder}");
        for (path, bytes) in inputs {
            if panic::catch_unwind(|| check(&bytes)).is_err() {
                panic!("{path} breaks an invariant:\n{}", story(target, &bytes));
            }
        }
    }
}

#[test]
fn r_41_the_corpus_breaks_no_invariant() {
    replay("corpus");
}

#[test]
fn r_41_what_once_broke_an_invariant_does_so_no_more() {
    replay("regressions");
}

#[test]
fn the_corpus_stays_small() {
    for (target, _) in TARGETS {
        let sizes: Vec<_> = inputs("corpus", target).iter().map(|(_, bytes)| bytes.len()).collect();
        assert!(sizes.len() <= 300 && sizes.iter().sum::<usize>() <= 300 << 10, "{target}: {}", sizes.len());
        assert!(sizes.iter().all(|size| *size <= 8 << 10), "{target}");
    }
}
