# frozen_string_literal: true

require 'servers'
require 'stickycas/v1/instance_service_services_pb'

# Watches an instance from its first event to its end.
class Watcher
  def initialize(servers, instance_id)
    @servers = servers
    @request = StickyCas::V1::WatchRequest.new(instance_id:)
    @next_index = 0
  end

  # Yields each event once and in order, until the instance is finished or closed, also when the stream breaks.
  def each_event(&)
    loop do
      refused = follow(&)
      break if @over

      @servers.prepare_next_try(refused, stream: true)
    end
  end

  private

  # Returns why the stream has ended.
  def follow(&)
    responses = @servers.stub(StickyCas::V1::InstanceService).watch(@request, metadata: @servers.metadata)
    responses.each { |response| take(response, &) }
    Refused.new('the stream has ended', GRPC::Core::StatusCodes::OK)
  rescue GRPC::BadStatus => e
    Refused.from_status(e)
  end

  def take(response)
    @servers.note_answer
    response.events&.events&.each do |event|
      # The record of the last phase may have come in part, and is told again from its beginning.
      next if @over || event.index < @next_index
      raise Failure, "event #{event.index} came where #{@next_index} was due" if event.index > @next_index

      @next_index += 1
      @request.from_phase = event.stepped.phase if event.stepped
      @over = event.finished || event.closed
      yield event
    end
  end
end
