//! The store of many machines, as the command line opens it.
//!
//! Invariant: this module alone reads the environment for the password, and for the access to an object store. No message has either.

use std::sync::Arc;

use unhang::{
    jobs::shared_jobs::SharedJobs,
    promoted::EngineService,
    settings::{JobSettings, StoreUrl},
};
use unhang_terminal::failure::CommandFailure;

#[cfg(feature = "postgres")]
pub(crate) use self::with_postgres::{address, files, keeps_from_jobs, show_calls};

/// Shows the slow calls behind a service in a store, from the moment when the data folder is open until this is dropped.
#[cfg(feature = "postgres")]
pub(crate) async fn show_calls_of(service: Arc<EngineService>, store: StoreUrl) {
    // The store was opened for the engine, so the address is known to be right.
    let Ok(address) = address(&store) else { return };
    if service.until_opened().await.is_some()
        && let Ok(engine) = service.engine().await
    {
        let _until_dropped = show_calls(&engine, address);
        std::future::pending::<()>().await;
    }
}

/// Returns at once: this unhang has no client of the database.
#[cfg(not(feature = "postgres"))]
pub(crate) async fn show_calls_of(_: Arc<EngineService>, _: StoreUrl) {}

/// Makes the store at this address for an engine. It connects with the first operation. Each of `layers` overrides those before it.
#[cfg(feature = "postgres")]
pub(crate) fn jobs(url: &StoreUrl, layers: &[JobSettings]) -> Result<Arc<dyn SharedJobs>, CommandFailure> {
    Ok(Arc::new(unhang::postgres::PostgresJobs::new(address(url)?).with_files(files(layers)?)))
}

/// Fails: this unhang was built without the client of the database.
#[cfg(not(feature = "postgres"))]
pub(crate) fn jobs(_: &StoreUrl, _: &[JobSettings]) -> Result<Arc<dyn SharedJobs>, CommandFailure> {
    Err(missing_feature())
}

/// Makes the failure of a command that needs the client of the database.
#[cfg(not(feature = "postgres"))]
pub(crate) fn missing_feature() -> CommandFailure {
    let hint = "use a released unhang, or build it with `--features postgres`";
    CommandFailure::usage("this unhang was built without the store of many machines".to_owned(), Some(hint))
}

#[cfg(feature = "postgres")]
mod with_postgres {
    use std::{env, path::PathBuf};

    use unhang::{
        jobs::engine::Engine,
        postgres::{
            PasswordSources, SharedFiles, StoreAddress,
            artifacts::{ACCESS_VARIABLES, ArtifactLocation, ArtifactStore, ObjectAccess},
        },
        settings::{JobSettings, StoreUrl},
        worker::CallMirror,
    };
    use unhang_terminal::failure::CommandFailure;

    /// The variables that may have the password of the store. No job gets them.
    const OF_THE_STORE: [&str; 2] = ["UNHANG_JOBS_STORE", "PGPASSWORD"];

    /// Shows the slow calls of this engine's data folder in a store, until the result is dropped. Says so if that cannot be.
    pub(crate) fn show_calls(engine: &Engine, address: StoreAddress) -> Option<CallMirror> {
        let mirror = CallMirror::start(engine.clone(), address);
        mirror.inspect_err(|error| tracing::warn!("slow calls are not shown in the job store: {error}")).ok()
    }

    /// Returns whether a worker with these places of files keeps a variable from its jobs. Without a bucket, jobs get AWS's variables:
    /// unhang does not use them then.
    pub(crate) fn keeps_from_jobs(variable: &str, files: &SharedFiles) -> bool {
        let has_bucket = files.artifacts.as_ref().is_some_and(ArtifactStore::has_credentials);
        OF_THE_STORE.contains(&variable) || has_bucket && ACCESS_VARIABLES.contains(&variable)
    }

    /// Returns the places of files, with the access to an object store that the environment has. Each of `layers` overrides those before
    /// it.
    pub(crate) fn files(layers: &[JobSettings]) -> Result<SharedFiles, CommandFailure> {
        let mut files = SharedFiles::default();
        for layer in layers {
            files.inline = layer.artifact_inline.unwrap_or(files.inline);
            files.largest = layer.artifact_max.unwrap_or(files.largest);
        }
        let told = layers.iter().rev().find_map(|layer| layer.artifacts.as_deref());
        if let Some(told) = told.filter(|told| !told.is_empty()) {
            let location = ArtifactLocation::parse(told)
                .map_err(|error| CommandFailure::usage(format!("artifacts in [jobs]: {error}"), None))?;
            let access = ObjectAccess::of_variables(|name| env::var(name).ok());
            files.artifacts = Some(ArtifactStore::new(&location, access));
        }
        Ok(files)
    }

    /// Reads the address of a store, with the password that the environment has for it.
    pub(crate) fn address(url: &StoreUrl) -> Result<StoreAddress, CommandFailure> {
        let password_file = env::var_os("PGPASSFILE").map(PathBuf::from).or_else(|| {
            let home = env::var_os("HOME").map(PathBuf::from)?;
            Some(home.join(".pgpass")).filter(|path| path.exists())
        });
        let sources = PasswordSources { password: env::var("PGPASSWORD").ok(), password_file };
        StoreAddress::parse(url.with_password(), &sources)
            .map_err(|error| CommandFailure::usage(error.to_string(), None))
    }
}
