//! The part of WASI that plugins get.
//!
//! The tool chains of Rust, JavaScript and Python import most of WASI 0.2, whether the plugin uses it or not. Clocks,
//! random numbers and streams are the library's, without access to the system. Everything else has nothing behind it:
//! there are no arguments, variables, terminals and directories, and each function of files and sockets refuses. So
//! none of the library's code for them is in the program.

use crate::host::State;
use std::sync::Arc;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};
use wasmtime::component::{Component, Linker, LinkerInstance, Resource, ResourceAny, ResourceType, Val};
use wasmtime::{Result, StoreContextMut, bail};
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::p2::bindings::{cli, random};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView};

/// The interfaces of [`add_to_linker`].
const PROVIDED: [&str; 12] = [
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
];
/// The interfaces without anything behind them, each with the resource types that it defines.
const EMPTY: [(&str, &[&str]); 15] = [
    ("wasi:cli/environment", &[]),
    ("wasi:cli/terminal-input", &["terminal-input"]),
    ("wasi:cli/terminal-output", &["terminal-output"]),
    ("wasi:cli/terminal-stderr", &[]),
    ("wasi:cli/terminal-stdin", &[]),
    ("wasi:cli/terminal-stdout", &[]),
    ("wasi:filesystem/preopens", &[]),
    ("wasi:filesystem/types", &["descriptor", "directory-entry-stream"]),
    ("wasi:sockets/instance-network", &[]),
    ("wasi:sockets/ip-name-lookup", &["resolve-address-stream"]),
    ("wasi:sockets/network", &["network"]),
    ("wasi:sockets/tcp", &["tcp-socket"]),
    ("wasi:sockets/tcp-create-socket", &[]),
    ("wasi:sockets/udp", &["udp-socket", "incoming-datagram-stream", "outgoing-datagram-stream"]),
    ("wasi:sockets/udp-create-socket", &[]),
];
/// The error codes of files and of sockets for an operation that is not permitted.
const REFUSALS: [&str; 2] = ["access", "access-denied"];

/// A resource of an interface without anything behind it.
struct Nothing;

/// Returns whether plugins may import an interface of WASI, such as `wasi:cli/exit@0.2.3`.
pub(crate) fn may_import(name: &str) -> bool {
    let Some((interface, version)) = name.split_once('@') else { return false };
    let is_known = PROVIDED.contains(&interface) || resources_of(interface).is_some();
    let is_number = |patch: &str| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit());
    is_known && version.strip_prefix("0.2.").is_some_and(is_number)
}

/// Adds the interfaces that the host provides.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> Result<()> {
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(linker)?;
    random::insecure::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    cli::exit::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    Ok(())
}

/// Returns the linker for a component: `linker`, with the functions that the component imports of interfaces without
/// anything behind them.
pub(crate) fn linker_for(component: &Component, linker: &Linker<State>) -> Result<Linker<State>> {
    let (mut linker, engine) = (linker.clone(), component.engine());
    for (name, import) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        let interface = name.split('@').next().unwrap_or_default();
        let Some(resources) = resources_of(interface) else { continue };
        let mut imports = linker.instance(name)?;
        for resource in resources {
            imports.resource(resource, ResourceType::host::<Nothing>(), |_, _| Ok(()))?;
        }
        for (function, item) in instance.exports(engine) {
            if matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                add_refusal(&mut imports, interface, function)?;
            }
        }
    }
    Ok(linker)
}

/// Returns the resource types that an interface without anything behind it defines. `None` for any other interface.
fn resources_of(interface: &str) -> Option<&'static [&'static str]> {
    EMPTY.iter().find(|(name, _)| *name == interface).map(|(_, resources)| *resources)
}

/// Adds a function that refuses: it returns an error, an empty list or nothing, whatever its type permits. A function
/// that cannot refuse ends the poll.
fn add_refusal(imports: &mut LinkerInstance<'_, State>, interface: &str, function: &str) -> Result<()> {
    let name: Arc<str> = format!("{interface}.{function}").into();
    imports.func_new_async(function, move |store, kind, arguments, results| {
        let name = name.clone();
        Box::new(async move { refuse(&name, store, &kind, arguments, results).await })
    })
}

/// Calls a function that refuses: of this type, with these arguments and places of results.
async fn refuse(
    name: &str,
    mut store: StoreContextMut<'_, State>,
    kind: &ComponentFunc,
    arguments: &[Val],
    results: &mut [Val],
) -> Result<()> {
    for argument in arguments {
        if let Val::Resource(resource) = argument {
            resource.resource_drop_async(&mut store).await?;
        }
    }
    let [result] = results else { return refused(name) };
    *result = match refusal(kind) {
        Some(refusal) => refusal,
        // The network is only an argument of functions that refuse.
        None if name == "wasi:sockets/instance-network.instance-network" => {
            Val::Resource(ResourceAny::try_from_resource(Resource::<Nothing>::new_own(0), store)?)
        }
        None => return refused(name),
    };
    Ok(())
}

fn refused(name: &str) -> Result<()> {
    bail!("{name} is not available to plugins")
}

/// Returns the result of a function that refuses. `None` if its type has no such value.
fn refusal(kind: &ComponentFunc) -> Option<Val> {
    match kind.results().next()? {
        Type::Result(result) => {
            let Some(Type::Enum(codes)) = result.err() else { return None };
            let code = codes.names().find(|code| REFUSALS.contains(code))?.to_owned();
            Some(Val::Result(Err(Some(Box::new(Val::Enum(code))))))
        }
        Type::Option(_) => Some(Val::Option(None)),
        Type::List(_) => Some(Val::List(Vec::new())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_known_by_name_and_version() {
        for (name, expected) in [
            ("wasi:cli/exit@0.2.0", true),
            ("wasi:cli/exit@0.2.12", true),
            ("wasi:random/random@0.2.3", true),
            ("wasi:filesystem/preopens@0.2.0", true),
            ("wasi:sockets/udp-create-socket@0.2.6", true),
            ("wasi:cli/exit", false),
            ("wasi:cli/exit@0.2", false),
            ("wasi:cli/exit@0.2.", false),
            ("wasi:cli/exit@0.2.0-rc-2023-11-10", false),
            ("wasi:cli/exit@0.3.0", false),
            ("wasi:cli/exit@10.2.0", false),
            ("wasi:cli/run@0.2.0", false),
            ("wasi:clocks/timezone@0.2.0", false),
            ("wasi:http/types@0.2.0", false),
            ("wasi:filesystem@0.2.0", false),
            ("evil:filesystem/types@0.2.0", false),
        ] {
            assert_eq!(may_import(name), expected, "{name}");
        }
    }
}
