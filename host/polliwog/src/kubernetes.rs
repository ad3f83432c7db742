//! Kubernetes as a source of deployments: where the cluster is, and the operator behind its resources.

use crate::definer::Definer;
use config::{KubernetesConfig, TlsConfig};
use fleet::DeploymentView;
use kube::{Deployments, Settings};
use model::Timestamp;
use std::path::{Path, PathBuf};

/// The files of a pod's account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The variables of a pod that name the API server.
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// The devices of a deployment among which the one that was heard last is looked for.
const DEVICES: usize = 10_000;

/// Returns how to reach the cluster. What the configuration leaves out is that of the pod in which this process runs;
/// with a URL, there is no token and no file of authorities unless they are named.
pub(crate) fn settings(config: &KubernetesConfig) -> Result<Settings, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    settings_in(config, Path::new(ACCOUNT), variable)
}

fn settings_in(
    config: &KubernetesConfig,
    account: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Settings, String> {
    let is_pod = config.url.is_none();
    let url = match &config.url {
        Some(url) => url.clone(),
        None => {
            let Some(host) = variable(HOST) else {
                return Err(format!("this is no pod ({HOST} is not set): write the url of the API server"));
            };
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let url = format!("https://{host}:{}", variable(PORT).unwrap_or_else(|| "443".to_owned()));
            url.parse().map_err(|error| format!("{url}: {error}"))?
        }
    };
    let of_pod = |file: &str| is_pod.then(|| account.join(file));
    let namespace = match (&config.namespace, of_pod("namespace")) {
        (Some(name), _) => name.clone(),
        (None, Some(file)) => read(&file)?.trim().to_owned(),
        (None, None) => "default".to_owned(),
    };
    let token_file = config.token_file.clone().or_else(|| of_pod("token"));
    if let Some(file) = &token_file {
        read(file).map_err(|why| format!("token_file: {why}"))?;
    }
    let ca_file: Option<PathBuf> = config.ca_file.clone().or_else(|| of_pod("ca.crt"));
    let tls = TlsConfig { ca_file, ..TlsConfig::default() };
    let tls = tls.build().map_err(|why| why.to_string())?.for_other_protocols();
    Ok(Settings { url, namespace, token_file, tls })
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

impl Deployments for Definer {
    fn reports(&self) -> bool {
        let view = self.operator.view();
        view.waits_for.is_none() && view.is_complete
    }

    fn find(&self, name: &str) -> Option<DeploymentView> {
        self.operator.deployment(name)
    }

    fn last_heard(&self, name: &str) -> Option<Timestamp> {
        let devices = self.operator.devices_of(name, DEVICES);
        let latest = devices.iter().filter(|device| device.is_heard).map(|device| device.heard).max()?;
        Some(self.operator.wall(latest))
    }

    async fn define(&self, name: &str, definition: Option<String>) -> Result<(), String> {
        Definer::define(self, name.to_owned(), definition).await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_configuration_leaves_out_is_that_of_the_pod() {
        let account = tempfile::tempdir().unwrap();
        let none = |_: &str| None;
        let of_pod = |name: &str| Some(if name == HOST { "10.0.0.1" } else { "6443" }.to_owned());
        let read = |config: &KubernetesConfig, variable: &dyn Fn(&str) -> Option<String>| {
            settings_in(config, account.path(), variable)
        };
        let pod = KubernetesConfig::default();
        assert!(read(&pod, &none).unwrap_err().contains("this is no pod"));
        assert!(read(&pod, &of_pod).unwrap_err().contains("namespace: No such file"));
        std::fs::write(account.path().join("namespace"), "site\n").unwrap();
        assert!(read(&pod, &of_pod).unwrap_err().contains("token_file: "));
        std::fs::write(account.path().join("token"), "secret").unwrap();
        assert!(read(&pod, &of_pod).unwrap_err().contains("ca.crt"));
        let ca = rcgen::generate_simple_self_signed(vec!["kubernetes".to_owned()]).unwrap();
        std::fs::write(account.path().join("ca.crt"), ca.cert.pem()).unwrap();
        let found = read(&pod, &of_pod).unwrap();
        assert_eq!((found.url.as_str(), found.namespace.as_str()), ("https://10.0.0.1:6443/", "site"));
        assert_eq!(found.token_file, Some(account.path().join("token")));

        let proxy = KubernetesConfig { url: "http://127.0.0.1:8001".parse().ok(), ..KubernetesConfig::default() };
        let found = read(&proxy, &none).unwrap();
        assert_eq!((found.namespace.as_str(), found.token_file), ("default", None));
    }
}
