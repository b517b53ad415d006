//! The store of many machines, as the command line opens it.
//!
//! Invariant: this module alone reads the environment for the password. It is in no message.

use std::sync::Arc;

use unhang::{jobs::shared_jobs::SharedJobs, settings::StoreUrl};
use unhang_terminal::failure::CommandFailure;

#[cfg(feature = "postgres")]
pub(crate) use self::with_postgres::address;

/// Makes the store at this address for an engine. It connects with the first operation.
#[cfg(feature = "postgres")]
pub(crate) fn jobs(url: &StoreUrl) -> Result<Arc<dyn SharedJobs>, CommandFailure> {
    Ok(Arc::new(unhang::postgres::PostgresJobs::new(address(url)?)))
}

/// Fails: this unhang was built without the client of the database.
#[cfg(not(feature = "postgres"))]
pub(crate) fn jobs(_: &StoreUrl) -> Result<Arc<dyn SharedJobs>, CommandFailure> {
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
        postgres::{PasswordSources, StoreAddress},
        settings::StoreUrl,
    };
    use unhang_terminal::failure::CommandFailure;

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
