//! A store that is a bucket.

use std::net::TcpListener;

use unhang_artifacts::{ArtifactError, ArtifactKey, ArtifactLocation, ArtifactStore, ObjectAccess};
use unhang_jobs::id::JobId;
use unhang_zoo::{
    private_moto::{MotoAccess, PrivateMoto},
    test_programs::{MOTO, named_by},
};

const KEY_ID: &str = "AKIDGEHEIM";
const SECRET: &str = "sehrgeheim";

fn moto(access: MotoAccess) -> PrivateMoto {
    PrivateMoto::start(&named_by(MOTO), access).unwrap()
}

fn store(location: &str, endpoint: String) -> ArtifactStore {
    let access = ObjectAccess {
        key_id: Some(KEY_ID.to_owned()),
        secret: Some(SECRET.to_owned()),
        endpoint: Some(endpoint),
        allows_http: true,
        ..ObjectAccess::default()
    };
    ArtifactStore::new(&ArtifactLocation::parse(location).unwrap(), access)
}

fn key(content: &[u8]) -> ArtifactKey {
    ArtifactKey::of(JobId::random().unwrap(), 0, "a b.bin", content)
}

/// Demands that a text names the store and no credentials.
#[track_caller]
fn told(error: &ArtifactError, parts: &[&str]) {
    let told = error.to_string();
    assert!(told.contains("s3://jobs") && parts.iter().all(|part| told.contains(part)), "{told}");
    for text in [told, format!("{error:?}")] {
        assert!(!text.contains(KEY_ID) && !text.contains(SECRET), "{text}");
    }
}

#[test]
#[ignore = "needs moto; cargo xtask ci --only examples"]
fn an_object_goes_to_a_bucket_and_comes_back_and_is_removed() {
    let moto = moto(MotoAccess::Everybody);
    moto.ask("PUT", "/jobs", b"").unwrap();
    let store = store("s3://jobs/of/unhang", moto.url());
    let content: Vec<u8> = (0..20 << 20).map(|number: u32| (number % 251) as u8).collect();
    let key = key(&content);
    store.put(&key, content.clone().into()).unwrap();
    store.put(&key, content.clone().into()).unwrap();
    assert_eq!(moto.keys("jobs").unwrap(), [format!("of/unhang/{key}")]);
    assert!(store.get(&key, "a b.bin", 20 << 20).unwrap() == content);
    // Somebody else has changed it there.
    let path = format!("/jobs/of/unhang/{key}");
    moto.ask("PUT", &path, &content[1..]).unwrap();
    told(&store.get(&key, "a b.bin", 20 << 20).unwrap_err(), &["damaged", "and 20971520 were written"]);
    moto.ask("PUT", &path, &[&content[..], b"x"].concat()).unwrap();
    told(&store.get(&key, "a b.bin", 20 << 20).unwrap_err(), &["damaged", "more than the 20971520 bytes"]);
    store.remove(&key).unwrap();
    store.remove(&key).unwrap();
    assert!(moto.keys("jobs").unwrap().is_empty());
    let missing = store.get(&key, "a b.bin", 20 << 20).unwrap_err();
    assert!(matches!(missing, ArtifactError::Missing { .. }), "{missing:?}");
    told(&missing, &[&key.to_string(), "has no object"]);
}

#[test]
#[ignore = "needs moto; cargo xtask ci --only examples"]
fn promise_4_a_refusal_of_a_bucket_names_it_and_no_credentials() {
    let moto = moto(MotoAccess::NobodyAfterTheFirst);
    moto.ask("PUT", "/jobs", b"").unwrap();
    let store = store("s3://jobs", moto.url());
    let key = key(b"content");
    for refused in [
        store.put(&key, "content".into()).unwrap_err(),
        store.get(&key, "a b.bin", 7).unwrap_err(),
        store.remove(&key).unwrap_err(),
    ] {
        assert!(matches!(refused, ArtifactError::Refused { .. }), "{refused:?}");
        told(&refused, &["refused the ", "InvalidAccessKeyId", "check the rights"]);
    }
}

#[test]
#[ignore = "needs moto; cargo xtask ci --only examples"]
fn a_bucket_that_does_not_exist_is_told_apart_from_a_missing_object() {
    let moto = moto(MotoAccess::Everybody);
    let store = store("s3://jobs", moto.url());
    let key = key(b"content");
    for missing in
        [store.put(&key, "content".into()).unwrap_err(), store.get(&key, "a b.bin", 7).unwrap_err()]
    {
        assert!(matches!(missing, ArtifactError::NoStore { .. }), "{missing:?}");
        told(&missing, &["does not exist", "NoSuchBucket", "correct `artifacts`"]);
    }
}

#[test]
fn a_bucket_that_cannot_be_reached_is_told_soon() {
    let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let key = key(b"content");
    let endpoints = [format!("http://{address}"), "http://nowhere.invalid".to_owned()];
    for endpoint in endpoints {
        let error = store("s3://jobs", endpoint).put(&key, "content".into()).unwrap_err();
        assert!(matches!(error, ArtifactError::Failed { .. }), "{error:?}");
        told(&error, &["failed at the writing of an object: "]);
    }
}
