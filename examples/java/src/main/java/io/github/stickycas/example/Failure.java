package io.github.stickycas.example;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.github.stickycas.v1.Refusal;
import io.grpc.Status;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** A request that was not answered: a server refused it, or the connection broke. */
final class Failure extends Exception {
  private static final String DOMAIN = "stickycas.v1";

  final Code code;
  /** Empty: no StickyCAS server has said why, so the connection broke, whatever the code. */
  final String reason;
  final Duration delay;
  /** HOST:PORT of the server to ask instead, or empty. */
  final String owner;

  private Failure(Code code, String reason, Duration delay, String owner, String text) {
    super((code + " " + reason).strip() + ": " + text);
    this.code = code;
    this.reason = reason;
    this.delay = delay;
    this.owner = owner;
  }

  static Failure broken(Code code, String text) {
    return new Failure(code, "", Duration.ZERO, "", text);
  }

  /** The end of a unary call or of a stream. */
  static Failure of(StatusRuntimeException error) {
    String reason = "";
    String owner = "";
    Duration delay = Duration.ZERO;
    com.google.rpc.Status details = StatusProto.fromThrowable(error);
    try {
      for (Any detail : details == null ? List.<Any>of() : details.getDetailsList()) {
        if (detail.is(ErrorInfo.class)) {
          ErrorInfo info = detail.unpack(ErrorInfo.class);
          if (info.getDomain().equals(DOMAIN)) {
            reason = info.getReason();
            owner = info.getMetadataOrDefault("owner", "");
          }
        } else if (detail.is(RetryInfo.class)) {
          delay = duration(detail.unpack(RetryInfo.class).getRetryDelay());
        }
      }
    } catch (InvalidProtocolBufferException unreadable) {
      // As if there were no details.
    }
    Status status = error.getStatus();
    Throwable cause = status.getCause();
    String text = Objects.toString(status.getDescription(), "");
    if (cause != null) {
      text += ": " + cause.getMessage();
    }
    return new Failure(status.getCode(), reason, delay, owner, text);
  }

  /** A refusal on Attach. */
  static Failure of(Refusal refusal) {
    return new Failure(
        Status.fromCodeValue(refusal.getCode()).getCode(),
        refusal.getReason().name().replaceFirst("^REFUSAL_REASON_", ""),
        duration(refusal.getRetryAfter()),
        refusal.getOwner(),
        refusal.getMessage());
  }

  /** Whether the very same request may be made again. */
  boolean mayBeRepeated() {
    return switch (reason) {
      case "" -> true;
      case "TOO_MANY_SESSIONS" -> false;
      default ->
          switch (code) {
            case UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL -> true;
            default -> false;
          };
    };
  }

  private static Duration duration(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }
}
