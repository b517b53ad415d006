//! Everything that a database can refuse, and what becomes of a store whose database goes away.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown},
    thread,
};

use unhang_jobs::{
    id::JobId,
    record::JobRecord,
    store::{
        JobEntry, JobStore,
        suite::{StoreFixture, queued},
    },
};
use unhang_postgres::{PostgresError, PostgresStore};
use unhang_zoo::{
    private_postgres::{OWNER, PASSWORD, PrivatePostgres, ServerEnd},
    test_programs::{POSTGRES, named_by},
};

use crate::server::{TestDatabase, execute, open};

/// Where the certificates of the end-to-end tests lie.
const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/certificates");

fn accept(store: &mut PostgresStore, record: &JobRecord) -> Result<JobId, PostgresError> {
    let orders = TestDatabase::orders();
    assert_eq!(store.accept(&[JobEntry { record, orders: orders.as_ref() }])?, [true]);
    Ok(record.job_id)
}

/// Returns the error of a connection, which has no password in it.
fn refusal(url: &str) -> PostgresError {
    let error = open(url).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains(PASSWORD) && !text.contains("hunter2") && text.contains("127.0.0.1"), "{text}");
    error
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_login_that_is_refused_says_what_to_check() {
    let database = TestDatabase::new();
    for url in [
        database.server().url(OWNER, "hunter2", database.name()),
        database.server().url("nobody", "hunter2", database.name()),
        database.server().url(OWNER, PASSWORD, "nowhere"),
    ] {
        let error = refusal(&url);
        assert!(matches!(error, PostgresError::LoginRefused { .. }), "{error:?}");
        assert!(error.to_string().contains("PGPASSFILE"), "{error}");
    }
}

