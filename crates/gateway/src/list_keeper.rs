//! Keeps the lists of the servers of the configuration, in one task for each server. Tells once that a server is not there.

use std::{pin::pin, sync::Arc};

use tokio::time::timeout;
use unhang_bridge::Era;

use super::{Scope, backend::Backend, eras::EraChoice, gateway_core::GatewayCore, start_turns::in_turn};
use unhang_core::{
    config::{ERA_PATIENCE, LIST_PATIENCE},
    notices::Notices,
};
use unhang_upstream::client::Error;

/// Keeps the lists of one server: asks for them when it has started, and again when they change. `awaits_client` says that a client is about
/// to begin a session.
pub(super) async fn keep_lists(core: Arc<GatewayCore>, backend: Arc<Backend>, awaits_client: bool) {
    if awaits_client
        && backend.eras.depend_on_sessions()
        && !backend.lists.is_known_to_speak_handshakes_alone()
    {
        core.open_sessions.until_first(ERA_PATIENCE).await;
    }
    let (mut is_told, mut last) = (false, String::new());
    loop {
        let turn = core.start_turns.take().await;
        let mut work = pin!(backend.list());
        let listed = {
            let mut listing = pin!(in_turn(turn, work.as_mut()));
            match backend.lists.are_settled() {
                true => listing.await,
                // Requests of clients for lists wait for servers, for this long in all.
                false => match timeout(LIST_PATIENCE, listing.as_mut()).await {
                    Ok(listed) => listed,
                    Err(_) => {
                        backend.lists.note_late();
                        core.publish();
                        listing.await
                    }
                },
            }
        };
        if listed.is_ok() && backend.scope() == Scope::Session {
            // The server has told what its instances offer.
            backend.rest_now().await;
        }
        if listed.is_ok() && backend.scope() != Scope::Session {
            for era in [Era::Legacy, Era::Modern] {
                if core.open_sessions.has(era) {
                    EraChoice(&backend).open_for(era, &core);
                }
            }
        }
        // The listing is tried again and again, and may fail in the same way each time.
        let why = listed.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if !why.is_empty() && why != last {
            tracing::warn!("`{}` cannot be listed: {why}", backend.name());
        }
        last = why;
        is_told = tell_absence(&core.notices, &backend, listed.as_ref().err(), is_told);
        core.publish();
        backend.lists.rounds.end();
        backend.until_changed(listed.is_ok(), || core.publish()).await;
    }
}

/// Keeps the lists of a backend that requests start: asks for them while it runs, whenever they may have changed. `whose` follows the name of
/// the server in the log. `publish` shows the lists to those who see them; the task ends when it returns that nobody does.
pub(super) async fn keep_lists_while_running(
    backend: Arc<Backend>,
    whose: String,
    publish: impl Fn() -> bool + Send + Sync,
) {
    let mut was_listed = true;
    loop {
        // Whether anybody sees the lists is looked at once they are new.
        backend.until_changed(was_listed, || _ = publish()).await;
        if !backend.runs() {
            // The backend is listed once a request has started it.
            was_listed = true;
            continue;
        }
        let listed = backend.list().await;
        if let Err(error) = &listed {
            tracing::warn!("`{}`{whose} cannot be listed: {error}", backend.name());
        }
        was_listed = listed.is_ok();
        let is_seen = publish();
        backend.lists.rounds.end();
        if !is_seen {
            return;
        }
    }
}

/// Tells once that a server is not there, and once that it has come. Returns whether users have been told that it is away now.
fn tell_absence(notices: &Notices, backend: &Backend, why: Option<&Error>, is_told: bool) -> bool {
    let Some(error) = why else {
        if is_told {
            notices.say(&format!("`{}` is available now", backend.name()));
        }
        return false;
    };
    // A gateway like us tells of its own servers. A server that was listed once stays listed.
    if is_told || backend.is_gateway() || backend.lists.has_been_listed() {
        return is_told;
    }
    let of_it = match backend.lists.are_recalled() {
        true => "unhang keeps its earlier lists",
        false => "its lists are missing",
    };
    notices.say(&format!("`{}` is not available, and {of_it}: {error}", backend.name()));
    true
}
