//! `unhang worker --list` and `--drain`: the workers that a store knows.

use unhang::{
    exit,
    postgres::{KnownWorker, PostgresError, PostgresStore, StoreAddress, WorkerList},
    worker::known_name,
};
use unhang_terminal::{
    failure::{CommandFailure, Format},
    output,
    text::escaped,
};

use super::runs::{WorkerPlan, seconds};
use crate::{
    arguments::worker::WorkerArguments,
    commands::{
        client::beside,
        engine::{CommandOutcome, json, lines, report_format, table, wanted_data_folder},
    },
    shared_store,
};

/// Prints all workers.
pub(super) async fn list(arguments: &WorkerArguments) -> CommandOutcome {
    let address = address(arguments).await?;
    let workers = asked(address, |store| WorkerList(store).all()).await?;
    Ok(match report_format(arguments.output) {
        Format::Json => json(&workers.iter().map(KnownWorker::summary).collect::<Vec<_>>()),
        Format::Text => output::bytes(text(&workers).as_bytes()),
    })
}

fn text(workers: &[KnownWorker]) -> String {
    if workers.is_empty() {
        return "There are no workers.\n".to_owned();
    }
    let mut table = table(["NAME", "JOBS", "HEARD", "STATUS", "RUNS"], 1);
    for worker in workers {
        let status = match (worker.is_silent(), worker.is_drain_wanted) {
            (true, _) => "silent",
            (false, true) => "draining",
            (false, false) => "ready",
        };
        // unhang's own labels name tools and commands.
        let labels: Vec<&str> =
            worker.note.labels.iter().map(|label| label.strip_prefix("unhang:").unwrap_or(label)).collect();
        table.add_row([
            escaped(&worker.note.name),
            format!("{} of {}", worker.running, worker.note.slots),
            format!("{} ago", seconds(worker.heard_ago)),
            status.to_owned(),
            escaped(&labels.join(", ")),
        ]);
    }
    lines(&table)
}

/// Lets a worker take no more jobs.
pub(super) async fn drain(arguments: &WorkerArguments, name: &str) -> CommandOutcome {
    let name = match name {
        "" => {
            let folder = wanted_data_folder("a worker")?;
            let told = folder.display().to_string();
            let known = beside(move || Ok(known_name(&folder))).await?;
            known.ok_or_else(|| no_such_worker(&format!("no worker has run on the data folder {told}")))?
        }
        name => name.to_owned(),
    };
    let (address, wanted) = (address(arguments).await?, name.clone());
    let is_known = asked(address, move |store| WorkerList(store).want_drain(&wanted, true)).await?;
    if !is_known {
        return Err(no_such_worker(&format!("the store knows no worker {name}")));
    }
    output::error(&format!("worker {name} takes no more jobs, and ends after its last one"), None);
    Ok(exit::DONE)
}

fn no_such_worker(message: &str) -> CommandFailure {
    CommandFailure {
        code: exit::NOT_FOUND,
        kind: "no_such_worker",
        message: message.to_owned(),
        hint: Some("`unhang worker --list` shows the workers".to_owned()),
        data: None,
    }
}

async fn address(arguments: &WorkerArguments) -> Result<StoreAddress, CommandFailure> {
    shared_store::address(&WorkerPlan::read(arguments).await?.store)
}

/// Asks the store.
async fn asked<T: Send + 'static>(
    address: StoreAddress,
    ask: impl FnOnce(&mut PostgresStore) -> Result<T, PostgresError> + Send + 'static,
) -> Result<T, CommandFailure> {
    beside(move || {
        PostgresStore::open(address).and_then(|mut store| ask(&mut store)).map_err(|error| CommandFailure {
            code: exit::UNREACHABLE,
            kind: "store_unavailable",
            message: error.to_string(),
            hint: None,
            data: None,
        })
    })
    .await
}
