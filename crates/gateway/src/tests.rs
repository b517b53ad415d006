//! The gateway without processes.

use super::*;

#[tokio::test]
async fn clocks_that_have_changed_are_told() {
    let servers = Servers::start(ServerSet::default());
    let mut known = servers.known();
    assert_eq!(known.borrow_and_update().clocks, Clocks::default());
    let clocks = Clocks::with([("a".to_owned(), Some(Duration::from_secs(1)))]);
    servers.replace(ServerSet { clocks: clocks.clone(), ..ServerSet::default() });
    assert!(known.has_changed().expect("it is there"));
    assert_eq!(known.borrow().clocks, clocks);
}

#[tokio::test]
async fn what_has_not_changed_wakes_nobody() {
    let servers = Servers::start(ServerSet::default());
    let mut known = servers.known();
    assert!(known.borrow_and_update().is_settled, "there is nothing to wait for");
    servers.core.publish();
    assert!(!known.has_changed().expect("it is there"));
}
