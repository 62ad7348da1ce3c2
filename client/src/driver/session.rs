//! One session: from the hello on one Attach stream to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use stickycas_model::machine::Welcome;
use stickycas_model::params::{Params, Patience};
use stickycas_model::player::{Player, Step};
use stickycas_model::process::{RawOp, SendTime};
use stickycas_model::types::{AccessNumber, ProcessId, Value};
use stickycas_proto::convert::access::{access_frame, decision_frame};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::convert::member_state::WelcomeData;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;
use stickycas_proto::v1::server_frame::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::{Drive, HELLO_TIMEOUT, LAST_MOMENT, Told};
use crate::error::{Error, NO_ANSWER};
use crate::retry::noticed;

const WELCOMED: &str = "a session is open, so there was a welcome";
/// There is one instance on each stream.
const CHANNEL: u32 = 0;
/// How long the server may take to end a stream on which nothing is under way.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The state of one session.
struct Session {
    /// The sending half of its stream; `None` once that is half-closed. Unbounded in type only: a player
    /// waits for answers.
    outgoing: Option<mpsc::UnboundedSender<v1::AttachRequest>>,
    /// Accesses sent and not answered, in order.
    unanswered: VecDeque<(AccessNumber, RawOp)>,
    /// The decision sent and not acknowledged.
    deciding: Option<Value>,
    /// An access held back until its last moment; no moment: there is none.
    held: Option<(Option<Instant>, AccessNumber, RawOp)>,
    /// When to send again what is not answered, because the server asked for a pause.
    resend: Option<Instant>,
}

impl Drive {
    /// Opens a session and plays on it until the process has ended.
    ///
    /// # Errors
    /// The error that ended the session before that; the next session goes on where this one stood.
    pub(super) async fn session(&mut self) -> Result<(), Error> {
        self.connection = self.route.connection().await?;
        let (outgoing, incoming) = mpsc::unbounded_channel();
        let mut session = Session::new(outgoing);
        let instance_id = self.instance.to_string();
        let hello = v1::Hello { channel: CHANNEL, instance_id, incarnation: self.incarnation };
        let mut frames = vec![hello.into()];
        if let Some((me, params)) = self.spec.seen.take() {
            self.begin(me, params)?;
            self.player().welcome(&Welcome::first());
        }
        // Later ones wait for the welcome, which may tell of a loss.
        if self.sessions == 0 && self.player.is_some() {
            self.perform(&mut session, &mut frames);
        }
        self.send(&session, frames)?;
        let longest = self.backoff.limit(HELLO_TIMEOUT, self.route.has_others());
        let server = self.connection.config().server().to_owned();
        let is_told = self.backoff.has_noticed();
        let hello = timeout(longest, self.hello(incoming));
        let (mut answers, mut rest, welcomed) =
            noticed(&server, is_told, hello).await.map_err(|_| self.connection.no_answer(NO_ANSWER))??;
        if welcomed.own.next > AccessNumber::FIRST {
            // What was sent ahead may be known: each is asked for again when the one before it is answered.
            session.unanswered.clear();
        }
        self.welcomed(welcomed)?;
        loop {
            for frame in rest.drain(..) {
                self.take(&mut session, frame)?;
            }
            let mut frames = Vec::new();
            let ended = self.perform(&mut session, &mut frames);
            self.send(&session, frames)?;
            if self.spec.is_correct && session.deciding.is_some() {
                // It has nothing more to say: the end of the stream comes with the acknowledgement.
                session.outgoing = None;
            }
            if ended {
                // A Byzantine process goes as its strategy says.
                if self.spec.is_correct {
                    session.finish(answers).await;
                }
                return Ok(());
            }
            tokio::select! {
                message = answers.message() => rest = self.frames(message)?,
                () = session.timer() => self.timer_fired(&mut session)?,
            }
        }
    }

    /// Opens the stream, on which the hello waits, and waits for the welcome; also gives the other frames
    /// that came.
    async fn hello(
        &mut self,
        incoming: mpsc::UnboundedReceiver<v1::AttachRequest>,
    ) -> Result<(Streaming<v1::AttachResponse>, Vec<Frame>, WelcomeData), Error> {
        let attached = self.connection.list().attach(UnboundedReceiverStream::new(incoming)).await;
        let mut answers = attached.map_err(|status| self.connection.error(&status))?.into_inner();
        let mut rest = Vec::new();
        loop {
            // Apart, so that nothing of this process is borrowed while it waits: the future stays Send.
            let message = answers.message().await;
            let mut frames = self.frames(message)?.into_iter();
            while let Some(frame) = frames.next() {
                match frame {
                    Frame::Welcome(welcome) => {
                        rest.extend(frames);
                        return Ok((answers, rest, WelcomeData::try_from(&*welcome)?));
                    }
                    // Of an access that was sent ahead: a refusal by no instance may come first.
                    Frame::Refusal(refusal) if refusal.access_number > 0 => {
                        rest.push(Frame::Refusal(refusal));
                    }
                    Frame::Refusal(refusal) => return Err(RpcRefusal::from_frame(&refusal).into()),
                    _ => return Err(Error::Protocol("a frame before the welcome".to_owned())),
                }
            }
        }
    }

