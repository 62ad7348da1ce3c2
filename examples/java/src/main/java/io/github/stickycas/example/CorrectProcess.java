package io.github.stickycas.example;

import com.google.protobuf.ByteString;
import io.github.stickycas.v1.Access;
import io.github.stickycas.v1.Answer;
import io.github.stickycas.v1.Append;
import io.github.stickycas.v1.AppendOutcome;
import io.github.stickycas.v1.AppendResult;
import io.github.stickycas.v1.AppendWindow;
import io.github.stickycas.v1.Own;
import io.github.stickycas.v1.Parameters;
import io.github.stickycas.v1.Read;
import io.github.stickycas.v1.ReadResult;
import io.github.stickycas.v1.WaitingAccess;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The algorithm of one correct process. */
final class CorrectProcess {
  private CorrectProcess() {}

  /** Proposes the value and returns the decision, which the server then knows too. */
  static ByteString play(Accesses accesses, ByteString value)
      throws Failure, NoDecision, InterruptedException {
    Accesses.Opening opening = accesses.open();
    Own own = opening.own();
    Parameters parameters = opening.parameters();
    if (parameters.getAppendWindow() != AppendWindow.APPEND_WINDOW_FIRST_ACCESS) {
      throw new NoDecision("this program plays only where the append window is first_access");
    }
    if (own.hasDecided()) {
      return own.getDecided();
    }

    // What an earlier life of this process has left is asked for again, so that nothing waits.
    AppendResult appended = own.getAppend().getResult();
    long phase = own.getAppend().getPhase();
    for (WaitingAccess waiting : own.getWaitingList()) {
      Access.Builder again = access(waiting.getNumber());
      Answer answer =
          accesses.perform(
              waiting.hasAppend()
                  ? again.setAppend(waiting.getAppend()).build()
                  : again.setRead(waiting.getRead()).build());
      if (answer.hasAppend()) {
        appended = answer.getAppend();
        phase = answer.getPhase();
      }
    }

    int warpSize = parameters.getWarpSize();
    int warps = (parameters.getProcesses() + warpSize - 1) / warpSize;
    int rounds = Math.max(parameters.getAppendRounds(), 1);
    long lastAgain = (long) warps * (rounds - 1);
    // It appends until it wins, or its warp has had its append rounds (K2).
    long number = own.getNextAccessNumber();
    AppendResult won = AppendResult.getDefaultInstance();
    while (number == 1
        || (appended.getOutcome() == AppendOutcome.APPEND_OUTCOME_FAILED && phase <= lastAgain)) {
      var append = Append.newBuilder().setValue(value);
      Answer answer = accesses.perform(access(number++).setAppend(append).build());
      appended = answer.getAppend();
      won = appended;
      phase = answer.getPhase();
    }

    // No more entries than that can stand (K1).
    int inLast = parameters.getProcesses() - (warps - 1) * warpSize;
    int most = (warps - 1) * rounds + Math.min(rounds, inLast);
    List<ByteString> held = new ArrayList<>();
    ReadResult last = ReadResult.getDefaultInstance();
    while (held.size() < most && !(last.getSealed() && held.size() == last.getLength())) {
      var read = Read.newBuilder().setStart(held.size());
      ReadResult result = accesses.perform(access(number++).setRead(read).build()).getRead();
      // The list only grows, and not when it is sealed, whichever server answers.
      boolean changed = !result.getSealed() || result.getLength() != last.getLength();
      if (result.getLength() < last.getLength() || (last.getSealed() && changed)) {
        throw new NoDecision("lost: the list is not the one that a server has told before");
      }
      held.addAll(result.getValuesList());
      last = result;
    }
    int position = won.getPosition();
    if (won.hasPosition()
        && (position >= held.size() || !held.get(position).equals(value))) {
      throw new NoDecision("lost: the value does not stand where a server has told before");
    }
    if (held.isEmpty()) {
      throw new NoDecision("no decision: the list is sealed and empty");
    }
    ByteString decision = mode(held);
    accesses.decide(decision);
    return decision;
  }

  /** The most frequent value; of several the smallest. */
  static ByteString mode(List<ByteString> values) {
    Map<ByteString, Integer> counts = new TreeMap<>(ByteString.unsignedLexicographicalComparator());
    values.forEach(value -> counts.merge(value, 1, Integer::sum));
    // Of equal counts max() keeps the first, and the map is in the order of values.
    return counts.entrySet().stream().max(Map.Entry.comparingByValue()).orElseThrow().getKey();
  }

  private static Access.Builder access(long number) {
    return Access.newBuilder().setNumber(number);
  }
}
