package io.github.stickycas.example;

import io.github.stickycas.v1.Event;
import io.github.stickycas.v1.GetRequest;
import io.github.stickycas.v1.InstanceServiceGrpc;
import io.github.stickycas.v1.WatchRequest;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import java.io.PrintStream;

/** Prints what happens at an instance, until it has finished or was closed. */
final class Watcher {
  private Watcher() {}

  static void watch(Servers servers, String instanceId, PrintStream out)
      throws Failure, NoDecision, InterruptedException {
    // The record of the last phase may have come in part, so it is asked for again.
    long phase = 0;
    long due = 0;
    while (true) {
      // A server that does not answer this call is left before it is watched.
      servers.get(GetRequest.newBuilder().setInstanceId(instanceId).build());
      var request =
          WatchRequest.newBuilder().setInstanceId(instanceId).setFromPhase(phase).build();
      try {
        var responses = InstanceServiceGrpc.newBlockingStub(servers.channel()).watch(request);
        while (responses.hasNext()) {
          servers.answered();
          for (Event event : responses.next().getEvents().getEventsList()) {
            if (event.getIndex() > due) {
              throw new NoDecision("event " + event.getIndex() + " came where " + due + " was due");
            }
            if (event.getIndex() < due) {
              continue;
            }
            due++;
            switch (event.getWhatCase()) {
              case STEPPED -> phase = event.getStepped().getPhase();
              case ADDED -> {
                var added = event.getAdded();
                out.printf("entry %d %d ", added.getPosition(), added.getProcess());
                out.println(added.getValue().toStringUtf8());
              }
              case DECIDED -> {
                var decided = event.getDecided();
                out.printf("decided %d ", decided.getProcess());
                out.println(decided.getValue().toStringUtf8());
              }
              case FINISHED, CLOSED -> {
                out.println(event.hasFinished() ? "finished" : "closed");
                return;
              }
              default -> {}
            }
          }
        }
        servers.askAgain(Failure.broken(Code.OK, "the stream has ended before the instance"));
      } catch (StatusRuntimeException error) {
        servers.askAgain(Failure.of(error));
      }
    }
  }
}
