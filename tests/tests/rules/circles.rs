//! Finds files of a crate that import each other in a circle.
//!
//! An import is a `use` or a path in code that leads to another file of the crate. A re-export (`pub use`) is not an
//! import: a path through it leads to the file that defines the item. Test modules do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module's path within its crate; empty for the crate's root.
type Module = Vec<String>;

/// A file's imports and re-exports.
#[derive(Default)]
struct File {
    /// Paths as they are written.
    imports: BTreeSet<String>,
    /// The path behind each re-exported name.
    exports: BTreeMap<String, String>,
}

/// The circles of a crate whose sources are in `folder`, each as one line.
pub(crate) fn of(folder: &Path) -> Vec<String> {
    let mut files = BTreeMap::new();
    read(folder, &mut Vec::new(), &mut files);
    let edges: BTreeMap<&Module, BTreeSet<Module>> = (files.iter())
        .map(|(module, file)| {
            let targets = file.imports.iter().filter_map(|path| resolve(&files, module, path, 0));
            (module, targets.filter(|target| target != module).collect())
        })
        .collect();
    let mut circles = BTreeSet::new();
    for start in files.keys() {
        let mut circle: Vec<String> = (files.keys())
            .filter(|other| *other == start || (reaches(&edges, start, other) && reaches(&edges, other, start)))
            .map(|module| if module.is_empty() { "lib".to_owned() } else { module.join("/") })
            .collect();
        circle.sort();
        if circle.len() > 1 {
            circles.insert(format!("{}: {}", folder.display(), circle.join(", ")));
        }
    }
    circles.into_iter().collect()
}

fn reaches(edges: &BTreeMap<&Module, BTreeSet<Module>>, from: &Module, to: &Module) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = next.pop() {
        for target in edges.get(&module).into_iter().flatten() {
            if target == to {
                return true;
            }
            if seen.insert(target.clone()) {
                next.push(target.clone());
            }
        }
    }
    false
}

fn read(folder: &Path, module: &mut Module, files: &mut BTreeMap<Module, File>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "tests" || name == "fuzzing" {
            continue;
        }
        if path.is_dir() {
            module.push(name);
            read(&path, module, files);
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut own = module.clone();
            if !["lib", "main", "mod"].contains(&name.as_str()) {
                own.push(name);
            }
            files.insert(own, parse(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The file that a path leads to; `None` if it leads out of the crate.
fn resolve(files: &BTreeMap<Module, File>, from: &Module, path: &str, depth: u8) -> Option<Module> {
    let mut parts: Vec<&str> = path.split("::").collect();
    let mut module = from.clone();
    match parts[0] {
        "crate" => module.clear(),
        "super" | "self" => {}
        first => {
            let child = [from.clone(), vec![first.to_owned()]].concat();
            files.contains_key(&child).then_some(())?;
        }
    }
    while parts.first().is_some_and(|part| ["crate", "super", "self"].contains(part)) {
        if parts.remove(0) == "super" {
            module.pop();
        }
    }
    while let Some(part) = parts.first() {
        let child = [module.clone(), vec![(*part).to_owned()]].concat();
        if !files.contains_key(&child) {
            break;
        }
        module = child;
        parts.remove(0);
    }
    let exported = parts.first().and_then(|name| files.get(&module)?.exports.get(*name));
    match exported {
        Some(path) if depth < 8 => resolve(files, &module, path, depth + 1),
        _ => Some(module),
    }
}

fn parse(source: &str) -> File {
    let code = without_tests(&without_text(source));
    let mut file = File::default();
    let mut rest = String::new();
    let mut statement: Option<String> = None;
    for line in code.lines() {
        let trimmed = line.trim_start();
        let is_use = trimmed.starts_with("use ") || (trimmed.starts_with("pub") && trimmed.contains(" use "));
        if is_use && statement.is_none() {
            statement = Some(String::new());
        }
        match &mut statement {
            Some(held) => {
                held.push_str(line);
                if line.contains(';') {
                    add_use(&mut file, &statement.take().unwrap());
                }
            }
            None => {
                rest.push_str(line);
                rest.push('\n');
            }
        }
    }
    file.imports.extend(paths(&rest));
    file
}

fn add_use(file: &mut File, statement: &str) {
    let statement = statement.trim().trim_end_matches(';');
    let (visibility, tree) = statement.split_once("use ").unwrap();
    for path in expand(tree.trim()) {
        if visibility.trim().is_empty() {
            file.imports.insert(path);
        } else {
            file.exports.insert(path.rsplit("::").next().unwrap().to_owned(), path);
        }
    }
}

/// The paths of a `use` tree.
fn expand(tree: &str) -> Vec<String> {
    let Some((before, inner)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap().trim().to_owned()];
    };
    let inner = &inner[..inner.rfind('}').unwrap()];
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for character in inner.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if character == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(character);
        }
    }
    parts.push(part);
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{}{part}", before.trim()))).collect()
}

/// Paths with at least two parts, of which the first is lower-case.
fn paths(code: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c| !is_part(c)).filter(|word| word.contains("::"));
    let words = words.map(|word| word.trim_matches(':').to_owned());
    words.filter(|word| word.contains("::") && word.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

/// The source without its test module, which is the last item of a file.
fn without_tests(source: &str) -> String {
    let at = source.find("#[cfg(test)]\nmod tests {").or_else(|| source.find("#[cfg(test)]\npub(crate) mod tests {"));
    source[..at.unwrap_or(source.len())].to_owned()
}

/// The source without comments and string literals.
fn without_text(source: &str) -> String {
    let mut code = String::new();
    for line in source.lines() {
        let mut in_text = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if in_text => drop(characters.next()),
                '"' => in_text = !in_text,
                '/' if !in_text && characters.peek() == Some(&'/') => break,
                _ if !in_text => code.push(character),
                _ => {}
            }
        }
        code.push('\n');
    }
    code
}

#[test]
fn a_circle_is_found_and_a_re_export_is_followed() {
    let files = |sources: &[(&str, &str)]| -> BTreeMap<Module, File> {
        let module = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        sources.iter().map(|(name, source)| (module(name), parse(source))).collect()
    };
    let all = files(&[
        ("", "mod a;\nmod b;\npub use a::Thing;\n"),
        ("a", "use crate::b::{self, Other};\npub struct Thing;\n"),
        ("b", "// crate::a::Comment\nfn f(_: crate::Thing) {}\n"),
    ]);
    let b = vec!["b".to_owned()];
    assert_eq!(resolve(&all, &b, "crate::Thing", 0), Some(vec!["a".to_owned()]));
    assert_eq!(all[&b].imports, BTreeSet::from(["crate::Thing".to_owned()]));
    assert_eq!(resolve(&all, &b, "std::fmt", 0), None);
}
