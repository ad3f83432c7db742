//! `docs/plugin-contract.md`: each item of the contract with its description.

use std::fmt::Write;
use wit_parser::{Docs, Function, Interface, Resolve, Type, TypeDef, TypeDefKind, TypeId, WorldItem};

/// The lines before the interfaces.
const HEAD: &str = "# The contract, item by item

This page is generated from the files in `wit/` (`UPDATE=1 cargo test -p bindings`), which `polliwog plugin wit DIR` writes.
[Plugin authors](plugin-authors.md) introduces it.

";

#[test]
fn the_page_of_the_contract_is_generated_from_it() {
    let (resolve, package) = crate::contract();
    let mut page = format!("{HEAD}{}\n", text(&resolve.packages[package].docs));
    for (name, id) in &resolve.packages[package].worlds {
        let world = &resolve.worlds[*id];
        let names = |items: &mut dyn Iterator<Item = &WorldItem>| {
            let name = |item: &WorldItem| match item {
                WorldItem::Interface { id, .. } => {
                    format!("`{}`", resolve.interfaces[*id].name.as_deref().unwrap_or_default())
                }
                _ => String::new(),
            };
            items.map(name).collect::<Vec<_>>().join(", ")
        };
        let (imports, exports) = (names(&mut world.imports.values()), names(&mut world.exports.values()));
        let _ = writeln!(page, "\n## World `{name}`\n\n{}", text(&world.docs));
        for (what, names) in [("imports", imports), ("exports", exports)] {
            if !names.is_empty() {
                let _ = writeln!(page, "\nIt {what} {names}.");
            }
        }
    }
    for (name, id) in &resolve.packages[package].interfaces {
        let described = interface(&resolve, &resolve.interfaces[*id]);
        let _ = write!(page, "\n## Interface `{name}`\n\n{described}");
    }
    crate::check("docs/plugin-contract.md", &page);
}

#[test]
fn every_item_of_the_contract_is_described() {
    let (resolve, package) = crate::contract();
    let package = &resolve.packages[package];
    let mut bare: Vec<String> = Vec::new();
    let mut see = |docs: &Docs, item: String| {
        if docs.contents.as_deref().unwrap_or_default().trim().is_empty() {
            bare.push(item);
        }
    };
    see(&package.docs, "the package".to_owned());
    package.worlds.iter().for_each(|(name, id)| see(&resolve.worlds[*id].docs, format!("world {name}")));
    for (of, id) in &package.interfaces {
        let interface = &resolve.interfaces[*id];
        see(&interface.docs, format!("interface {of}"));
        for (name, function) in &interface.functions {
            see(&function.docs, format!("{of}.{name}"));
        }
        for (name, id) in own_types(&resolve, interface) {
            let found = &resolve.types[id];
            see(&found.docs, format!("{of}.{name}"));
            parts(&resolve, found).into_iter().for_each(|part| see(part.docs, format!("{of}.{name}.{}", part.name)));
        }
    }
    assert_eq!(bare, Vec::<String>::new(), "items without a description");
}

/// A field of a record, a case of a variant or enum, or a flag.
struct Part<'a> {
    name: &'a str,
    of_type: String,
    docs: &'a Docs,
}

fn parts<'a>(resolve: &'a Resolve, found: &'a TypeDef) -> Vec<Part<'a>> {
    let plain = |name: &'a String, docs| Part { name, of_type: String::new(), docs };
    match &found.kind {
        TypeDefKind::Record(record) => {
            let part = |field: &'a wit_parser::Field| Part {
                name: &field.name,
                of_type: type_name(resolve, &field.ty),
                docs: &field.docs,
            };
            record.fields.iter().map(part).collect()
        }
        TypeDefKind::Variant(variant) => {
            let part = |case: &'a wit_parser::Case| Part {
                name: &case.name,
                of_type: case.ty.map(|of| type_name(resolve, &of)).unwrap_or_default(),
                docs: &case.docs,
            };
            variant.cases.iter().map(part).collect()
        }
        TypeDefKind::Enum(cases) => cases.cases.iter().map(|case| plain(&case.name, &case.docs)).collect(),
        TypeDefKind::Flags(flags) => flags.flags.iter().map(|flag| plain(&flag.name, &flag.docs)).collect(),
        _ => Vec::new(),
    }
}

