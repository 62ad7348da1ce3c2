package io.github.stickycas.example;

import com.google.protobuf.ByteString;
import io.github.stickycas.v1.Access;
import io.github.stickycas.v1.Answer;
import io.github.stickycas.v1.Own;
import io.github.stickycas.v1.Parameters;

/** The way of one process to its instance. Each request is made until it is answered. */
sealed interface Accesses extends AutoCloseable permits UnaryAccesses, AttachAccesses {
  /** What stands when a life of the process begins. */
  record Opening(Own own, Parameters parameters) {}

  Opening open() throws Failure, NoDecision, InterruptedException;

  /** Performs an append or a read; returns when its phase was executed. */
  Answer perform(Access access) throws Failure, NoDecision, InterruptedException;

  /** Reports the decision. */
  void decide(ByteString value) throws Failure, NoDecision, InterruptedException;

  @Override
  void close();
}
