//! What a server offers: it is asked for its lists, and again when they may have changed.
//!
//! Invariants: what was listed stays until there is something newer; what its rules do not allow is listed nowhere.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::time::sleep;
use unhang_switches::stands;

use super::{
    backend::{Backend, Starter},
    owners,
};
use crate::route::catalog::{Offered, Owners};
use unhang_core::fault::FaultKind;
use unhang_upstream::client::{Error, RequestOptions, ServerList, Topics};

/// Between a change of a list and the question for it: changes come in crowds, and some servers tell of them without end.
const CALM: Duration = Duration::from_millis(250);

impl Backend {
    /// Asks for all its lists, and keeps them.
    pub(super) async fn list(self: &Arc<Self>) -> Result<(), Error> {
        if self.state().wanted.rests() && stands("resting-server-is-left-alone") {
            // What it offered is what it offers, until somebody starts it.
            return Ok(());
        }
        let listed = {
            // That it gives lists does not say that it answers calls: some die of each.
            let _trial = self.trial();
            self.lists().await
        };
        let mut state = self.state();
        match listed {
            Ok(offered) => {
                state.list(offered);
                Ok(())
            }
            Err(error) => {
                state.was_listed = true;
                self.record.trouble().note(&error);
                Err(error)
            }
        }
    }

    async fn lists(self: &Arc<Self>) -> Result<Offered, Error> {
        let (client, session) = self.ready(Starter::Keeper).await?;
        let options = RequestOptions::default();
        let (tools, prompts, resources, templates) = tokio::join!(
            client.list(ServerList::Tools, &options),
            client.list(ServerList::Prompts, &options),
            client.list(ServerList::Resources, &options),
            // Nobody declares them by themselves, and many have none.
            client.list(ServerList::ResourceTemplates, &options),
        );
        let (tools, owners) = match self.names_owners() {
            true => owners::read(tools?),
            false => (tools?, Owners::new()),
        };
        let listed = Offered {
            tools,
            prompts: self.or_none(ServerList::Prompts, prompts),
            resources: self.or_none(ServerList::Resources, resources),
            templates: self.or_none(ServerList::ResourceTemplates, templates),
            owners,
        };
        self.remember(&session, &listed);
        let offered = Offered { tools: self.allowed(listed.tools), ..listed };
        if session.revision.is_stateless() && self.state().subscription.is_none() {
            // A server that has nothing to tell refuses it.
            match client.subscribe(Topics { resources: Vec::new(), lists: true }, &options).await {
                Ok(subscription) => self.state().subscription = Some(subscription),
                Err(error) => tracing::debug!("`{}` does not tell of changes: {error}", self.name()),
            }
        }
        Ok(offered)
    }

    /// What of its tools clients may have. What the rules say in vain is told once.
    fn allowed(&self, listed: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        let rules = self.rules();
        // Of an instance it has been told already.
        let told = if self.is_own() { Vec::new() } else { rules.without_effect(&listed) };
        for (rule, why) in told {
            if self.state().told.insert(rule.clone()) {
                tracing::warn!("{rule} of `{}` has no effect: {why}", self.name());
            }
        }
        rules.offered(listed)
    }

    /// What a server that has tools gives besides; nothing where that goes wrong.
    fn or_none(&self, list: ServerList, listed: Result<Vec<Box<RawValue>>, Error>) -> Vec<Box<RawValue>> {
        listed.unwrap_or_else(|error| {
            let why = error.to_string();
            let is_cut = matches!(&error, Error::Failure(failure) if failure.kind == FaultKind::TooLarge);
            if is_cut && self.state().told.insert(list.method().to_owned()) {
                tracing::warn!("{why}; it is taken to have none of these");
            } else {
                tracing::debug!("`{}`: {why}", self.name());
            }
            Vec::new()
        })
    }

    /// Waits until its lists may be others, or it may be tried again.
    pub(super) async fn until_changed(&self, was_listed: bool) {
        if was_listed {
            self.listener.changed.notified().await;
            sleep(CALM).await;
        } else {
            tokio::select! {
                () = sleep(self.pause()) => {}
                // Somebody has asked for it meanwhile, so that it was started anew.
                () = self.listener.changed.notified() => sleep(CALM).await,
            }
        }
    }
}
