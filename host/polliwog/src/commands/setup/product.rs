//! The Proxmox products that `setup` knows.

/// The account for a product without tokens.
pub(super) const ACCOUNT: &str = "polliwog@pmg";

/// The differences between the products.
pub(super) struct Product {
    pub kind: &'static str,
    pub name: &'static str,
    pub port: u16,
    /// A path that answers without a log-in.
    pub public: &'static str,
    /// The command that shows the fingerprint there.
    pub check: &'static str,
    /// The commands that create a read-only account there.
    pub commands: &'static [&'static str],
    /// The secret's name, the variable suggested for it, and the form of its value.
    pub secret: (&'static str, &'static str, &'static str),
    /// Whether it needs the account's name beside the secret.
    pub named: bool,
}

pub(super) const PVE: Product = Product {
    kind: "pve",
    name: "Proxmox VE",
    port: 8006,
    public: "/api2/json/access/domains",
    check: "pvenode cert info",
    commands: &[
        "pveum user add polliwog@pve -comment 'Polliwog, may only look'",
        "pveum acl modify / -user polliwog@pve -role PVEAuditor",
        "pveum user token add polliwog@pve monitor -privsep 1",
        "pveum acl modify / -token 'polliwog@pve!monitor' -role PVEAuditor",
    ],
    secret: ("token", "PVE_TOKEN", "polliwog@pve!monitor=THE-VALUE-SHOWN"),
    named: false,
};

pub(super) const PBS: Product = Product {
    kind: "pbs",
    name: "Proxmox Backup Server",
    port: 8007,
    public: "/api2/json/ping",
    check: "proxmox-backup-manager cert info",
    commands: &[
        "proxmox-backup-manager user create polliwog@pbs --comment 'Polliwog, may only look'",
        "proxmox-backup-manager user generate-token polliwog@pbs monitor",
        "proxmox-backup-manager acl update / Audit --auth-id polliwog@pbs",
        "proxmox-backup-manager acl update / Audit --auth-id 'polliwog@pbs!monitor'",
        "proxmox-backup-manager acl update /remote RemoteAudit --auth-id polliwog@pbs",
        "proxmox-backup-manager acl update /remote RemoteAudit --auth-id 'polliwog@pbs!monitor'",
    ],
    secret: ("token", "PBS_TOKEN", "polliwog@pbs!monitor:THE-VALUE-SHOWN"),
    named: false,
};

pub(super) const PMG: Product = Product {
    kind: "pmg",
    name: "Proxmox Mail Gateway",
    port: 8006,
    public: "/api2/json/access/auth-realm",
    check: "openssl x509 -in /etc/pmg/pmg-api.pem -noout -fingerprint -sha256",
    commands: &[
        "pmgsh create /access/users --userid polliwog@pmg --role audit --enable 1 --password 'A-PASSWORD-YOU-CHOOSE'",
    ],
    secret: ("password", "PMG_PASSWORD", "A-PASSWORD-YOU-CHOOSE"),
    named: true,
};

/// As people compare them.
pub(super) fn colons(hex: &str) -> String {
    let pairs: Vec<String> =
        hex.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
    pairs.join(":")
}
