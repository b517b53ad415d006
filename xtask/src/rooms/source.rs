//! Reads the modules of a crate: which there are, what each imports, and which types each defines.
//!
//! Invariants
//!
//! - Items behind `#[cfg(test)]` do not count, nor do the files of such modules.
//! - An import is what the code writes down: a re-export is an import of the module that re-exports.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, File, Item, ItemMod, ItemUse, Macro, Meta, Type, UseTree,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::failure::ChoreFailure;

/// A path of modules from the root of a crate, which is empty itself.
pub(super) type ModulePath = Vec<String>;

/// A module with a file of its own.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) file: PathBuf,
    /// Lines without those for tests alone.
    pub(super) lines: usize,
    /// Files that it imports from, by the paths of their modules.
    pub(super) imports: BTreeSet<ModulePath>,
    /// Structs, enums, unions, traits and aliases.
    pub(super) types: BTreeSet<String>,
    /// Types that it has `impl` blocks of, but for those of traits.
    pub(super) implemented: BTreeSet<String>,
}

/// The modules of a crate.
#[derive(Debug, Default)]
pub(super) struct CrateSource {
    pub(super) modules: BTreeMap<ModulePath, Module>,
}

impl CrateSource {
    /// Reads a crate from its root file.
    pub(super) fn read(root: &Path) -> Result<Self, ChoreFailure> {
        let mut found = Vec::new();
        read_file(root, &folder_of(root), &[], &mut found)?;
        let mut source = Self::default();
        // The file of each module. A module that is written in another file has that file.
        let mut files: BTreeMap<ModulePath, ModulePath> = BTreeMap::new();
        for (path, _, seen) in &found {
            files.insert(path.clone(), path.clone());
            files.extend(seen.inline.iter().map(|inline| (inline.clone(), path.clone())));
        }
        let aliases = found.iter().flat_map(|(_, _, seen)| &seen.aliases);
        let aliases: Vec<_> = aliases
            .filter_map(|(alias, inside, path)| Some((alias.clone(), module(&files, inside, path)?)))
            .collect();
        files.extend(aliases);
        for (path, file, seen) in found {
            let imports = seen.named.iter().filter_map(|(inside, named)| target(&files, inside, named));
            let imports = imports.filter(|import| *import != path).collect();
            let FileContents { lines, types, implemented, .. } = seen;
            source.modules.insert(path, Module { file, lines, imports, types, implemented });
        }
        Ok(source)
    }

    /// The folder that the file of a module lies in; that of its children where it has some.
    pub(super) fn folder(&self, module: &[String]) -> ModulePath {
        let is_child = |other: &ModulePath| other.len() > module.len() && other.starts_with(module);
        let length =
            if self.modules.keys().any(is_child) { module.len() } else { module.len().saturating_sub(1) };
        module[..length].to_vec()
    }
}

/// The file of the module that `named` names inside of a module, where it names one and nothing in it.
fn module(
    files: &BTreeMap<ModulePath, ModulePath>,
    inside: &[String],
    named: &[String],
) -> Option<ModulePath> {
    let found = target(files, inside, named)?;
    (found.last() == named.last()).then_some(found)
}

/// The module whose file has what `named` names inside of a module, where it is one of this crate.
fn target(
    files: &BTreeMap<ModulePath, ModulePath>,
    inside: &[String],
    named: &[String],
) -> Option<ModulePath> {
    let mut at = inside.to_vec();
    let mut rest = named;
    match named.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|first| first == "super") {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        first => {
            at.push(first.to_owned());
            // Anything else is a crate, or came here by an import that has been seen.
            files.get(&at)?;
            rest = &rest[1..];
        }
    }
    for segment in rest {
        at.push(segment.clone());
        if !files.contains_key(&at) {
            at.pop();
            break;
        }
    }
    files.get(&at).cloned()
}

type FoundModules = Vec<(ModulePath, PathBuf, FileContents)>;

fn folder_of(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => folder,
        Some(stem) => folder.join(stem),
    }
}

