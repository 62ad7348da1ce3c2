#!/usr/bin/env ruby
# frozen_string_literal: true

# Proposes a value, creates an instance, or watches one. README.md tells how.
# Exit code: 0 done, 1 not done, 2 wrong usage or unusable credentials.

$LOAD_PATH.unshift(File.join(__dir__, 'lib'))
$LOAD_PATH.push(File.join(__dir__, 'generated'))

require 'optparse'
require 'accesses'
require 'correct_process'
require 'servers'
require 'watcher'

INSTANCES = StickyCas::V1::InstanceService

COMMANDS = {
  'propose' => { needs: %i[instance value], does: :propose },
  'create' => { needs: %i[name processes warp-size read-size roster], does: :create },
  'watch' => { needs: %i[instance], does: :watch }
}.freeze

def parse(arguments)
  flags = { 'give-up-after': 30.0 }
  parser = OptionParser.new("usage: stickycas.rb #{COMMANDS.keys.join('|')} FLAGS") do |on|
    on.require_exact = true
    on.on('--server HOST:PORT,...', Array, 'the servers, also as URLs')
    on.on('--credentials DIR', 'folder with ca.crt and token, or tls.crt and tls.key')
    on.on('--principal NAME', 'who calls, if there are no credentials')
    on.on('--instance NAME_OR_ID')
    on.on('--value TEXT', 'what is proposed')
    on.on('--unary', 'one call for each access, and no stream')
    on.on('--give-up-after SECONDS', Float, 'how long no server may answer (30)')
    on.on('--name NAME')
    on.on('--processes N', Integer)
    on.on('--warp-size P', Integer)
    on.on('--read-size R', Integer)
    on.on('--append-rounds Q', Integer)
    on.on('--roster A,B,C', Array, 'the principals of processes 1, 2, 3, ...')
    on.on('--patience SECONDS', Float)
  end
  command, *rest = parser.parse(arguments, into: flags)
  raise Unusable, parser.help unless COMMANDS.key?(command) && rest.empty?

  missing = [:server, *(:principal unless flags[:credentials]), *COMMANDS[command][:needs]] - flags.keys
  raise Unusable, "missing: #{missing.map { |flag| "--#{flag}" }.join(' ')}" if missing.any?

  [COMMANDS[command][:does], flags]
end

# The instance with this id or name, as it stands and where this principal stands there.
def find(servers, instance)
  key = instance.match?(/\A[0-9a-f]{32}\z/) ? :instance_id : :name
  servers.call(INSTANCES, :get, StickyCas::V1::GetRequest.new(key => instance))
end

def propose(servers, flags)
  found = find(servers, flags[:instance])
  parameters = found.instance.parameters
  raise Failure, 'this principal is no process of the instance' unless found.own
  unless parameters.append_window == :APPEND_WINDOW_FIRST_ACCESS
    raise Failure, 'this program plays only where the append window is first_access'
  end

  accesses = if flags[:unary]
               UnaryAccesses.new(servers, found)
             else
               AttachAccesses.new(servers, found.instance.instance_id)
             end
  puts "decided #{CorrectProcess.new(parameters, accesses).propose(flags[:value].b)}"
end

def create(servers, flags)
  if (patience = flags[:patience])
    seconds = patience.floor
    patience = Google::Protobuf::Duration.new(seconds:, nanos: ((patience - seconds) * 1e9).to_i)
  end
  parameters = StickyCas::V1::Parameters.new(
    processes: flags[:processes], warp_size: flags[:'warp-size'], read_size: flags[:'read-size'],
    append_rounds: flags[:'append-rounds'], patience:
  )
  request = StickyCas::V1::CreateRequest.new(name: flags[:name], parameters:, roster: flags[:roster])
  puts servers.call(INSTANCES, :create, request).instance.instance_id
end

def watch(servers, flags)
  $stdout.sync = true
  Watcher.new(servers, find(servers, flags[:instance]).instance.instance_id).each_event do |event|
    about = event.public_send(event.what) if event.what
    case event.what
    when :added then puts "entry #{about.position} #{about.process} #{about.value}"
    when :decided then puts "decided #{about.process} #{about.value}"
    when :finished, :closed then puts event.what
    end
  end
end

def main(arguments)
  command, flags = parse(arguments)
  principal = flags[:principal] unless flags[:credentials]
  servers = Servers.new(flags[:server], credentials: flags[:credentials], principal:,
                                        give_up_after: flags[:'give-up-after'])
  send(command, servers, flags)
  0
rescue Unusable, OptionParser::ParseError => e
  warn "error: #{e.message}"
  2
rescue Failure => e
  warn "error: #{e.message}"
  1
end

exit main(ARGV)
