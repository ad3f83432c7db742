//! Checks the imports of a plugin, and the versions of its interfaces.

use crate::CONTRACT_VERSIONS;
use crate::refusal::Refusal;
use crate::wasi;

/// The interfaces of the contract that plugins import.
const CONTRACT: [&str; 8] = ["cache", "clock", "http", "log", "progress", "store", "tls", "types"];

/// Refuses an import that this host does not provide.
pub(crate) fn check_import(name: &str) -> Result<(), Refusal> {
    let known = CONTRACT.iter().any(|part| name.starts_with(&format!("polliwog:plugin/{part}@")));
    if known {
        return check_version(name);
    }
    if wasi::may_import(name) {
        return Ok(());
    }
    let message = if name.starts_with("polliwog:plugin/") && !name.contains('@') {
        format!(
            "it imports {name} without a version: build it with the contract that `polliwog plugin wit DIR` writes, which \
             has a version"
        )
    } else if name.starts_with("wasi:http/") {
        format!("it imports {name}, which plugins must not use: use polliwog:plugin/http instead")
    } else if name.starts_with("wasi:") {
        format!(
            "it imports {name}, which this host does not provide: of WASI, plugins get only cli, clocks, io and random of \
             version 0.2, and files and sockets that refuse"
        )
    } else {
        format!("it imports {name}, which this host does not provide: a plugin may import only polliwog:plugin")
    };
    Err(Refusal::permanent("import_refused", message))
}

/// Refuses an interface of the contract that hosts had before it was released.
pub(crate) fn refuse_earlier(name: &str) -> Result<(), Refusal> {
    match name.starts_with("polliwog:poller/") {
        false => Ok(()),
        true => Err(Refusal::permanent(
            "contract_version",
            "it was built for polliwog:poller@0.1, which came before polliwog:plugin@0.1: build it again with this \
             version's SDK (`polliwog plugin update` in its project)",
        )),
    }
}

/// Checks the version of an interface. `polliwog:plugin/x@0.1.z` is accepted if the host supports 0.1.
pub(crate) fn check_version(name: &str) -> Result<(), Refusal> {
    let version = name.rsplit('@').next().unwrap_or_default();
    let minor = version.rsplitn(2, '.').last().unwrap_or_default();
    if CONTRACT_VERSIONS.contains(&minor) {
        return Ok(());
    }
    let supported = CONTRACT_VERSIONS.join(" and ");
    let message = format!(
        "it was built for polliwog:plugin@{minor}, but this host supports {supported}: build it with this host's SDK"
    );
    Err(Refusal::permanent("contract_version", message))
}

#[cfg(test)]
mod tests {
    use super::CONTRACT;

    #[test]
    fn plugins_may_import_what_the_contract_has_for_them() {
        let worlds = include_str!("../../../wit/worlds.wit");
        let imports = worlds.lines().filter_map(|line| line.trim().strip_prefix("import ")?.strip_suffix(';'));
        // Types that the others use are imported with them.
        let mut imports: Vec<&str> = imports.chain(["tls", "types"]).collect();
        imports.sort_unstable();
        assert_eq!(imports, CONTRACT);
    }
}
