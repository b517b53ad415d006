//! `unhang ping`: how long servers take to give a sign of life, once they are ready.

use std::{process::ExitCode, time::Duration};

use serde::Serialize;
use unhang::{client::Options, exit};

use super::{Desk, Target, list::each, run};
use crate::{
    arguments::{client::Listing, jobs::Format},
    commands::engine::Outcome,
};

#[derive(Serialize)]
struct Pinged {
    server: String,
    ms: f64,
}

/// Pings one server, or all.
pub(in crate::commands) fn ping(listing: &Listing, verbose: bool) -> ExitCode {
    run(&listing.common, &listing.ad_hoc, verbose, async |desk| pinged(desk, listing).await)
}

async fn pinged(desk: &Desk<'_>, listing: &Listing) -> Outcome {
    let asked = async |client: unhang::client::Client| client.ping(&Options::default()).await;
    if let Some(target) = Target::of(listing) {
        let client = desk.client(&target).await?;
        let name = client.name().to_owned();
        let pinged = Pinged::new(name, asked(client).await?);
        return Ok(match desk.format() {
            Format::Json => desk.print_json(&pinged).await,
            Format::Text => desk.print(pinged.text().into_bytes()).await,
        });
    }
    let (answers, code) = each(desk, asked).await?;
    let all: Vec<Pinged> = answers.into_iter().map(|(name, took)| Pinged::new(name, took)).collect();
    let printed = match desk.format() {
        Format::Json => desk.print_json(&all).await,
        Format::Text => desk.print(all.iter().map(Pinged::text).collect::<String>().into_bytes()).await,
    };
    Ok(if code == exit::DONE { printed } else { code })
}

impl Pinged {
    fn new(server: String, took: Duration) -> Self {
        // Microseconds are as fine as anybody can tell.
        Self { server, ms: (took.as_secs_f64() * 1e6).round() / 1e3 }
    }

    fn text(&self) -> String {
        format!("{}: {} ms\n", self.server, self.ms)
    }
}
