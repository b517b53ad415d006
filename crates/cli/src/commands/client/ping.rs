//! `unhang ping`: the time that a server takes to answer a ping, once it is ready.

use std::{process::ExitCode, time::Duration};

use serde::Serialize;
use unhang::{client::RequestOptions, exit};
use unhang_terminal::failure::Format;

use super::{ClientContext, ServerTarget, list::each, run};
use crate::{arguments::client::ListArguments, commands::engine::CommandOutcome};

#[derive(Serialize)]
struct PingResult {
    server: String,
    ms: f64,
}

/// Pings one server, or all.
pub(in crate::commands) fn ping(listing: &ListArguments, verbose: bool) -> ExitCode {
    run(&listing.common, &listing.ad_hoc, verbose, async |context| pinged(context, listing).await)
}

async fn pinged(context: &ClientContext<'_>, listing: &ListArguments) -> CommandOutcome {
    let asked = async |client: unhang::client::Client| client.ping(&RequestOptions::default()).await;
    if let Some(target) = ServerTarget::of(listing) {
        let client = context.client(&target).await?;
        let name = client.name().to_owned();
        let pinged = PingResult::new(name, asked(client).await?);
        return Ok(match context.format() {
            Format::Json => context.print_json(&pinged).await,
            Format::Text => context.print(pinged.text().into_bytes()).await,
        });
    }
    let (answers, code) = each(context, asked).await?;
    let all: Vec<PingResult> = answers.into_iter().map(|(name, took)| PingResult::new(name, took)).collect();
    let printed = match context.format() {
        Format::Json => context.print_json(&all).await,
        Format::Text => {
            context.print(all.iter().map(PingResult::text).collect::<String>().into_bytes()).await
        }
    };
    Ok(if code == exit::DONE { printed } else { code })
}

impl PingResult {
    fn new(server: String, took: Duration) -> Self {
        // Finer times than microseconds mean nothing.
        Self { server, ms: (took.as_secs_f64() * 1e6).round() / 1e3 }
    }

    fn text(&self) -> String {
        format!("{}: {} ms\n", self.server, self.ms)
    }
}