/// The types that an interface defines itself.
fn own_types<'a>(resolve: &'a Resolve, interface: &'a Interface) -> impl Iterator<Item = (&'a str, TypeId)> {
    let is_own = |id: &TypeId| match resolve.types[*id].kind {
        TypeDefKind::Type(Type::Id(of)) => resolve.types[of].owner == resolve.types[*id].owner,
        _ => true,
    };
    interface.types.iter().filter(move |(_, id)| is_own(id)).map(|(name, id)| (name.as_str(), *id))
}

fn interface(resolve: &Resolve, interface: &Interface) -> String {
    let mut page = format!("{}\n", text(&interface.docs));
    for (name, function) in &interface.functions {
        let _ = write!(page, "\n### `{name}: {}`\n\n{}\n", signature(resolve, function), text(&function.docs));
    }
    for (name, id) in own_types(resolve, interface) {
        let found = &resolve.types[id];
        let (kind, head) = match &found.kind {
            TypeDefKind::Record(_) => ("record", "| field | type | |\n|---|---|---|\n"),
            TypeDefKind::Variant(_) => ("variant", "| case | type | |\n|---|---|---|\n"),
            TypeDefKind::Enum(_) => ("enum", "| case | |\n|---|---|\n"),
            TypeDefKind::Flags(_) => ("flags", "| flag | |\n|---|---|\n"),
            _ => ("type", ""),
        };
        let equal = match &found.kind {
            TypeDefKind::Type(of) => format!(" = {}", type_name(resolve, of)),
            _ => String::new(),
        };
        let _ = write!(page, "\n### `{kind} {name}{equal}`\n\n{}\n", text(&found.docs));
        let parts = parts(resolve, found);
        if !parts.is_empty() {
            let _ = write!(page, "\n{head}");
        }
        for Part { name, of_type, docs } in parts {
            let described = text(docs).replace('\n', " ").replace('|', "\\|");
            let _ = match (kind, of_type.is_empty()) {
                ("record" | "variant", true) => writeln!(page, "| `{name}` | | {described} |"),
                ("record" | "variant", false) => writeln!(page, "| `{name}` | `{of_type}` | {described} |"),
                _ => writeln!(page, "| `{name}` | {described} |"),
            };
        }
    }
    page
}

/// The text of a description. Its headings are below those of the page.
fn text(docs: &Docs) -> String {
    let lines = docs.contents.as_deref().unwrap_or_default().trim().lines();
    let line = |line: &str| match line.strip_prefix("# ") {
        Some(heading) => format!("### {heading}"),
        None => line.to_owned(),
    };
    lines.map(line).collect::<Vec<_>>().join("\n")
}

fn signature(resolve: &Resolve, function: &Function) -> String {
    let parameter = |param: &wit_parser::Param| format!("{}: {}", param.name, type_name(resolve, &param.ty));
    let parameters: Vec<String> = function.params.iter().map(parameter).collect();
    let result = function.result.map(|result| format!(" -> {}", type_name(resolve, &result))).unwrap_or_default();
    format!("func({}){result}", parameters.join(", "))
}

fn type_name(resolve: &Resolve, of: &Type) -> String {
    let Type::Id(id) = of else { return format!("{of:?}").to_lowercase() };
    let found = &resolve.types[*id];
    if let Some(name) = &found.name {
        return name.clone();
    }
    let optional = |of: &Option<Type>| of.map_or_else(|| "_".to_owned(), |of| type_name(resolve, &of));
    match &found.kind {
        TypeDefKind::Option(of) => format!("option<{}>", type_name(resolve, of)),
        TypeDefKind::List(of) => format!("list<{}>", type_name(resolve, of)),
        TypeDefKind::Result(result) if result.err.is_none() => format!("result<{}>", optional(&result.ok)),
        TypeDefKind::Result(result) => format!("result<{}, {}>", optional(&result.ok), optional(&result.err)),
        TypeDefKind::Tuple(tuple) => {
            let types: Vec<String> = tuple.types.iter().map(|of| type_name(resolve, of)).collect();
            format!("tuple<{}>", types.join(", "))
        }
        kind => kind.as_str().to_owned(),
    }
}
