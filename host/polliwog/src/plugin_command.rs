//! `plugin list` and `plugin inspect`.

use crate::api::{self, Unanswered};
use crate::cli::Common;
use crate::plugins::{PluginSet, read};
use crate::setup::{self, print};
use egress::{Egress, Method};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::path::Path;

/// The plugins of the running host, with counters; where none answers, those that this configuration would load.
pub(crate) async fn list(common: &Common, as_json: bool) -> anyhow::Result<u8> {
    let (from, plugins) = match api::call(&api::usual_url(common), Method::Get, "/api/v1/plugins", None).await {
        Ok(answer) => ("the running host", answer["plugins"].clone()),
        Err(Unanswered::Refused(why)) => {
            eprintln!("polliwog: {why}");
            return Ok(1);
        }
        Err(Unanswered::Nobody(why)) => {
            eprintln!("no running host answers ({why}); this is what the configuration would load");
            ("the configuration", would_load(common).await?)
        }
    };
    if as_json {
        print(&json!({ "from": from, "plugins": plugins }).to_string())?;
        return Ok(0);
    }
    print(&format!("{:<16} {:<10} {:>10} {:>8}  SOURCE", "KIND", "VERSION", "POLLS", "FAULTS"))?;
    for plugin in plugins.as_array().into_iter().flatten() {
        let text = |key: &str| plugin[key].as_str().unwrap_or("-").to_owned();
        let (polls, faults) = (plugin["polls"].as_u64().unwrap_or(0), plugin["faults"].as_u64().unwrap_or(0));
        let refusal = plugin["refusal"].as_str().map_or_else(String::new, |why| format!(": refused, {why}"));
        print(&format!(
            "{:<16} {:<10} {polls:>10} {faults:>8}  {}{refusal}",
            text("kind"),
            text("version"),
            text("source")
        ))?;
    }
    Ok(0)
}

async fn would_load(common: &Common) -> anyhow::Result<Value> {
    let places = common.places();
    let config = match crate::config::find(&places, &setup::environment) {
        Ok(_) => setup::read(&places)?,
        Err(_) => crate::config::Config::written(("the defaults", ""), &places, &setup::environment),
    };
    let config = config.map_err(|problems| anyhow::anyhow!("{}", problems[0]))?;
    let sandbox = Sandbox::new(sandbox::Config::default(), &Egress::new(egress::Config::default()))?;
    let views = PluginSet::load(&sandbox, &config.plugin_dir).await.views();
    let plugin = |view: &web::PluginView| {
        json!({
            "kind": view.kind.as_ref().map(model::Kind::as_str), "version": view.version, "source": view.source,
            "refusal": view.refusal, "polls": 0, "faults": 0,
        })
    };
    Ok(views.iter().map(plugin).collect())
}

/// Who a file says it is, and whether this host would take it: 0 when it would, 1 when not.
pub(crate) async fn inspect(file: &Path, as_json: bool) -> anyhow::Result<u8> {
    let sandbox = Sandbox::new(sandbox::Config::default(), &Egress::new(egress::Config::default()))?;
    let loaded = match read(file) {
        Ok(bytes) => sandbox.load(&bytes).await.map_err(|refusal| (refusal.code, refusal.message)),
        Err(why) => Err(("unreadable", why)),
    };
    let name = file.display().to_string();
    let plugin = match loaded {
        Ok(plugin) => plugin,
        Err((code, message)) => {
            if as_json {
                print(&format!(
                    "{}",
                    json!({ "file": name, "verdict": "refused", "error": { "code": code, "message": message } })
                ))?;
            } else {
                print(&format!("{name}: refused ({code}): {message}"))?;
            }
            return Ok(1);
        }
    };
    let descriptor = plugin.descriptor();
    let digest: String = plugin.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    let secrets: Vec<Value> = (descriptor.secrets.iter())
        .map(|s| json!({ "name": s.name, "description": s.description, "required": s.required }))
        .collect();
    let facts = json!({
        "file": name, "verdict": "accepted", "kind": descriptor.kind.as_str(), "title": descriptor.title,
        "version": descriptor.version, "summary": descriptor.summary, "contract": plugin.contract_version(),
        "size": plugin.size(), "sha256": digest, "compileMs": plugin.compile_time().as_secs_f64() * 1000.0,
        "imports": plugin.imports(), "secrets": secrets,
        "defaultIntervalMs": u64::try_from(descriptor.default_interval.as_millis()).unwrap_or(u64::MAX),
        "defaultTimeoutMs": u64::try_from(descriptor.default_timeout.as_millis()).unwrap_or(u64::MAX),
        "settingsSchema": descriptor.settings_schema,
    });
    if as_json {
        print(&facts.to_string())?;
        return Ok(0);
    }
    print(&format!("{name}: accepted"))?;
    for key in [
        "kind",
        "title",
        "version",
        "summary",
        "contract",
        "size",
        "sha256",
        "compileMs",
        "defaultIntervalMs",
        "defaultTimeoutMs",
    ] {
        print(&format!("{key:<18} {}", facts[key].as_str().map_or_else(|| facts[key].to_string(), str::to_owned)))?;
    }
    for import in plugin.imports() {
        print(&format!("{:<18} {import}", "import"))?;
    }
    for secret in &descriptor.secrets {
        print(&format!(
            "{:<18} {}{}: {}",
            "secret",
            secret.name,
            if secret.required { " (required)" } else { "" },
            secret.description
        ))?;
    }
    print(&format!("{:<18} {}", "settings schema", descriptor.settings_schema))?;
    Ok(0)
}
