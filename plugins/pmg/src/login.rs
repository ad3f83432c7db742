//! The log-in. Mail Gateway has no API tokens: it returns a ticket for user and password, valid for two hours.
//!
//! The host keeps the ticket, and the plugin never sees it. After an hour, the ticket itself renews it. If the gateway
//! does not accept it any more, because it restarted with another key or was down for too long, the password is sent
//! again.

use crate::context::Memory;
use crate::nodes;
use polliwog_sdk::Endpoint;
use polliwog_sdk::http::{BodyEncoding, CaptureSource, forget_secret, has_secret, secret};
use polliwog_sdk::lenient::{Field, Flag};
use proxmox::{Api, Connected, Error, ErrorClass, Product, connect, percent_encoded};
use serde::Deserialize;
use std::cell::Cell;
use std::time::Duration;

/// A ticket is valid for two hours; clocks may differ by a few minutes.
const GOOD: Duration = Duration::from_secs(110 * 60);
/// A ticket is renewed after this time.
const FRESH: Duration = Duration::from_secs(60 * 60);

/// The part of the answer to a log-in that the plugin may see.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Granted {
    #[serde(rename = "NeedTFA")]
    need_tfa: Field<Flag>,
}

/// Finds an origin that answers, and logs in to it.
pub(crate) fn log_in(target: &Endpoint, username: &str, memory: &mut Memory) -> Result<Connected, Error> {
    let first = [nodes::first_path(memory)];
    let (reused, granted) = (Cell::new(None), Cell::new(false));
    let authorize = |api: Api, memory: &mut Memory| {
        let ticket = ticket(&api);
        let known = has_secret(&ticket);
        if known && memory.plugin.fresh.get(&ticket, proxmox::now()).is_some() {
            reused.set(Some(ticket.clone()));
        } else {
            match known.then(|| grant(&api, username, &ticket)) {
                Some(Ok(())) => {}
                // An origin that does not answer gets no password.
                Some(Err(error)) if error.no_answer => return Err(error),
                Some(Err(_)) | None => grant(&api, username, "password")?,
            }
            memory.plugin.fresh.set(ticket.as_str(), (), proxmox::now(), FRESH);
            granted.set(true);
        }
        Ok(api.with_header("cookie", format!("PMGAuthCookie={}", secret(&ticket))))
    };
    let found = connect(target, Product::Mail, memory, &first, authorize);
    let refused = |found: &Result<_, Error>| found.as_ref().is_err_and(|error| error.class == ErrorClass::Unauthorized);
    let found = match reused.take() {
        Some(ticket) if refused(&found) => {
            forget_secret(&ticket);
            connect(target, Product::Mail, memory, &first, authorize)
        }
        _ => found,
    };
    found.map_err(
        |error| if granted.get() && error.class == ErrorClass::Unauthorized { ticket_refused(error) } else { error },
    )
}

/// The log-in succeeded, and its ticket is refused.
fn ticket_refused(error: Error) -> Error {
    let message = format!(
        "the log-in succeeded, and its ticket is refused: check the gateway's clock, and that all its nodes have the \
         same /etc/pmg/pmg-authkey ({})",
        error.message
    );
    Error { class: ErrorClass::Other, code: "ticket_refused".to_owned(), message, permanent: false, ..error }
}

/// Requests a ticket. The proof is the password, or the ticket before.
fn grant(api: &Api, username: &str, proof: &str) -> Result<(), Error> {
    let ticket = ticket(api);
    let body = format!("username={}&password={}", percent_encoded(username, b""), secret(proof));
    let request = api
        .request("POST", "/access/ticket")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body, BodyEncoding::Form)
        .capture_optional(&ticket, CaptureSource::JsonPointer("/data/ticket".to_owned()), GOOD)
        // The token is not needed to read, and is captured so that the plugin does not see it.
        .capture_optional("csrf", CaptureSource::JsonPointer("/data/CSRFPreventionToken".to_owned()), GOOD)
        .timeout(api.probe());
    let granted: Granted = api.read("/access/ticket", &api.send(request)?)?;
    if granted.need_tfa.get().is_some_and(|Flag(needed)| *needed) {
        forget_secret(&ticket);
        return Err(Error::permanent(
            "second_factor",
            format!(
                "the account {username} wants a second factor, which a program cannot enter: create an account \
                 without it for Polliwog, with \"pmgsh create /access/users --userid polliwog@pmg --role audit \
                 --enable 1 --password …\" on the server"
            ),
        ));
    }
    if !has_secret(&ticket) {
        return Err(Error::permanent(
            "no_ticket",
            "the gateway accepted the log-in and returned no ticket: check that the URL is that of Proxmox Mail \
             Gateway"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The name of the ticket. Each origin issues its own.
fn ticket(api: &Api) -> String {
    format!("ticket_{}", api.origin())
}
