# frozen_string_literal: true

require 'stickycas/v1/sticky_cas_service_services_pb'

# The accesses of one process at one instance, by one unary call for each. Each is asked again, with the same number,
# until it is answered.
class UnaryAccesses
  def initialize(servers, found)
    @servers = servers
    @instance_id = found.instance.instance_id
    @own = found.own
  end

  # Where the process stands: at the beginning, unless an earlier life of it has been here.
  def own
    @own
  end

  def append(number, value)
    request = StickyCas::V1::AppendRequest.new(instance_id: @instance_id, access_number: number, value:)
    answer = call(:append, request)
    StickyCas::V1::FirstAppend.new(phase: answer.phase, result: answer.result)
  end

  def read(number, start)
    request = StickyCas::V1::ReadRequest.new(instance_id: @instance_id, access_number: number, start:)
    call(:read, request).result
  end

  def decide(value)
    call(:decide, StickyCas::V1::DecideRequest.new(instance_id: @instance_id, value:))
  end

  private

  def call(method, request)
    @servers.call(StickyCas::V1::StickyCasService, method, request)
  end
end

# The same on a stream of Attach, and on a new one when it has broken.
class AttachAccesses
  # Channel 0 of the stream is the instance. The incarnation tells the server that each stream is of the same life.
  def initialize(servers, instance_id)
    @servers = servers
    @incarnation = Random.rand(1...(2**64))
    @hello = { hello: StickyCas::V1::Hello.new(instance_id:, incarnation: @incarnation) }
    @stream = nil
  end

  def own
    again { @own }
  end

  def append(number, value)
    answer = ask_access(number:, append: StickyCas::V1::Append.new(value:))
    StickyCas::V1::FirstAppend.new(phase: answer.phase, result: answer.append)
  end

  def read(number, start)
    ask_access(number:, read: StickyCas::V1::Read.new(start:)).read
  end

  def decide(value)
    again { @stream.ask(decision: StickyCas::V1::Decision.new(value:)) }
  end

  private

  def ask_access(**access)
    again { @stream.ask(access: StickyCas::V1::Access.new(**access)) }.answer
  end

  # Does something on the stream until that is answered.
  def again
    open unless @stream
    result = yield
    @servers.note_answer
    result
  rescue Refused => e
    # A session stays open if the server has only put off one of its frames.
    close if @stream && (@stream.ended? || e.code != GRPC::Core::StatusCodes::RESOURCE_EXHAUSTED)
    @servers.prepare_next_try(e, stream: true)
    retry
  end

  def open
    stream = AttachStream.new(@servers, @incarnation)
    @own = stream.ask(**@hello).welcome.own
    @servers.note_welcome
    @stream = stream
  ensure
    stream&.close unless @stream
  end

  def close
    @stream.close
    @stream = nil
  end
end

# One stream of Attach.
class AttachStream
  def initialize(servers, incarnation)
    @incarnation = incarnation
    @requests = Queue.new
    requests = Enumerator.produce { @requests.pop || raise(StopIteration) }
    @call = servers.stub(StickyCas::V1::StickyCasService).attach(requests, metadata: servers.metadata, return_op: true)
    @responses = @call.execute
    @received = []
    # A stream that ends with OK waits in the library for the end of the requests.
    Thread.new do
      sleep 0.1 until @call.status || ended?
      @requests.close
    end
  rescue GRPC::BadStatus => e
    raise Refused.from_status(e)
  end

  def ended?
    @requests.closed?
  end

  def close
    @requests.close
    @call.cancel
  end

  # The server's answer to a frame. Raises Refused also if the stream breaks.
  def ask(**frame)
    @requests << StickyCas::V1::AttachRequest.new(frames: [StickyCas::V1::ClientFrame.new(**frame)])
    number = frame[:access]&.number
    loop do
      received = next_frame
      return received if answer?(received, number)
    end
  end

  private

  def answer?(received, number)
    case received.frame
    when :welcome, :decided then true
    when :answer then received.answer.number == number
    when :refusal
      # With number 0 it is not about an access.
      raise Refused.from_frame(received.refusal) if [0, number].include?(received.refusal.access_number)
    when :replaced
      raise Failure, 'replaced: another client plays this process' if received.replaced.incarnation != @incarnation

      raise Refused.new('the session was replaced by an older hello', GRPC::Core::StatusCodes::ABORTED)
    end
  end

  def next_frame
    @received.concat(@responses.next.frames.to_a) while @received.empty?
    @received.shift
  rescue StopIteration
    raise Refused.new('the stream has ended', GRPC::Core::StatusCodes::OK)
  rescue GRPC::BadStatus => e
    @requests.close
    raise Refused.from_status(e)
  end
end
