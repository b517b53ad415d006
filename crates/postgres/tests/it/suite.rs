//! The tests that every store passes.

use crate::server::TestDatabase;

unhang_jobs::store_suite!(TestDatabase, ignore = "needs PostgreSQL; cargo xtask ci --only examples");
