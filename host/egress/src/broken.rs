//! Why an exchange over a connection failed.

use crate::Error;
use crate::error::without_os_number;
use crate::handshake::stopped;
use crate::head::Unreadable;
use crate::http1::HEADER_BYTES;
use crate::in_flight::Plan;

/// Converts an error of hyper. Every end of the connection before the end of the answer is `closed`.
pub(crate) fn broken(error: &hyper::Error, plan: &Plan) -> Error {
    let name = plan.destination.origin.authority();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            if let Some(why) = io.get_ref().and_then(|inner| inner.downcast_ref::<Unreadable>()) {
                return match why {
                    Unreadable::Beginning(_) => Error::Protocol { name, why: why.to_string() },
                    Unreadable::Line(_) => Error::UnreadableHead { name, why: why.to_string() },
                };
            }
            if let Some(error) = stopped(io, &name, plan.destination.server_name()) {
                return error;
            }
            return match io.kind() {
                std::io::ErrorKind::FileTooLarge => Error::HeadersTooLarge { limit: HEADER_BYTES },
                std::io::ErrorKind::ConnectionReset
                | std::io::ErrorKind::BrokenPipe
                | std::io::ErrorKind::UnexpectedEof
                | std::io::ErrorKind::ConnectionAborted => Error::Closed(name),
                _ => Error::Protocol { name, why: without_os_number(io) },
            };
        }
        source = cause.source();
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() || error.is_body_write_aborted() {
        return Error::Closed(name);
    }
    // hyper has no method to detect this error. Its text is "message head is too large".
    if error.is_parse() && error.to_string().contains("too large") {
        return Error::HeadersTooLarge { limit: HEADER_BYTES };
    }
    Error::Protocol { name, why: error.to_string() }
}
