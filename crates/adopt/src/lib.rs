//! Puts `unhang wrap` in front of the servers in the configuration files of MCP clients, and takes it away again.
//!
//! # Theory of operation
//!
//! [`clients`] knows the clients and the places of their files. [`ConfigDocument`] reads one file, in JSON with comments or in TOML, as a tree
//! whose values know their places in the text, and lists its servers. [`plan()`] judges each server and makes a [`FilePatch`]: a few insertions
//! and replacements. So every byte outside of these stays, whatever it is: a comment, the order, the indentation, a trailing comma, a byte
//! order mark or the kind of line break. [`TargetFile`] writes the result in place of the file, and [`AdoptionRecords`] keeps the bytes from
//! before. [`undo()`] returns exactly these bytes, or, if somebody has edited the file since, the edited text without the guard.
//!
//! Invariants
//!
//! - A patch is used only if undoing it gives the bytes from before. A file for which this fails is left as it is.
//! - A file is written only if it still has the bytes that the patch was made from, and only by a rename. So a full disk, a crash or another
//!   writer leaves a whole file.
//! - Only the command and the arguments of a server change. Variables, folders and all other keys stay, and no secret among them is shown.
//! - This crate reads no environment and no home folder: its callers hand them in. It prints nothing.

pub mod clients;
mod document;
mod patch;
mod plan;
mod records;
pub mod running;
mod syntax;
mod target;
mod undo;

pub use document::{ConfigDocument, ConfiguredEntry, GuardSeen};
pub use patch::{FilePatch, PatchHunk, TextEdit};
pub use plan::{AdoptionPlan, EntryVerdict, PlannedEntry, UneditableFile, plan};
pub use records::{AdoptedEntry, AdoptionRecord, AdoptionRecords, UnreadableRecord};
pub use syntax::{FileSyntax, SyntaxError};
pub use target::{TargetError, TargetFile};
pub use undo::{UndoKind, UndoPlan, undo, without_guard};
