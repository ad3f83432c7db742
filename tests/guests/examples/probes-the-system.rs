//! Looks for files, variables, arguments, sockets, names and the time of the machine.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, clock};

guests::guest!("probes-the-system", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    #[allow(clippy::disallowed_methods, reason = "it looks whether there is another clock")]
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_millis());
    let found = [
        ("file", std::fs::read("/etc/passwd").is_ok()),
        ("folder", std::fs::read_dir("/").is_ok()),
        ("write", std::fs::write("/tmp/found", "x").is_ok()),
        ("variable", std::env::vars().next().is_some()),
        ("argument", std::env::args().next().is_some()),
        ("connect", std::net::TcpStream::connect("127.0.0.1:80").is_ok()),
        ("listen", std::net::TcpListener::bind("127.0.0.1:0").is_ok()),
        ("datagram", std::net::UdpSocket::bind("127.0.0.1:0").is_ok()),
        ("name", std::net::ToSocketAddrs::to_socket_addrs("localhost:80").is_ok()),
        // The only time is that of the poll.
        ("time", i64::try_from(wall) != Ok(clock::now())),
        ("input", std::io::stdin().lines().next().is_some_and(|line| line.is_ok())),
    ];
    let judge = |(what, found): (&str, bool)| {
        if found { Dependency::critical(what, "it is there") } else { Dependency::ok(what) }
    };
    Ok(found.map(judge).into_iter().collect())
}
