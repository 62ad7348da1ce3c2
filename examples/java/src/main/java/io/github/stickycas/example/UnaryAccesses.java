package io.github.stickycas.example;

import com.google.protobuf.ByteString;
import io.github.stickycas.v1.Access;
import io.github.stickycas.v1.Answer;
import io.github.stickycas.v1.AppendRequest;
import io.github.stickycas.v1.DecideRequest;
import io.github.stickycas.v1.GetRequest;
import io.github.stickycas.v1.GetResponse;
import io.github.stickycas.v1.ReadRequest;
import io.github.stickycas.v1.StickyCasServiceGrpc;
import io.github.stickycas.v1.StickyCasServiceGrpc.StickyCasServiceBlockingStub;
import io.grpc.Channel;
import java.util.concurrent.TimeUnit;

/** Each access is a unary call. One whose deadline passes before its phase is asked for again. */
record UnaryAccesses(Servers servers, String instanceId) implements Accesses {
  @Override
  public Opening open() throws Failure, NoDecision, InterruptedException {
    GetResponse found = servers.get(GetRequest.newBuilder().setInstanceId(instanceId).build());
    if (!found.hasOwn()) {
      throw new NoDecision("NOT_A_MEMBER: the caller is no process of the instance");
    }
    return new Opening(found.getOwn(), found.getInstance().getParameters());
  }

  @Override
  public Answer perform(Access access) throws Failure, InterruptedException {
    if (access.hasAppend()) {
      var request =
          AppendRequest.newBuilder()
              .setInstanceId(instanceId)
              .setAccessNumber(access.getNumber())
              .setValue(access.getAppend().getValue())
              .build();
      var response = servers.await(channel -> stub(channel).append(request));
      return Answer.newBuilder()
          .setPhase(response.getPhase())
          .setAppend(response.getResult())
          .build();
    }
    var request =
        ReadRequest.newBuilder()
            .setInstanceId(instanceId)
            .setAccessNumber(access.getNumber())
            .setStart(access.getRead().getStart())
            .build();
    var response = servers.await(channel -> stub(channel).read(request));
    return Answer.newBuilder().setRead(response.getResult()).build();
  }

  @Override
  public void decide(ByteString value) throws Failure, InterruptedException {
    var request = DecideRequest.newBuilder().setInstanceId(instanceId).setValue(value).build();
    servers.call(channel -> stub(channel).decide(request));
  }

  @Override
  public void close() {}

  private static StickyCasServiceBlockingStub stub(Channel channel) {
    return StickyCasServiceGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
  }
}
