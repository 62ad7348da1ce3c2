# frozen_string_literal: true

require 'google/protobuf/well_known_types'
require 'google/rpc/error_details_pb'
require 'grpc'
require 'pathname'
require 'stickycas/v1/errors_pb'

# Nothing more can be done: the message names the reason.
class Failure < StandardError; end

# The command line or the credentials cannot be used.
class Unusable < StandardError; end

# A request without an answer: a server has refused it, or it was lost with its connection.
class Refused < StandardError
  # The reason is that of a StickyCAS server; nil: the connection broke, or something else has answered.
  attr_reader :code, :reason, :owner, :retry_after

  # From the error by which a call has ended.
  def self.from_status(error)
    reason = owner = nil
    retry_after = 0
    error.to_rpc_status&.details&.each do |detail|
      if (info = detail.unpack(Google::Rpc::ErrorInfo)) && info.domain == 'stickycas.v1'
        reason = info.reason
        owner = info.metadata['owner']
      elsif (info = detail.unpack(Google::Rpc::RetryInfo))
        retry_after = info.retry_delay.to_f
      end
    end
    new(error.details, error.code, reason:, owner:, retry_after:)
  end

  # From the frame by which a server on Attach has refused another frame.
  def self.from_frame(frame)
    reason = frame.reason.to_s.delete_prefix('REFUSAL_REASON_')
    new(frame.message, frame.code, reason:, owner: frame.owner, retry_after: frame.retry_after.to_f)
  end

  def initialize(message, code, reason: nil, owner: nil, retry_after: 0)
    super(message)
    @code = code
    @reason = reason
    @owner = owner
    @retry_after = retry_after
  end

  # Whether the very same request would be refused again.
  def final?(stream:)
    if reason.nil?
      # Proxies end streams with any code. A unary call with one of these has reached something else.
      return !stream && %i[UNIMPLEMENTED UNAUTHENTICATED PERMISSION_DENIED NOT_FOUND].include?(code_name)
    end
    return true if reason == 'TOO_MANY_SESSIONS'

    !%i[UNAVAILABLE DEADLINE_EXCEEDED RESOURCE_EXHAUSTED INTERNAL].include?(code_name)
  end

  def code_name
    GRPC::Core::StatusCodes.constants.find { |name| GRPC::Core::StatusCodes.const_get(name) == code } || code
  end

  # The code and the reason, for people.
  def words
    [code_name, reason].compact.join(' ')
  end
end

# The servers as one principal sees them: which of them to ask, as whom, and when to ask again.
class Servers
  # How long a unary call may wait for its phase before it is made again, in seconds.
  CALL_DEADLINE = 10
  # Between two tries, in seconds: at first, and at most.
  FIRST_PAUSE = 0.05
  LONGEST_PAUSE = 0.5
  # Redirects that are followed without a pause.
  MAX_REDIRECTS = 4

  CHANNEL_ARGUMENTS = {
    # A server that is paused or cut off closes nothing: pings show it, while a call is open.
    'grpc.keepalive_time_ms' => 10_000,
    'grpc.keepalive_timeout_ms' => 10_000,
    'grpc.http2.ping_timeout_ms' => 10_000,
    # A call that waits for its phase sends nothing else.
    'grpc.http2.max_pings_without_data' => 0,
    # The time for one connection, and the pauses between two. gRPC would wait for up to two minutes.
    'grpc.min_reconnect_backoff_ms' => 2000,
    'grpc.initial_reconnect_backoff_ms' => 200,
    'grpc.max_reconnect_backoff_ms' => 1000,
    # An answer on Attach may have more than the 4 MiB that gRPC takes.
    'grpc.max_receive_message_length' => -1
  }.freeze

  # The addresses are HOST:PORT, also as URLs. With a folder of credentials TLS is used, else the principal is only
  # named.
  def initialize(addresses, credentials:, principal:, give_up_after:)
    @addresses = addresses.map { |address| address.sub(%r{\A\w+://}, '').chomp('/') }
    raise Unusable, 'a server is HOST:PORT' if @addresses.empty? || !@addresses.all?(/:\d+\z/)

    @channel_credentials = credentials ? read_credentials(Pathname(credentials)) : :this_channel_is_insecure
    @principal = principal
    @give_up_after = give_up_after
    @channels = {}
    @server = @addresses.first
    note_answer
  end

  # The response to a unary call. The same request is made until it is answered, or refused for good.
  def call(service, method, request)
    response = stub(service).public_send(method, request, metadata:, deadline: Time.now + CALL_DEADLINE)
    note_answer
    response
  rescue GRPC::BadStatus => e
    prepare_next_try(Refused.from_status(e), stream: false)
    retry
  end

  # The calls of a service at the server whose turn it is.
  def stub(service)
    channel = @channels[@server] ||= GRPC::Core::Channel.new(@server, CHANNEL_ARGUMENTS, @channel_credentials)
    service::Stub.new(@server, @channel_credentials, channel_override: channel)
  end

  # Tells who makes a call, unless a certificate does. A token is replaced before it expires, so it is read each time.
  def metadata
    return { 'authorization' => "Bearer #{@token_file.read.strip}" } if @token_file

    { 'stickycas-principal' => @principal }.compact
  end

  # A server is there: the time after which this client gives up begins anew. The pause stays, or streams that break behind
  # each Welcome would follow each other at once.
  def note_welcome
    @failing_since = nil
    @redirects = 0
  end

  # A server has answered.
  def note_answer
    note_welcome
    @pause = FIRST_PAUSE
  end

  # Chooses the server to ask next, after a pause if that is due. Raises Failure if nothing is to be asked again.
  def prepare_next_try(refused, stream:)
    raise Failure, "#{refused.words}: #{refused.message}" if refused.final?(stream:)

    warn "asks again: #{refused.words}"
    waiting = refused.reason == 'RECOVERING' || refused.code_name == :DEADLINE_EXCEEDED
    give_up_in_time(refused, waiting)
    if @addresses.include?(refused.owner) && @redirects < MAX_REDIRECTS
      @redirects += 1
      @server = refused.owner
    else
      @redirects = 0
      pause(refused.retry_after)
      next_server if refused.code_name == :UNAVAILABLE || (refused.reason.nil? && !waiting)
    end
  end

  private

  def read_credentials(folder)
    authorities = read_pem(folder.join('ca.crt'))
    if folder.join('token').exist?
      @token_file = folder.join('token')
      @token_file.read
      GRPC::Core::ChannelCredentials.new(authorities)
    else
      key = read_pem(folder.join('tls.key'))
      GRPC::Core::ChannelCredentials.new(authorities, key, read_pem(folder.join('tls.crt')))
    end
  rescue SystemCallError => e
    raise Unusable, e.message
  end

  def read_pem(path)
    text = path.read
    raise Unusable, "#{path} is no PEM" unless text.include?('-----BEGIN ')

    text
  end

  # A server that recovers, or where the request waits for its phase, is there.
  def give_up_in_time(refused, waiting)
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    @failing_since = waiting ? nil : @failing_since || now
    return if waiting || now - @failing_since <= @give_up_after

    raise Failure, "gave up without an answer: #{refused.words}: #{refused.message}"
  end

  # With jitter, so that clients do not come all at the same moment.
  def pause(at_least)
    sleep([@pause, at_least].max * rand(1.0..1.5))
    @pause = [2 * @pause, LONGEST_PAUSE].min
  end

  def next_server
    @server = @addresses[(@addresses.index(@server) + 1) % @addresses.size]
  end
end
