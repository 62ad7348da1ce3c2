package io.github.stickycas.example;

import io.github.stickycas.v1.GetRequest;
import io.github.stickycas.v1.GetResponse;
import io.github.stickycas.v1.InstanceServiceGrpc;
import io.github.stickycas.v1.InstanceServiceGrpc.InstanceServiceBlockingStub;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelProvider.ProviderNotFoundException;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** The servers of a cluster, or the only one, and which of them to ask next. */
final class Servers implements AutoCloseable {
  private static final Duration FIRST_PAUSE = Duration.ofMillis(50);
  private static final Duration LONGEST_PAUSE = Duration.ofMillis(500);
  private static final int MOST_REDIRECTS = 4;
  /** A read may have 64 MiB of values. */
  private static final int MESSAGE_BYTES = 65 << 20;

  private final Identity identity;
  private final Duration giveUpAfter;
  private final List<String> addresses;
  private final List<ManagedChannel> channels;

  private int current;
  private int redirects;
  private Duration pause = FIRST_PAUSE;
  private Instant failingSince;

  /** Connects when the first call is made. */
  Servers(List<String> addresses, Identity identity, Duration giveUpAfter) throws IOException {
    this.identity = identity;
    this.giveUpAfter = giveUpAfter;
    this.addresses = addresses;
    ChannelCredentials credentials = identity.credentials();
    identity.metadata(); // Fails here if it cannot be read.
    try {
      channels = addresses.stream().map(address -> open(address, credentials)).toList();
    } catch (ProviderNotFoundException | IllegalArgumentException unusable) {
      throw new IOException(unusable.getMessage(), unusable);
    }
  }

  private static ManagedChannel open(String address, ChannelCredentials credentials) {
    return Grpc.newChannelBuilder(address, credentials)
        .keepAliveTime(10, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS)
        .maxInboundMessageSize(MESSAGE_BYTES)
        .build();
  }

  /** The server to ask, for one call or one stream. */
  Channel channel() {
    try {
      return ClientInterceptors.intercept(
          channels.get(current), MetadataUtils.newAttachHeadersInterceptor(identity.metadata()));
    } catch (IOException unreadable) {
      throw new UncheckedIOException(unreadable);
    }
  }

  /** Makes a unary call until it is answered or refused for good. */
  <T> T call(Function<Channel, T> call) throws Failure, InterruptedException {
    return call(call, false);
  }

  /** The same for a call that waits for its phase, which may take longer than its deadline. */
  <T> T await(Function<Channel, T> call) throws Failure, InterruptedException {
    return call(call, true);
  }

  private <T> T call(Function<Channel, T> call, boolean waits)
      throws Failure, InterruptedException {
    while (true) {
      try {
        T response = call.apply(channel());
        answered();
        return response;
      } catch (StatusRuntimeException error) {
        Failure failure = Failure.of(error);
        if (failure.reason.isEmpty() && isNoStickyCas(failure.code)) {
          throw failure;
        }
        if (waits && failure.code == Code.DEADLINE_EXCEEDED) {
          failingSince = null;
        }
        askAgain(failure);
      }
    }
  }

  /** An instance as it stands. */
  GetResponse get(GetRequest request) throws Failure, InterruptedException {
    return call(channel -> instances(channel).get(request));
  }

  static InstanceServiceBlockingStub instances(Channel channel) {
    return InstanceServiceGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
  }

  /** A server has answered. */
  void answered() {
    welcomed();
    pause = FIRST_PAUSE;
  }

  /**
   * A server is there. The pause stays, or streams that break behind each Welcome would follow each
   * other at once.
   */
  void welcomed() {
    redirects = 0;
    failingSince = null;
  }

  /** Chooses the server to ask next, and waits if that is due. Throws what is final. */
  void askAgain(Failure failure) throws Failure, InterruptedException {
    if (!failure.mayBeRepeated()) {
      throw failure;
    }
    System.err.println(("asks again: " + failure.code + " " + failure.reason).strip());
    int owner = addresses.indexOf(failure.owner);
    if (owner >= 0 && redirects < MOST_REDIRECTS) {
      redirects++;
      current = owner;
      return;
    }
    // To wait for a phase, or for a server that reads its log, is no reason to give up.
    if (failure.reason.equals("DEADLINE") || failure.reason.equals("RECOVERING")) {
      failingSince = null;
    }
    if (failingSince == null) {
      failingSince = Instant.now();
    } else if (failingSince.plus(giveUpAfter).isBefore(Instant.now())) {
      throw failure;
    }
    long least = Math.max(failure.delay.toMillis(), pause.toMillis());
    Thread.sleep((long) (least * ThreadLocalRandom.current().nextDouble(1, 1.5)));
    pause = Collections.min(List.of(pause.multipliedBy(2), LONGEST_PAUSE));
    redirects = 0;
    current = (current + 1) % channels.size();
    channels.get(current).resetConnectBackoff();
  }

  private static boolean isNoStickyCas(Code code) {
    return switch (code) {
      case UNIMPLEMENTED, UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND -> true;
      default -> false;
    };
  }

  @Override
  public void close() {
    channels.forEach(ManagedChannel::shutdownNow);
  }
}
