//! How a Proxmox Backup Server becomes a target.

use polliwog_sdk::Guide;
use proxmox::Product;

pub(crate) const TOKEN_EXAMPLE: &str = "${account}!monitor:THE-VALUE-SHOWN";

pub(crate) fn guide() -> Guide {
    let commands = [
        "proxmox-backup-manager user create ${account} --comment 'Polliwog, read-only'",
        "proxmox-backup-manager user generate-token ${account} monitor",
        "proxmox-backup-manager acl update / Audit --auth-id ${account}",
        "proxmox-backup-manager acl update / Audit --auth-id '${account}!monitor'",
        "proxmox-backup-manager acl update /remote RemoteAudit --auth-id ${account}",
        "proxmox-backup-manager acl update /remote RemoteAudit --auth-id '${account}!monitor'",
    ];
    Guide {
        port: Some(Product::Backup.port()),
        public_pointer: Some("/data".to_owned()),
        fingerprint_command: Some("proxmox-backup-manager cert info".to_owned()),
        commands: commands.map(str::to_owned).into(),
        account: Some("polliwog@pbs".to_owned()),
        ..Guide::new("/api2/json/ping")
    }
}
