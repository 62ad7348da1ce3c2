//! HTTP/2 byte by byte: what no library sends.

use std::net::SocketAddr;

use stickycas_server::PRINCIPAL_KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::with_timeout;
use crate::limits::{PREFACE, frame};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A literal header without indexing (RFC 7541, section 6.2.2).
fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// The HEADERS of a call of this method, for example `InstanceService/List`.
pub(crate) fn call(stream: u32, method: &str, principal: &str) -> Vec<u8> {
    let headers = [
        &[0x83, 0x86][..],
        &header(":path", &format!("/stickycas.v1.{method}")),
        &header("content-type", "application/grpc"),
        &header("te", "trailers"),
        &header(PRINCIPAL_KEY, principal),
    ];
    frame(HEADERS, END_HEADERS, stream, &headers.concat())
}

/// A whole List.
pub(crate) fn list(stream: u32, principal: &str) -> Vec<u8> {
    [call(stream, "InstanceService/List", principal), frame(DATA, END_STREAM, stream, &[0; 5])].concat()
}

/// A stream that is reset.
pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// The smallest step of the connection's window.
pub(crate) fn window_update() -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())
}

/// A connection on which the preface was sent.
pub(crate) struct FrameClient {
    pub(crate) tcp: TcpStream,
    read: Vec<u8>,
}

impl FrameClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let mut tcp = with_timeout(TcpStream::connect(address)).await.unwrap();
        tcp.write_all(PREFACE).await.unwrap();
        Self { tcp, read: Vec::new() }
    }

    /// A connection that belongs to this principal.
    pub(crate) async fn claimed(address: SocketAddr, principal: &str) -> Self {
        let mut client = Self::connect(address).await;
        client.send(&list(1, principal)).await;
        client.until(HEADERS, 1).await;
        client
    }

    /// Sends these bytes, and reads meanwhile: a server that nobody reads may stop reading itself.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let (mut read, mut write) = self.tcp.split();
        let sending = async { write.write_all(bytes).await };
        let mut sending = std::pin::pin!(sending);
        let done = async {
            loop {
                tokio::select! {
                    sent = &mut sending => return sent,
                    count = read.read_buf(&mut self.read) => assert_ne!(count.unwrap(), 0, "it stays open"),
                }
            }
        };
        with_timeout(done).await.unwrap();
    }

    /// Waits for a frame of this type on this stream.
    ///
    /// # Panics
    /// If the server ends the connection before.
    pub(crate) async fn until(&mut self, kind: u8, stream: u32) {
        with_timeout(async {
            loop {
                let frames = self.take_frames();
                assert!(frames.iter().all(|(kind, _)| *kind != GOAWAY), "the server gives the connection up");
                if frames.contains(&(kind, stream)) {
                    return;
                }
                assert_ne!(self.tcp.read_buf(&mut self.read).await.unwrap(), 0, "it stays open");
            }
        })
        .await;
    }

    /// Whether a call of this principal is answered.
    pub(crate) async fn calls(&mut self, stream: u32, principal: &str) {
        self.send(&list(stream, principal)).await;
        self.until(HEADERS, stream).await;
    }

    /// The whole frames that were read: their types and streams.
    fn take_frames(&mut self) -> Vec<(u8, u32)> {
        let (mut frames, mut at) = (Vec::new(), 0);
        while let Some(head) = self.read.get(at..at + 9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if self.read.len() < at + 9 + length {
                break;
            }
            frames.push((head[3], u32::from_be_bytes(head[5..9].try_into().unwrap())));
            at += 9 + length;
        }
        self.read.drain(..at);
        frames
    }
}
