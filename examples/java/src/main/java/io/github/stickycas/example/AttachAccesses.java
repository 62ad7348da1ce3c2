package io.github.stickycas.example;

import com.google.protobuf.ByteString;
import io.github.stickycas.v1.Access;
import io.github.stickycas.v1.Answer;
import io.github.stickycas.v1.AttachRequest;
import io.github.stickycas.v1.AttachResponse;
import io.github.stickycas.v1.ClientFrame;
import io.github.stickycas.v1.Decision;
import io.github.stickycas.v1.Hello;
import io.github.stickycas.v1.ServerFrame;
import io.github.stickycas.v1.ServerFrame.FrameCase;
import io.github.stickycas.v1.StickyCasServiceGrpc;
import io.github.stickycas.v1.Welcome;
import io.grpc.Status;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** All accesses go over one stream, with the instance on channel 0. A broken stream is replaced. */
final class AttachAccesses implements Accesses {
  /** What is answered outside phases, a hello or a decision, is answered in this time. */
  private static final Duration AT_ONCE = Duration.ofSeconds(10);
  /** A phase may take any time; pings show a server that is gone. */
  private static final Duration IN_ITS_PHASE = Duration.ofDays(1000);

  private final Servers servers;
  private final Hello hello;
  private Stream stream;

  AttachAccesses(Servers servers, String instanceId) {
    this.servers = servers;
    hello =
        Hello.newBuilder()
            .setInstanceId(instanceId)
            .setIncarnation(new SecureRandom().nextLong())
            .build();
  }

  @Override
  public Opening open() throws Failure, NoDecision, InterruptedException {
    while (true) {
      try {
        Welcome welcome = hello();
        return new Opening(welcome.getOwn(), welcome.getParameters());
      } catch (Failure failure) {
        servers.askAgain(failure);
      }
    }
  }

  @Override
  public Answer perform(Access access) throws Failure, NoDecision, InterruptedException {
    ClientFrame frame = ClientFrame.newBuilder().setAccess(access).build();
    return ask(frame, FrameCase.ANSWER, access.getNumber(), IN_ITS_PHASE).getAnswer();
  }

  @Override
  public void decide(ByteString value) throws Failure, NoDecision, InterruptedException {
    Decision decision = Decision.newBuilder().setValue(value).build();
    ask(ClientFrame.newBuilder().setDecision(decision).build(), FrameCase.DECIDED, 0, AT_ONCE);
  }

  @Override
  public void close() {
    if (stream != null) {
      stream.close();
      stream = null;
    }
  }

  /** Opens a new stream, and the instance on it. */
  private Welcome hello() throws Failure, NoDecision, InterruptedException {
    Stream opened = new Stream();
    try {
      opened.send(ClientFrame.newBuilder().setHello(hello).build());
      Welcome welcome = opened.receive(FrameCase.WELCOME, 0, AT_ONCE).getWelcome();
      stream = opened;
      return welcome;
    } finally {
      if (stream != opened) {
        opened.close();
      }
    }
  }

  /** Sends a frame, after a new hello if the stream broke, until it is answered. */
  private ServerFrame ask(ClientFrame frame, FrameCase wanted, long number, Duration limit)
      throws Failure, NoDecision, InterruptedException {
    while (true) {
      try {
        if (stream == null) {
          hello();
        }
        stream.send(frame);
        return stream.receive(wanted, number, limit);
      } catch (Failure failure) {
        // A limit that is reached for the moment leaves the session as it is.
        if (failure.reason.isEmpty() || failure.code != Code.RESOURCE_EXHAUSTED) {
          close();
        }
        servers.askAgain(failure);
      }
    }
  }

  /** What comes from the server. */
  private sealed interface Incoming {
    record Frame(ServerFrame frame) implements Incoming {}

    record End(Failure failure) implements Incoming {}
  }

  private final class Stream implements StreamObserver<AttachResponse> {
    private final BlockingQueue<Incoming> incoming = new LinkedBlockingQueue<>();
    private final StreamObserver<AttachRequest> requests =
        StickyCasServiceGrpc.newStub(servers.channel()).attach(this);

    void send(ClientFrame frame) {
      requests.onNext(AttachRequest.newBuilder().addFrames(frame).build());
    }

    /** The awaited frame. Others, such as the answers of an earlier life, are passed over. */
    ServerFrame receive(FrameCase wanted, long number, Duration limit)
        throws Failure, NoDecision, InterruptedException {
      while (true) {
        Incoming next = incoming.poll(limit.toMillis(), TimeUnit.MILLISECONDS);
        if (next == null) {
          throw Failure.broken(Code.UNAVAILABLE, "no answer in " + limit.toSeconds() + " s");
        }
        if (next instanceof Incoming.End end) {
          throw end.failure();
        }
        ServerFrame frame = ((Incoming.Frame) next).frame();
        if (frame.hasAnswer() || frame.hasDecided()) {
          servers.answered();
        } else {
          servers.welcomed();
        }
        if (frame.hasReplaced()) {
          if (frame.getReplaced().getIncarnation() != hello.getIncarnation()) {
            throw new NoDecision("SESSION_REPLACED: another client plays this process");
          }
          throw Failure.broken(Code.ABORTED, "a hello of an earlier stream came late");
        }
        if (frame.hasRefusal()) {
          long refused = frame.getRefusal().getAccessNumber();
          if (refused == number || refused == 0) {
            throw Failure.of(frame.getRefusal());
          }
        } else if (frame.getFrameCase() == wanted
            && (!frame.hasAnswer() || frame.getAnswer().getNumber() == number)) {
          return frame;
        }
      }
    }

    void close() {
      requests.onError(Status.CANCELLED.asException());
    }

    @Override
    public void onNext(AttachResponse response) {
      response.getFramesList().forEach(frame -> incoming.add(new Incoming.Frame(frame)));
    }

    @Override
    public void onError(Throwable error) {
      incoming.add(new Incoming.End(Failure.of((StatusRuntimeException) error)));
    }

    @Override
    public void onCompleted() {
      incoming.add(new Incoming.End(Failure.broken(Code.OK, "the stream has ended")));
    }
  }
}