    /// The frames of what came from a stream. Those that are not known here are passed over.
    fn frames(
        &self,
        message: Result<Option<v1::AttachResponse>, tonic::Status>,
    ) -> Result<Vec<Frame>, Error> {
        match message {
            Ok(Some(response)) => Ok(response.frames.into_iter().filter_map(|frame| frame.frame).collect()),
            Ok(None) => Err(self.connection.no_answer("the server ended the stream")),
            Err(status) => Err(self.connection.stream_error(&status)),
        }
    }

    /// A session is open: the player begins, or goes on.
    fn welcomed(&mut self, welcomed: WelcomeData) -> Result<(), Error> {
        let WelcomeData { session, own, params } = welcomed;
        self.told(|| Told::Welcome(own.clone()));
        self.knowledge.welcomed(&own, &params)?;
        match &self.player {
            Some(player) if player.view().me == own.process => {}
            Some(_) => return Err(Error::Protocol("the process has become another one".to_owned())),
            None => self.begin(own.process, Arc::new(params))?,
        }
        let process = own.process;
        let (next, waiting, append, decided) = (own.next, own.waiting, own.append, own.decided);
        self.player().welcome(&Welcome { session, next, waiting, append, decided });
        self.sessions += 1;
        self.welcomed_at = Some(Instant::now());
        tracing::debug!(%process, %session, %next, "session open");
        Ok(())
    }

    /// The process knows its number and the parameters.
    fn begin(&mut self, me: ProcessId, params: Arc<Params>) -> Result<(), Error> {
        if let Some(proposal) = &self.spec.proposal {
            params.value(proposal.as_bytes()).map_err(|error| RpcRefusal::from(&error))?;
        }
        if let Some(strategy) = &self.spec.strategy {
            let checked = strategy.check_values(me, &params);
            checked.map_err(|error| Error::InvalidArgument(error.to_string()))?;
        }
        self.patience = match params.spec().patience {
            Patience::Finite(patience) => Some(patience),
            Patience::Endless => None,
        };
        let behaviour = self.spec.behaviour.take().expect("a process begins once");
        let player = Player::new(me, params, behaviour(me));
        self.player = Some(if self.spec.is_correct { player.sending_ahead() } else { player });
        Ok(())
    }

    /// Performs what the player asks for, by these frames; true once the process has ended.
    fn perform(&mut self, session: &mut Session, frames: &mut Vec<v1::ClientFrame>) -> bool {
        loop {
            match self.player().next_step() {
                // It may have been sent ahead of the welcome.
                Step::Access { number, .. } if session.has_sent(number) => {}
                Step::Access { number, op, when: SendTime::Ready } => {
                    frames.push(self.access(session, number, op));
                }
                Step::Access { number, op, when: SendTime::LastMoment } => {
                    session.held = Some((self.last_moment(), number, op));
                }
                Step::Decide(value) => {
                    frames.push(decision_frame(CHANNEL, &value));
                    session.deciding = Some(value);
                }
                Step::Wait => return false,
                // A correct process that has nothing to decide has nothing to wait for either.
                Step::Stay => return self.spec.is_correct,
                Step::Leave => return true,
            }
        }
    }

    /// The frame of an access, which counts as sent from now on.
    fn access(&mut self, session: &mut Session, number: AccessNumber, op: RawOp) -> v1::ClientFrame {
        if number.get() > self.sent_up_to {
            self.sent_up_to = number.get();
            self.accesses += 1;
        }
        let frame = access_frame(CHANNEL, number, &op);
        session.unanswered.push_back((number, op));
        frame
    }

    /// Until when to hold an access back: as long as patience lasts, counted from now, since a process cannot
    /// see when its phase opens. So it may be early, and is never late by this account.
    fn last_moment(&mut self) -> Option<Instant> {
        let patience = self.patience?;
        let hold = patience.saturating_sub(LAST_MOMENT);
        self.patience = Some(patience - hold);
        Some(Instant::now() + hold)
    }

    fn timer_fired(&mut self, session: &mut Session) -> Result<(), Error> {
        let mut frames = Vec::new();
        if session.resend.take_if(|at| *at <= Instant::now()).is_some() {
            frames.extend(session.unanswered.iter().map(|(number, op)| access_frame(CHANNEL, *number, op)));
            frames.extend(session.deciding.iter().map(|value| decision_frame(CHANNEL, value)));
        }
        let due = |held: &mut (Option<Instant>, _, _)| held.0.is_some_and(|at| at <= Instant::now());
        if let Some((_, number, op)) = session.held.take_if(due) {
            frames.push(self.access(session, number, op));
        }
        self.send(session, frames)
    }

