//! The floor: a service that answers at once, with messages of the size of ours and no work behind them.

use std::io::{Read as _, Write as _};
use std::pin::Pin;

use bytes::Bytes;
use stickycas_proto::v1::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
use stickycas_proto::v1::{
    Access, Answer, AppendOutcome, AppendRequest, AppendResponse, AppendResult, AttachRequest,
    AttachResponse, DecideRequest, DecideResponse, ReadRequest, ReadResponse, ReadResult, ServerFrame,
    access, answer, client_frame,
};
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::servers::runtime;
use crate::workload::proposal;

/// Entries of a read.
const READ_SIZE: u32 = 8;

/// See the module.
struct Floor;

/// The subcommand `serve-floor`: serves until standard input ends, so never longer than the program that
/// started it lives. Prints its address as the first line of standard output.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = runtime(1)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {}", listener.local_addr()?)?;
    out.flush()?;
    runtime.spawn(async move {
        let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
        let service = StickyCasServiceServer::new(Floor);
        // A failure shows in the calls of the clients.
        let _failed = Server::builder().add_service(service).serve_with_incoming(connections).await;
    });
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    runtime.shutdown_background();
    Ok(())
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
impl StickyCasService for Floor {
    async fn append(&self, _: Request<AppendRequest>) -> Result<Response<AppendResponse>, Status> {
        Ok(Response::new(AppendResponse { phase: APPEND_PHASE, result: Some(append_result()) }))
    }

    async fn read(&self, _: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        Ok(Response::new(ReadResponse { phase: READ_PHASE, result: Some(read_result()) }))
    }

    async fn decide(&self, _: Request<DecideRequest>) -> Result<Response<DecideResponse>, Status> {
        Ok(Response::new(DecideResponse {}))
    }

    type AttachStream = Pin<Box<dyn Stream<Item = Result<AttachResponse, Status>> + Send>>;

    /// Answers each message with one message.
    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let answers = request.into_inner().map(|request| {
            let answers = request?.frames.into_iter().filter_map(|frame| match frame.frame? {
                client_frame::Frame::Access(access) => Some(answer(&access).into()),
                client_frame::Frame::Hello(_) | client_frame::Frame::Decision(_) => None,
            });
            Ok(AttachResponse { frames: answers.collect::<Vec<ServerFrame>>() })
        });
        Ok(Response::new(Box::pin(answers)))
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
