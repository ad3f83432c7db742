//! Sends notifications by email: the one channel of the host itself, because plugins have no sockets.
//!
//! The library lettre writes messages and speaks SMTP. The connection is made by `egress`, so that the certificate of
//! a mail server is verified as that of a target: by the system's authorities, a CA file or a fingerprint.
//!
//! - [`Settings`] are the sender, the recipients and the encryption, checked.
//! - [`Account`] is a channel that can send.
//! - `message` writes a notification as a message, `wire` is the connection.
//!
//! Invariant: a password is sent over TLS only.

#![forbid(unsafe_code)]

mod message;
mod settings;
mod wire;

pub use settings::{Problem, Settings};

use egress::{Egress, OriginGrant, Reach};
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::extension::ClientId;
use model::{Cause, Failure, FailureCategory, Notification, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use settings::Encryption;
use std::error::Error as _;
use std::time::Duration;
use wire::Wire;

/// The name of the secret with the password.
pub const PASSWORD: &str = "password";

/// A mail server, with everything that a message needs.
#[derive(Debug)]
pub struct Account {
    /// The server. A connection has TLS from the start if the origin says so, else from STARTTLS on.
    pub server: OriginGrant,
    /// The addresses that the server's name may resolve to.
    pub reach: Reach,
    /// The checked settings.
    pub settings: Settings,
    /// The password, if the server requires one.
    pub password: Option<SecretString>,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Egress(#[from] egress::Error),
    #[error("{server} did not complete the message within {after:?}: check that it speaks SMTP")]
    Timeout { server: String, after: Duration },
    #[error("{server} does not offer STARTTLS: use smtps:// if it has TLS from the start, or another port")]
    NoTls { server: String },
    #[error("{server} answered {answer:?}, which is not SMTP: check the port")]
    NotSmtp { server: String, answer: String },
    #[error("{server} refuses the user {user:?}: {why}: check the user and the secret password")]
    Unauthorized { server: String, user: String, why: String },
    #[error("{server} refuses the message: {why}")]
    Refused { server: String, why: String, is_transient: bool },
    #[error("the connection to {server} broke: {why}")]
    Broken { server: String, why: String },
    #[error("the message cannot be written: {0}")]
    Unwritable(#[from] lettre::error::Error),
}

impl Error {
    fn failure(self) -> Failure {
        let (code, is_transient) = match &self {
            Self::Egress(error) => (error.code().to_owned(), error.retryable()),
            Self::Timeout { .. } => ("timeout".to_owned(), true),
            Self::NoTls { .. } => ("tls_missing".to_owned(), false),
            Self::NotSmtp { .. } => ("protocol".to_owned(), true),
            Self::Unauthorized { .. } => ("unauthorized".to_owned(), false),
            Self::Refused { is_transient, .. } => ("forbidden".to_owned(), *is_transient),
            Self::Broken { .. } => ("closed".to_owned(), true),
            Self::Unwritable(_) => ("bad_request".to_owned(), false),
        };
        let category = if is_transient { FailureCategory::Transient } else { FailureCategory::Permanent };
        Failure { category, code, cause: Cause::Other, message: self.to_string(), retry_after: None }
    }
}

impl Account {
    /// Sends one notification, within `longest`.
    ///
    /// # Errors
    /// The failure, which is transient if another attempt may succeed. Its message never contains the password.
    pub async fn send(
        &self,
        egress: &Egress,
        notification: &Notification,
        now: Timestamp,
        longest: Duration,
    ) -> Result<(), Failure> {
        let sent = tokio::time::timeout(longest, self.deliver(egress, notification, now)).await;
        let late = Error::Timeout { server: self.name(), after: longest };
        sent.unwrap_or(Err(late)).map_err(Error::failure)
    }

    fn name(&self) -> String {
        format!("the mail server {}:{}", self.server.origin.host, self.server.origin.port)
    }

    async fn deliver(&self, egress: &Egress, notification: &Notification, now: Timestamp) -> Result<(), Error> {
        let message = message::compose(&self.settings, notification, now)?;
        let hello = ClientId::default();
        let stream = self.connect(egress, &hello).await?;
        let broken = |error| self.describe(error);
        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &hello).await.map_err(broken)?;
        if let (Some(user), Some(password)) = (&self.settings.user, &self.password) {
            let credentials = Credentials::new(user.clone(), password.expose_secret().to_owned());
            let accepted = connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await;
            accepted.map_err(|error| match error.is_permanent() || error.is_client() {
                true => Error::Unauthorized { server: self.name(), user: user.clone(), why: reason(&error) },
                false => self.describe(error),
            })?;
        }
        connection.send(message.envelope(), &message.formatted()).await.map_err(broken)?;
        // The server has the message: a failure from here on would repeat it.
        let _ = connection.quit().await;
        Ok(())
    }

    /// Connects, with TLS from the start, after STARTTLS, or without.
    async fn connect(&self, egress: &Egress, hello: &ClientId) -> Result<Box<dyn AsyncTokioStream>, Error> {
        let mut tcp = egress.dial(&self.server, &self.reach).await?;
        let peer = tcp.peer_addr().map_err(|error| self.broken(&error))?;
        if self.server.origin.https {
            return Ok(Box::new(Wire::new(egress::secure(&self.server, tcp).await?, peer)));
        }
        if self.settings.encryption == Encryption::None {
            return Ok(Box::new(Wire::new(tcp, peer)));
        }
        self.start_tls(&mut tcp, hello).await?;
        Ok(Box::new(Wire::after_start_tls(egress::secure(&self.server, tcp).await?, peer)))
    }

    /// Asks the server for TLS. What it sends before the handshake is not trusted and not kept.
    async fn start_tls(&self, tcp: &mut tokio::net::TcpStream, hello: &ClientId) -> Result<(), Error> {
        for (command, expected) in
            [(String::new(), "220"), (format!("EHLO {hello}\r\n"), "250"), ("STARTTLS\r\n".to_owned(), "220")]
        {
            let answer = wire::exchange(tcp, &command).await.map_err(|error| self.broken(&error))?;
            if !answer.starts_with(expected) {
                let server = self.name();
                return Err(match command.as_str() {
                    "STARTTLS\r\n" => Error::NoTls { server },
                    _ if answer.starts_with(['4', '5']) => {
                        Error::Refused { server, is_transient: answer.starts_with('4'), why: answer }
                    }
                    _ => Error::NotSmtp { server, answer },
                });
            }
        }
        Ok(())
    }

    fn broken(&self, error: &std::io::Error) -> Error {
        Error::Broken { server: self.name(), why: error.to_string() }
    }

    fn describe(&self, error: smtp::Error) -> Error {
        let (server, why) = (self.name(), reason(&error));
        match error.status() {
            Some(_) => Error::Refused { server, why, is_transient: error.is_transient() },
            None => Error::Broken { server, why },
        }
    }
}

/// The reason of an error, with the server's code if it answered.
fn reason(error: &smtp::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    match error.status() {
        Some(code) if !text.starts_with(&code.to_string()) => format!("{code} {text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
