//! Asks the running relay: the few lines of HTTP that `status` and `health` need, and `health` itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use outboxd::error::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Health, Outcome, print};

/// How long an answer may take, and how many bytes of it are read.
const PATIENCE: Duration = Duration::from_secs(2);
const LIMIT: u64 = 1 << 20;

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: u16,
    pub body: String,
}

/// `outboxd health`
pub async fn health(listen: SocketAddr, args: Health) -> Outcome {
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let answer = get(listen, path).await.map_err(|error| {
        Error::definite(format!("no relay answers at {listen}"))
            .because(error)
            .hint("start it with outboxd run, or set http.listen to where it listens")
    })?;
    print(&format!("{}\n", answer.body.trim_end()))?;
    Ok(if answer.code == 200 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// GETs `path` from the relay that listens there.
pub async fn get(listen: SocketAddr, path: &str) -> io::Result<Answer> {
    let bytes = match timeout(PATIENCE, exchange(reachable(listen), path)).await {
        Ok(Ok(bytes)) => bytes,
        // The kind reads better than the system's own text: "connection refused".
        Ok(Err(error)) => return Err(error.kind().into()),
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, format!("silent for {} s", PATIENCE.as_secs()))),
    };
    parse(&String::from_utf8_lossy(&bytes))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "what answers does not speak HTTP"))
}

async fn exchange(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(address).await?;
    // HTTP/1.0: the answer is not chunked and ends with the connection.
    socket.write_all(format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    socket.take(LIMIT).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { code, body: body.into() })
}

/// A relay that listens on every address is asked on the loopback one.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_code_and_a_body() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}");
        assert_eq!(answer, Some(Answer { code: 503, body: "{}".into() }));
        for wrong in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 \r\n\r\n"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wildcard_address_is_asked_on_loopback() {
        for (listen, asked) in
            [("0.0.0.0:9187", "127.0.0.1:9187"), ("[::]:9187", "[::1]:9187"), ("10.0.0.7:80", "10.0.0.7:80")]
        {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
