# frozen_string_literal: true

require 'servers'

# One correct process of an instance.
class CorrectProcess
  # The parameters are those of the instance, the accesses those of the process.
  def initialize(parameters, accesses)
    warps = (parameters.processes.to_f / parameters.warp_size).ceil
    rounds = [parameters.append_rounds, 1].max
    # An append that fails in this phase or before is followed by another (K2).
    @last_again = warps * (rounds - 1)
    in_last = parameters.processes - ((warps - 1) * parameters.warp_size)
    # No more entries than that can stand (K1).
    @most = ((warps - 1) * rounds) + [rounds, in_last].min
    @accesses = accesses
  end

  # Appends the proposal, reads the list and decides. Returns the decision, which has been reported.
  def propose(proposal)
    own = @accesses.own
    return own.decided if own.has_decided?

    appended = own.append
    own.waiting.each { |waiting| appended = ask_again(waiting) || appended }
    number = own.next_access_number
    while number == 1 || again?(appended)
      appended = @accesses.append(number, proposal)
      number += 1
    end
    decision = mode(read_list(number))
    @accesses.decide(decision)
    decision
  end

  private

  def again?(appended)
    appended&.result&.outcome == :APPEND_OUTCOME_FAILED && appended.phase <= @last_again
  end

  # What an earlier life of this process has left waiting. Returns the answer of an append.
  def ask_again(waiting)
    if waiting.op == :append
      @accesses.append(waiting.number, waiting.append.value)
    else
      @accesses.read(waiting.number, waiting.read.start)
      nil
    end
  end

  # The most entries that there can be, or all of a sealed list.
  def read_list(number)
    held = []
    last = nil
    until held.size >= @most || (last&.sealed && held.size == last.length)
      result = @accesses.read(number, held.size)
      raise Failure, 'lost: the list is not the one that a server has told before' if last && lost?(last, result)

      number += 1
      held.concat(result.values.to_a)
      last = result
    end
    held
  end

  def lost?(last, result)
    result.length < last.length || (last.sealed && (!result.sealed || result.length > last.length))
  end

  # The most frequent value; of those that are equally frequent the smallest, by its unsigned bytes.
  def mode(values)
    raise Failure, 'no decision: the list is sealed and has no entries' if values.empty?

    values.tally.min_by { |value, count| [-count, value] }.first
  end
end