    /// Sends these frames as one message; no message if there are none.
    fn send(&self, session: &Session, frames: Vec<v1::ClientFrame>) -> Result<(), Error> {
        if frames.is_empty() {
            return Ok(());
        }
        let sent = session.outgoing.as_ref().map(|outgoing| outgoing.send(v1::AttachRequest { frames }));
        sent.and_then(Result::ok).ok_or_else(|| self.connection.no_answer("the stream is closed"))
    }

    /// Takes in one frame from the server.
    fn take(&mut self, session: &mut Session, frame: Frame) -> Result<(), Error> {
        match frame {
            Frame::Answer(answer) => {
                let params = &self.player().view().params;
                let (number, received) = AnswerData::from_frame(&answer, params)?;
                self.told(|| {
                    let sent = session.unanswered.iter().find(|(unanswered, _)| *unanswered == number);
                    let op = sent.map(|(_, op)| op.clone());
                    let AnswerData { phase, answer, entries } = received.clone();
                    Told::Answered { number, op, phase, answer, entries }
                });
                let player = self.player.as_ref().expect(WELCOMED);
                self.knowledge.answered(number, &received, &session.unanswered, player.view())?;
                session.unanswered.retain(|(unanswered, _)| *unanswered != number);
                self.backoff.progress();
                self.route.note_answer();
                self.player().answered(number, received.phase, received.answer, received.entries);
            }
            Frame::Decided(_) => {
                if let Some(value) = session.deciding.take() {
                    self.knowledge.decided(value.clone());
                    self.told(|| Told::Decided(value));
                }
                self.player().decided();
            }
            Frame::Refusal(refusal) => self.refused(session, &refusal)?,
            // A hello that this client sent on an earlier connection came late (F8f).
            Frame::Replaced(replaced) if replaced.incarnation == self.incarnation => {
                return Err(self
                    .connection
                    .no_answer("a session of an earlier connection has replaced this one"));
            }
            Frame::Replaced(replaced) => {
                let newer = replaced.session;
                let why = format!("session {newer} of the same process has replaced this one");
                return Err(RpcRefusal::new(RefusalReason::SessionReplaced, why).into());
            }
            Frame::Welcome(_) => return Err(Error::Protocol("a second welcome".to_owned())),
        }
        Ok(())
    }

    /// An access or the decision was refused.
    fn refused(&mut self, session: &mut Session, frame: &v1::Refusal) -> Result<(), Error> {
        let refused = RpcRefusal::from_frame(frame);
        match (AccessNumber::new(frame.access_number), refused.reason) {
            // The border did not take its content: the process thinks again.
            (
                Some(number),
                RefusalReason::ValueEmpty | RefusalReason::ValueTooLarge | RefusalReason::Malformed,
            ) if !self.spec.is_correct => {
                session.unanswered.retain(|(unanswered, _)| *unanswered != number);
                self.player().rejected(number, &refused.message);
                Ok(())
            }
            // The next session is at the owner.
            (_, RefusalReason::NotOwner | RefusalReason::OwnerLost) => Err(refused.into()),
            // The accesses behind a refused one are refused too (F8d); all of them will be sent again.
            (Some(_), RefusalReason::AccessNumberOutOfOrder | RefusalReason::RateExceeded)
                if session.resend.is_some() =>
            {
                Ok(())
            }
            _ if refused.may_retry && session.outgoing.is_some() => {
                let delay = self.backoff.failed(refused.into())?;
                session.resend = Some(Instant::now() + delay);
                Ok(())
            }
            _ => Err(refused.into()),
        }
    }

    fn player(&mut self) -> &mut Player {
        self.player.as_mut().expect(WELCOMED)
    }
}

impl Session {
    fn new(outgoing: mpsc::UnboundedSender<v1::AttachRequest>) -> Self {
        let outgoing = Some(outgoing);
        Self { outgoing, unanswered: VecDeque::new(), deciding: None, held: None, resend: None }
    }

    /// Whether this access was sent on it and is not answered.
    fn has_sent(&self, number: AccessNumber) -> bool {
        self.unanswered.iter().any(|(sent, _)| *sent == number)
    }

    /// Ends the stream in order if nothing is under way on it: half-closed by this side, then ended by the
    /// server, which would count it as abandoned otherwise.
    async fn finish(self, mut answers: Streaming<v1::AttachResponse>) {
        if self.unanswered.is_empty() && self.deciding.is_none() {
            drop(self.outgoing);
            let ended = async { while let Ok(Some(_)) = answers.message().await {} };
            // The process has ended either way.
            let _ = timeout(LONGEST_END, ended).await;
        }
    }

    /// Resolves when something is to be sent; never if nothing is.
    async fn timer(&self) {
        let held = self.held.as_ref().and_then(|(at, _, _)| *at);
        match held.into_iter().chain(self.resend).min() {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}