fn read_file(
    file: &Path,
    children: &Path,
    path: &[String],
    found: &mut FoundModules,
) -> Result<(), ChoreFailure> {
    let text = fs::read_to_string(file).map_err(|error| ChoreFailure::io(file.display(), &error))?;
    let parsed: File =
        syn::parse_file(&text).map_err(|error| ChoreFailure::new(format!("{}: {error}", file.display())))?;
    let mut seen =
        FileContents { inside: path.to_vec(), lines: text.lines().count(), ..FileContents::default() };
    seen.visit_file(&parsed);
    let modules = seen.files.clone();
    found.push((path.to_vec(), file.to_owned(), seen));
    for name in modules {
        let (beside, below) = (children.join(format!("{name}.rs")), children.join(&name).join("mod.rs"));
        let child = if beside.exists() { beside } else { below };
        read_file(&child, &folder_of(&child), &[path, &[name]].concat(), found)?;
    }
    Ok(())
}

/// The imports and types of one file.
#[derive(Debug, Default)]
struct FileContents {
    /// The module that is being read: that of the file, or one that is written in it.
    inside: ModulePath,
    lines: usize,
    /// Modules with files of their own.
    files: Vec<String>,
    /// Modules that are written in this file.
    inline: Vec<ModulePath>,
    /// Other names of what may be a module: the path, and what it stands for inside of which module.
    aliases: Vec<(ModulePath, ModulePath, Vec<String>)>,
    /// What is named, and inside of which module.
    named: BTreeSet<(ModulePath, Vec<String>)>,
    types: BTreeSet<String>,
    implemented: BTreeSet<String>,
}

impl FileContents {
    fn name(&mut self, segments: Vec<String>) {
        self.named.insert((self.inside.clone(), segments));
    }

    fn name_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.name_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.name(with(&name.ident)),
            UseTree::Rename(rename) => {
                let path = with(&rename.ident);
                let alias = [&self.inside[..], &[rename.rename.to_string()]].concat();
                self.aliases.push((alias, self.inside.clone(), path.clone()));
                self.name(path);
            }
            UseTree::Glob(_) => self.name(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.name_tree(before, tree)),
        }
    }

    /// Finds `crate::…`, `self::…` and `super::…` among the words of a macro.
    fn name_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if path.is_empty() || colons == 2 => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.name_if_ours(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Group(group) => self.name_tokens(group.stream()),
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        _ => {}
                    }
                }
            }
        }
        self.name_if_ours(path);
    }

    fn name_if_ours(&mut self, path: Vec<String>) {
        if path.len() > 1 && ["crate", "self", "super"].contains(&path[0].as_str()) {
            self.name(path);
        }
    }
}

impl<'ast> Visit<'ast> for FileContents {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_for_tests) {
            let span = item.span();
            self.lines -= (span.end().line - span.start().line + 1).min(self.lines);
            return;
        }
        match item {
            Item::Struct(item) => self.types.extend([item.ident.to_string()]),
            Item::Enum(item) => self.types.extend([item.ident.to_string()]),
            Item::Union(item) => self.types.extend([item.ident.to_string()]),
            Item::Trait(item) => self.types.extend([item.ident.to_string()]),
            Item::Type(item) => self.types.extend([item.ident.to_string()]),
            Item::Impl(block) if block.trait_.is_none() => {
                if let Type::Path(path) = &*block.self_ty {
                    self.implemented.extend(path.path.segments.last().map(|last| last.ident.to_string()));
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let name = module.ident.to_string();
        if module.content.is_none() {
            self.files.push(name);
            return;
        }
        self.inside.push(name);
        self.inline.push(self.inside.clone());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.name_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.name(segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.name_tokens(call.tokens.clone());
    }
}

/// Whether this is a `#[cfg(…)]` that only tests meet.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let is_test = |token: TokenTree| matches!(token, TokenTree::Ident(word) if word == "test");
    list.path.is_ident("cfg") && list.tokens.clone().into_iter().any(is_test)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
