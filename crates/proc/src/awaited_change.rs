//! The kinds of change that a watch of a file or folder is for.

/// The kind of change that a watch is for. A system that tells less finely tells of more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedChange {
    /// A write to this file.
    Writes,
    /// A new file in this folder.
    NewFiles,
    /// A new, changed or removed file in this folder, or its removal. Some file systems do not tell that a folder was removed (overlayfs).
    Files,
}
