//! The client's end of an Attach stream, frame by frame.

use std::collections::VecDeque;

use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{
    Access, Answer, Append, AttachRequest, AttachResponse, ClientFrame, Decision, Hello, Read, Refusal,
    Welcome, access,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};

use super::{Client, with_timeout};

/// The client's end of an Attach stream.
pub(crate) struct Stream {
    /// `None` once the stream is half-closed.
    requests: Option<mpsc::UnboundedSender<AttachRequest>>,
    responses: Streaming<AttachResponse>,
    frames: VecDeque<Frame>,
    /// Messages received.
    pub(crate) messages: usize,
}

impl Stream {
    /// A stream on which nothing was sent.
    pub(crate) async fn new(client: &mut Client) -> Self {
        Self::try_new(client).await.unwrap()
    }

    pub(crate) async fn try_new(client: &mut Client) -> Result<Self, Status> {
        let (requests, request_stream) = mpsc::unbounded_channel();
        let responses = with_timeout(client.list.attach(UnboundedReceiverStream::new(request_stream)))
            .await?
            .into_inner();
        Ok(Self { requests: Some(requests), responses, frames: VecDeque::new(), messages: 0 })
    }

    /// A stream with the instance open on channel 0.
    pub(crate) async fn open(client: &mut Client, id: &str) -> Self {
        let mut stream = Self::new(client).await;
        stream.send([hello(0, id)]);
        stream.welcome().await;
        stream
    }

    /// Sends these frames in one message.
    pub(crate) fn send(&mut self, frames: impl IntoIterator<Item = ClientFrame>) {
        let frames = frames.into_iter().collect();
        // A stream that has ended shows when it is read.
        let _ = self.requests.as_ref().expect("the stream is not half-closed").send(AttachRequest { frames });
    }

    /// Ends the requests.
    pub(crate) fn half_close(&mut self) {
        self.requests = None;
    }

    /// The next frame; `None` if the stream has ended well.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, Status> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(Some(frame));
            }
            let Some(message) = with_timeout(self.responses.message()).await? else { return Ok(None) };
            self.messages += 1;
            assert!(!message.frames.is_empty(), "a message of the server is never empty");
            self.frames
                .extend(message.frames.into_iter().map(|frame| frame.frame.expect("a frame has content")));
        }
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        self.next().await.unwrap().expect("the stream goes on")
    }

    pub(crate) async fn welcome(&mut self) -> Welcome {
        match self.frame().await {
            Frame::Welcome(welcome) => *welcome,
            other => panic!("{other:?} instead of a welcome"),
        }
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        match self.frame().await {
            Frame::Answer(answer) => answer,
            other => panic!("{other:?} instead of an answer"),
        }
    }

    /// The next frame, a refusal with this code and reason.
    pub(crate) async fn refusal(&mut self, code: Code, reason: &str) -> Refusal {
        match self.frame().await {
            Frame::Refusal(refusal) => {
                let name = refusal.reason().as_str_name();
                assert_eq!((refusal.code, name), (code.into(), format!("REFUSAL_REASON_{reason}").as_str()));
                *refusal
            }
            other => panic!("{other:?} instead of a refusal"),
        }
    }

    /// The status that the stream ends with; frames before it are skipped.
    pub(crate) async fn broken(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream has ended well"),
                Err(status) => return status,
            }
        }
    }
}

pub(crate) fn hello(channel: u32, id: &str) -> ClientFrame {
    Hello { channel, instance_id: id.to_owned(), incarnation: 7 }.into()
}

pub(crate) fn append(channel: u32, number: u64, value: &str) -> ClientFrame {
    let append = Append { value: value.as_bytes().to_vec().into() };
    Access { channel, number, op: Some(access::Op::Append(append)) }.into()
}

pub(crate) fn read(channel: u32, number: u64) -> ClientFrame {
    Access { channel, number, op: Some(access::Op::Read(Read { start: 0 })) }.into()
}

pub(crate) fn decision(channel: u32, value: &str) -> ClientFrame {
    Decision { channel, value: value.as_bytes().to_vec().into() }.into()
}
