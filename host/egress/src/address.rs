//! Decides which addresses may be connected to. Pure.
//!
//! Some addresses are allowed only if the operator wrote the address itself into the target's URL: link-local
//! addresses, the metadata services of clouds, the unspecified address, multicast, and the host's own listeners. An
//! IPv4 address inside an IPv6 address is checked as an IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The networks that a target's requests may reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// All addresses, including private and loopback ones. Used for targets from the configuration file.
    Everywhere,
    /// Public addresses, and the private and loopback addresses in these networks.
    Public {
        /// Private networks that are allowed.
        except: Vec<Cidr>,
    },
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    bits: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a network: write it in CIDR notation, for example 10.0.0.0/8");
        let (network, bits) = text.split_once('/').ok_or_else(wrong)?;
        let network: IpAddr = network.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        if bits > longest { Err(wrong()) } else { Ok(Self { network, bits }) }
    }
}

impl Cidr {
    /// Returns whether `address` is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let prefix = |value: u128, width: u32| value.checked_shr(width - u32::from(self.bits)).unwrap_or(0);
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                prefix(u32::from(network).into(), 32) == prefix(u32::from(address).into(), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => prefix(network.into(), 128) == prefix(address.into(), 128),
            _ => false,
        }
    }
}

/// Returns `Ok` if a connection to `address` is allowed, otherwise the reason why it is not.
///
/// `named` is the address in the target's URL, `None` if the URL has a host name. `own` are the host's listeners.
pub fn check(
    address: SocketAddr,
    named: Option<IpAddr>,
    reach: &Reach,
    own: &[SocketAddr],
) -> Result<(), &'static str> {
    if named == Some(address.ip()) && *reach == Reach::Everywhere {
        return Ok(());
    }
    let inner = embedded_ipv4(address.ip());
    for ip in [Some(address.ip()), inner].into_iter().flatten() {
        if named == Some(ip) && *reach == Reach::Everywhere {
            continue;
        }
        if let Some(why) = forbidden(ip) {
            return Err(why);
        }
        if own.iter().any(|listener| is_listener(listener, SocketAddr::new(ip, address.port()))) {
            return Err("it is one of this host's own listeners");
        }
    }
    match reach {
        Reach::Everywhere => Ok(()),
        Reach::Public { except } => {
            let ip = inner.unwrap_or(address.ip());
            if !is_private(ip) || except.iter().any(|network| network.contains(ip)) {
                Ok(())
            } else {
                Err(
                    "it is private, and api_target_cidrs in [egress] of the host that polls it does not list its network",
                )
            }
        }
    }
}

fn forbidden(ip: IpAddr) -> Option<&'static str> {
    const METADATA_V4: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
    const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let (link_local, metadata, unspecified, broadcast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip == METADATA_V4, ip.octets()[0] == 0, ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip == METADATA_V6, ip.is_unspecified(), false),
    };
    match () {
        () if link_local => Some("it is link-local"),
        () if metadata => Some("it is the metadata service of a cloud"),
        () if unspecified => Some("it is the unspecified address"),
        () if ip.is_multicast() || broadcast => Some("it is a multicast or broadcast address"),
        () => None,
    }
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let shared = ip.octets()[0] == 100 && (64..128).contains(&ip.octets()[1]);
            ip.is_private() || ip.is_loopback() || shared
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local(),
    }
}

fn is_listener(listener: &SocketAddr, address: SocketAddr) -> bool {
    let same = listener.ip() == address.ip() || listener.ip().is_unspecified() && address.ip().is_loopback();
    same && listener.port() == address.port()
}

/// Returns the IPv4 address inside an IPv6 address (mapped, compatible, NAT64, 6to4, Teredo). `None` if the address
/// contains no IPv4 address.
fn embedded_ipv4(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(ip) = ip else { return None };
    let segments = ip.segments();
    let low = Ipv4Addr::from((u32::from(segments[6]) << 16) | u32::from(segments[7]));
    let inner = match segments {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => low,
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => low,
        [0x2002, a, b, ..] => Ipv4Addr::from((u32::from(a) << 16) | u32::from(b)),
        [0x2001, 0, ..] => Ipv4Addr::from(!u32::from(low)),
        _ => return None,
    };
    Some(IpAddr::V4(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(address: &str, named: Option<&str>, reach: &Reach) -> Result<(), &'static str> {
        let own = ["127.0.0.1:7411".parse().unwrap(), "0.0.0.0:9091".parse().unwrap()];
        check(address.parse().unwrap(), named.map(|ip| ip.parse().unwrap()), reach, &own)
    }

    #[test]
    fn forbidden_addresses_are_refused_in_every_ipv6_embedding() {
        for address in [
            "169.254.169.254:80",
            "169.254.0.1:80",
            "100.100.100.200:80",
            "0.0.0.0:80",
            "0.1.2.3:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[fe80::1]:80",
            "[febf::1]:80",
            "[::]:80",
            "[ff02::1]:80",
            "[fd00:ec2::254]:80",
            "[::ffff:169.254.169.254]:80",
            "[64:ff9b::a9fe:a9fe]:80",
            "[64:ff9b:1::a9fe:a9fe]:80",
            "[2002:a9fe:a9fe::]:80",
            "[2001:0:1:2:3:4:5601:5601]:80",
            "[::169.254.169.254]:80",
            "127.0.0.1:7411",
            "[::ffff:127.0.0.1]:7411",
            "127.9.9.9:9091",
            "[::ffff:0.0.0.0]:80",
        ] {
            assert!(verdict(address, None, &Reach::Everywhere).is_err(), "{address}");
        }
    }

    #[test]
    fn operator_targets_reach_private_addresses_and_addresses_named_in_the_url() {
        for address in [
            "127.0.0.1:80",
            "[::1]:80",
            "10.0.0.1:7411",
            "192.168.1.1:8006",
            "8.8.8.8:443",
            "[fd00::1]:80",
            "[2606::1]:80",
        ] {
            assert_eq!(verdict(address, None, &Reach::Everywhere), Ok(()), "{address}");
        }
        for (address, named) in
            [("169.254.169.254:80", "169.254.169.254"), ("127.0.0.1:7411", "127.0.0.1"), ("[fe80::1]:80", "fe80::1")]
        {
            assert_eq!(verdict(address, Some(named), &Reach::Everywhere), Ok(()), "named {address}");
        }
        assert!(verdict("169.254.169.254:80", Some("169.254.169.253"), &Reach::Everywhere).is_err());
    }

    #[test]
    fn api_targets_reach_private_addresses_only_in_allowed_networks() {
        let none = Reach::Public { except: vec![] };
        let some = Reach::Public { except: vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()] };
        for address in [
            "10.1.2.3:80",
            "127.0.0.1:80",
            "[::1]:80",
            "100.64.0.1:80",
            "192.168.0.1:80",
            "[::ffff:10.1.2.3]:80",
            "[fd00::1]:80",
        ] {
            assert!(verdict(address, Some("10.1.2.3"), &none).is_err(), "{address}");
        }
        for address in ["10.1.2.3:80", "[::ffff:10.1.2.3]:80", "[fd00::1]:80", "8.8.8.8:80"] {
            assert_eq!(verdict(address, None, &some), Ok(()), "{address}");
        }
        assert!(verdict("10.2.0.1:80", None, &some).is_err());
        assert!(verdict("169.254.169.254:80", Some("169.254.169.254"), &some).is_err());
        for bad in ["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/", "::/129"] {
            assert!(Cidr::from_str(bad).is_err(), "{bad}");
        }
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains("1.2.3.4".parse().unwrap()));
    }
}
