//! The floor: a service that answers at once, with messages of the size of ours and no work behind them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use stickycas_proto::v1::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
use stickycas_proto::v1::{
    Access, Answer, AppendOutcome, AppendRequest, AppendResponse, AppendResult, AttachRequest,
    AttachResponse, DecideRequest, DecideResponse, ReadRequest, ReadResponse, ReadResult, ServerFrame,
    access, answer, client_frame,
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::workload::{READ_SIZE, proposal};

/// See the module.
pub(crate) struct Baseline;

pub(crate) fn service() -> StickyCasServiceServer<Baseline> {
    StickyCasServiceServer::new(Baseline)
}

/// Phases of appends and reads in the middle of their rounds.
const APPEND_PHASE: u64 = 4;
const READ_PHASE: u64 = 12;

fn append_result() -> AppendResult {
    AppendResult { outcome: AppendOutcome::Failed.into(), position: None }
}

fn read_result() -> ReadResult {
    let values: Vec<Bytes> = (0..READ_SIZE as usize).map(|process| proposal(process, 0)).collect();
    ReadResult { start: 0, values, length: READ_SIZE, sealed: true }
}

#[tonic::async_trait]
impl StickyCasService for Baseline {
    async fn append(&self, _: Request<AppendRequest>) -> Result<Response<AppendResponse>, Status> {
        Ok(Response::new(AppendResponse { phase: APPEND_PHASE, result: Some(append_result()) }))
    }

    async fn read(&self, _: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        Ok(Response::new(ReadResponse { phase: READ_PHASE, result: Some(read_result()) }))
    }

    async fn decide(&self, _: Request<DecideRequest>) -> Result<Response<DecideResponse>, Status> {
        Ok(Response::new(DecideResponse {}))
    }

    type AttachStream = Echo;

    async fn attach(&self, request: Request<Streaming<AttachRequest>>) -> Result<Response<Echo>, Status> {
        Ok(Response::new(Echo(request.into_inner())))
    }
}

/// Answers each message with one message.
pub(crate) struct Echo(Streaming<AttachRequest>);

impl Stream for Echo {
    type Item = Result<AttachResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map_ok(|request| {
            let answers = request.frames.into_iter().filter_map(|frame| match frame.frame? {
                client_frame::Frame::Access(access) => Some(answer(&access).into()),
                client_frame::Frame::Hello(_) | client_frame::Frame::Decision(_) => None,
            });
            AttachResponse { frames: answers.collect::<Vec<ServerFrame>>() }
        })
    }
}

fn answer(access: &Access) -> Answer {
    let Access { channel, number, .. } = *access;
    let (phase, result) = match access.op {
        Some(access::Op::Read(_)) => (READ_PHASE, answer::Result::Read(read_result())),
        Some(access::Op::Append(_)) | None => (APPEND_PHASE, answer::Result::Append(append_result())),
    };
    Answer { channel, number, phase, result: Some(result) }
}
