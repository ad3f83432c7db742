//! Users of a reverse proxy that has authenticated them, and names them in a header.
//!
//! The header counts only in requests from the configured addresses. [`Proxy::mark`] copies the name into a header of
//! this host, which it first removes from every request, so that no client can set it.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use model::Scope;
use std::fmt;
use std::net::IpAddr;

/// The header that names the user from [`Proxy::mark`] on.
const USER: HeaderName = HeaderName::from_static("x-polliwog-proxied-user");
/// The maximum number of bytes of a user's name.
const LONGEST: usize = 256;

/// A reverse proxy that authenticates users.
pub struct Proxy {
    /// The header with the name of the user.
    pub header: HeaderName,
    /// The scope of its users.
    pub scope: Scope,
    /// Whether an address is that of the proxy.
    pub trusts: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Proxy")
            .field("header", &self.header)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Marks a request with the user that a trusted proxy names.
    pub(crate) fn mark(proxy: Option<&Self>, peer: IpAddr, headers: &mut HeaderMap) {
        headers.remove(USER);
        let Some(proxy) = proxy.filter(|proxy| (proxy.trusts)(peer)) else { return };
        let mut named = headers.get_all(&proxy.header).iter();
        // A client may have sent the header as well: of two names, neither counts.
        let (Some(name), None) = (named.next(), named.next()) else { return };
        if is_name(name) {
            let name = name.clone();
            headers.insert(USER, name);
        }
    }
}

fn is_name(name: &HeaderValue) -> bool {
    name.to_str().is_ok_and(|name| !name.trim().is_empty() && name.len() <= LONGEST)
}

/// Returns the user of a marked request.
pub(crate) fn user(headers: &HeaderMap) -> Option<&str> {
    headers.get(USER)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_proxy_names_users() {
        let proxy = Proxy {
            header: HeaderName::from_static("remote-user"),
            scope: Scope::Read,
            trusts: Box::new(|peer| peer.is_loopback()),
        };
        let (near, far): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
        let marked = |proxy: Option<&Proxy>, peer, sent: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                headers.append(*name, value.parse().unwrap());
            }
            Proxy::mark(proxy, peer, &mut headers);
            user(&headers).map(str::to_owned)
        };
        let long = "x".repeat(LONGEST + 1);
        for (with, peer, sent, expected) in [
            (Some(&proxy), near, vec![("remote-user", "ann")], Some("ann")),
            (Some(&proxy), far, vec![("remote-user", "ann")], None),
            (None, near, vec![("remote-user", "ann")], None),
            (Some(&proxy), near, vec![("remote-user", " ")], None),
            (Some(&proxy), near, vec![("remote-user", &long)], None),
            (Some(&proxy), near, vec![("remote-user", "ann"), ("remote-user", "eve")], None),
            (Some(&proxy), near, vec![("x-polliwog-proxied-user", "eve")], None),
            (None, far, vec![("x-polliwog-proxied-user", "eve")], None),
            (Some(&proxy), near, vec![("x-polliwog-proxied-user", "eve"), ("remote-user", "ann")], Some("ann")),
        ] {
            assert_eq!(marked(with, peer, &sent).as_deref(), expected, "{sent:?}");
        }
    }
}