#[test]
fn an_unreachable_store_is_named_without_its_password() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refusal(&format!("postgres://me:hunter2@127.0.0.1:{port}/jobs"));
    assert!(matches!(error, PostgresError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

/// A user without rights is told which one is missing. The owner makes the tables, and then such a user may be let in.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_user_who_may_not_make_tables_uses_those_that_exist() {
    let database = TestDatabase::new();
    let user = format!("{}_worker", database.name());
    database.execute(&format!("CREATE ROLE {user} LOGIN PASSWORD 'hunter2'"));
    let url = database.server().url(&user, "hunter2", database.name());
    let error = refusal(&url);
    assert!(matches!(error, PostgresError::NoRight { .. }), "{error:?}");
    assert!(error.to_string().contains("CREATE"), "{error}");
    drop(database.connect());
    let error = refusal(&url);
    assert!(matches!(error, PostgresError::NoRight { .. }), "it may not look at them: {error:?}");
    database.execute(&format!(
        "GRANT USAGE ON SCHEMA unhang TO {user};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unhang TO {user}"
    ));
    accept(&mut open(&url).unwrap(), &queued()).unwrap();
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn tables_of_a_newer_unhang_are_used_only_if_they_allow_it() {
    let database = TestDatabase::new();
    let mut early = database.connect();
    database.execute("INSERT INTO unhang.versions VALUES (1000, 1)");
    accept(&mut database.connect(), &queued()).unwrap();
    database.execute("UPDATE unhang.versions SET serves_from = 999 WHERE version = 1000");
    let error = refusal(&database.url());
    assert!(matches!(error, PostgresError::NewerTables { found: 1000, serves_from: 999, .. }), "{error:?}");
    assert!(error.to_string().contains("use the newer unhang"), "{error}");
    // A migration renames what it changes, so one that is connected already writes nothing.
    database.execute("ALTER TABLE unhang.jobs RENAME TO jobs_1000");
    let error = accept(&mut early, &queued()).unwrap_err();
    assert!(matches!(error, PostgresError::NewerTables { found: 1000, .. }), "{error:?}");
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn of_many_that_come_at_once_one_makes_the_tables() {
    let database = TestDatabase::new();
    thread::scope(|scope| {
        let open = || accept(&mut database.connect(), &queued());
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
    let counts = database.connect().counts().unwrap();
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 8);
}

/// The database breaks a transaction off because of others, and says that it may be tried again.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn what_the_database_breaks_off_is_tried_again_but_not_for_ever() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    // A sequence counts the tries: it is not undone with a transaction.
    let fail_until = |last: u32, code: &str| {
        database.execute(&format!(
            "DROP SEQUENCE IF EXISTS tries; CREATE SEQUENCE tries;
             CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                IF nextval('tries') <= {last} THEN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END IF;
                RETURN NEW;
             END $$;
             DROP TRIGGER IF EXISTS fail ON unhang.jobs;
             CREATE TRIGGER fail BEFORE INSERT ON unhang.jobs FOR EACH ROW EXECUTE FUNCTION fail();"
        ));
    };
    for code in ["40001", "40P01"] {
        fail_until(3, code);
        accept(&mut store, &queued()).unwrap();
    }
    fail_until(1000, "40001");
    let error = accept(&mut store, &queued()).unwrap_err();
    assert!(matches!(error, PostgresError::Conflict { tries: 6, .. }), "{error:?}");
    fail_until(1, "53100");
    let error = accept(&mut store, &queued()).unwrap_err();
    assert!(
        matches!(error, PostgresError::Full { .. }) && error.to_string().contains("on purpose"),
        "{error:?}"
    );
    // Whatever failed left nothing, and the store goes on.
    accept(&mut store, &queued()).unwrap();
    assert_eq!(store.counts().unwrap().iter().map(|(_, count)| count).sum::<u64>(), 3);
}

/// Promise 7: an accepted job outlives a database that is killed, and the store finds the database again by itself.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_database_that_is_killed_and_comes_back_has_every_accepted_job() {
    let mut server = PrivatePostgres::start(&named_by(POSTGRES), "killed", "").unwrap();
    execute(&server, "postgres", "CREATE DATABASE jobs").unwrap();
    let mut store = open(&server.url(OWNER, PASSWORD, "jobs")).unwrap();
    let mut accepted = Vec::new();
    for end in [ServerEnd::Killed, ServerEnd::InOrder, ServerEnd::Killed] {
        accepted.push(accept(&mut store, &queued()).unwrap());
        server.stop(end);
        let error = accept(&mut store, &queued()).unwrap_err();
        assert!(matches!(error, PostgresError::Unreachable { .. }), "{error:?}");
        server.resume().unwrap();
        accepted.push(accept(&mut store, &queued()).unwrap());
        for id in &accepted {
            assert!(store.get(*id).unwrap().is_some(), "{id} after {end:?}");
        }
    }
    // A session that was good and broke without notice is replaced in the middle of an operation.
    server.stop(ServerEnd::Killed);
    server.resume().unwrap();
    accept(&mut store, &queued()).unwrap();
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_certificate_that_does_not_fit_is_refused_unless_the_address_allows_it() {
    let mut server = PrivatePostgres::start(&named_by(POSTGRES), "tls", "").unwrap();
    let plain = server.url(OWNER, PASSWORD, "postgres");
    let error = refusal(&format!("{plain}?sslmode=require"));
    assert!(matches!(error, PostgresError::Tls { .. }), "the server has no TLS: {error:?}");
    assert!(error.to_string().contains("sslmode=disable"), "{error}");
    open(&plain).unwrap();
    encrypt(&mut server);
    let authority = format!("{CERTIFICATES}/authority.pem");
    let with = |mode: &str| format!("{plain}?sslmode={mode}&sslrootcert={authority}");
    let by_name = with("verify-full").replace("127.0.0.1", "localhost");
    for url in [&by_name, &with("verify-ca"), &format!("{plain}?sslmode=require"), &plain] {
        open(url).unwrap();
    }
    for url in [format!("{plain}?sslmode=verify-full"), format!("{plain}?sslmode=verify-ca")] {
        let error = refusal(&url);
        assert!(matches!(error, PostgresError::Tls { .. }), "no authority of the system made it: {error:?}");
        assert!(error.to_string().contains("sslrootcert"), "{error}");
    }
    // The server wants TLS, and the address forbids it.
    let error = refusal(&format!("{plain}?sslmode=disable"));
    assert!(matches!(error, PostgresError::LoginRefused { .. }), "{error:?}");
    let error = refusal(&format!("{plain}?sslmode=verify-ca&sslrootcert=/nowhere.pem"));
    assert!(error.to_string().contains("/nowhere.pem"), "{error}");
}

/// Makes the server accept encrypted connections alone.
fn encrypt(server: &mut PrivatePostgres) {
    let data = server.data();
    let owner = fs::metadata(&data).map(|data| std::os::unix::fs::MetadataExt::uid(&data)).unwrap();
    for (from, to) in [("server.pem", "server.crt"), ("server.key", "server.key")] {
        let to = data.join(to);
        fs::copy(format!("{CERTIFICATES}/{from}"), &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&to, Some(owner), Some(owner)).unwrap();
    }
    fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 scram-sha-256\n").unwrap();
    let mut settings = fs::read_to_string(data.join("postgresql.auto.conf")).unwrap();
    settings.push_str("ssl = on\n");
    fs::write(data.join("postgresql.auto.conf"), settings).unwrap();
    server.stop(ServerEnd::InOrder);
    server.resume().unwrap();
}
