//! The three Proxmox products: their names, ports and commands.

/// A Proxmox product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Proxmox VE.
    Ve,
    /// Proxmox Backup Server.
    Backup,
    /// Proxmox Mail Gateway.
    Mail,
}

impl Product {
    /// The product's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ve => "Proxmox VE",
            Self::Backup => "Proxmox Backup Server",
            Self::Mail => "Proxmox Mail Gateway",
        }
    }

    /// The kind of a target, as operators write it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Ve => "pve",
            Self::Backup => "pbs",
            Self::Mail => "pmg",
        }
    }

    /// The default port of the API.
    pub fn port(self) -> u16 {
        match self {
            Self::Ve | Self::Mail => 8006,
            Self::Backup => 8007,
        }
    }

    /// Options of `journalctl` that show why a request failed.
    pub(crate) fn journal(self) -> &'static str {
        match self {
            Self::Ve => "-u pvedaemon -u pveproxy -u pve-cluster",
            Self::Backup => "-u proxmox-backup -u proxmox-backup-proxy",
            Self::Mail => "-u pmgdaemon -u pmgproxy",
        }
    }

    /// How an operator checks the credentials.
    pub(crate) fn check_credentials(self) -> &'static str {
        match self {
            Self::Ve => {
                "check on the server with \"pveum user token list USER@REALM\" that the token exists and has not expired, \
                 and that the secret is the whole USER@REALM!NAME=SECRET"
            }
            Self::Backup => {
                "check on the server with \"proxmox-backup-manager user list-tokens USER@REALM\" that the token exists \
                 and has not expired, and that the secret is the whole USER@REALM!NAME:SECRET (with a colon)"
            }
            Self::Mail => {
                "check the setting \"username\" (with its realm, as in monitor@pmg) and the secret \"password\""
            }
        }
    }

    /// How an operator grants the rights to read everything.
    pub fn grant_rights(self) -> &'static str {
        match self {
            Self::Ve => {
                "run on the server \"pveum acl modify / -user USER@REALM -role PVEAuditor\" and \
                 \"pveum acl modify / -token 'USER@REALM!NAME' -role PVEAuditor\": both the user and the token need it"
            }
            Self::Backup => {
                "run on the server \"proxmox-backup-manager acl update / Audit --auth-id USER@REALM\" and the same for \
                 --auth-id 'USER@REALM!NAME': both the user and the token need it (and RemoteAudit on /remote, for sync jobs)"
            }
            Self::Mail => {
                "give the user the role Auditor on the server: \"pmgsh set /access/users/USER@pmg --role audit\""
            }
        }
    }
}
