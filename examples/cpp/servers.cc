#include "servers.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace {

using grpc::StatusCode;

// Between two tries: at first, and at most.
constexpr Seconds kFirstPause{0.05}, kLongestPause{0.5};
// Redirects that are followed without a pause.
constexpr int kMaxRedirects = 4;
// How long a connection may take before the call is made all the same. gRPC connects only while something
// waits.
constexpr std::chrono::seconds kConnectTimeout{1};

Seconds FromProto(const google::protobuf::Duration& duration) {
  return Seconds(duration.seconds()) + std::chrono::nanoseconds(duration.nanos());
}

std::string CodeName(int code) {
  static const std::array<std::string, 17> names{
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code < static_cast<int>(names.size()) ? names[code] : std::to_string(code);
}

// The name of a reason as ErrorInfo has it; the number if this client does not know the reason.
std::string ReasonName(stickycas::v1::RefusalReason reason) {
  static const std::string prefix = "REFUSAL_REASON_";
  const std::string name = stickycas::v1::RefusalReason_Name(reason);
  return name.empty() ? std::to_string(reason) : name.substr(prefix.size());
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Unusable("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ReadPem(const std::filesystem::path& path) {
  std::string text = ReadFile(path);
  if (text.find("-----BEGIN ") == std::string::npos) throw Unusable(path.string() + " is no PEM");
  return text;
}

std::string WithoutScheme(const std::string& address) {
  const auto end = address.find("://");
  std::string host_and_port = end == std::string::npos ? address : address.substr(end + 3);
  while (!host_and_port.empty() && host_and_port.back() == '/') host_and_port.pop_back();
  if (host_and_port.find(':') == std::string::npos) throw Unusable("a server is HOST:PORT, not " + address);
  return host_and_port;
}

}  // namespace

Refused::Refused(const grpc::Status& status)
    : std::runtime_error(status.error_message()), code(status.error_code()) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&info) && info.domain() == "stickycas.v1") {
      reason = info.reason();
      if (const auto found = info.metadata().find("owner"); found != info.metadata().end()) {
        owner = found->second;
      }
    } else if (detail.UnpackTo(&retry)) {
      retry_after = FromProto(retry.retry_delay());
    }
  }
}

Refused::Refused(const stickycas::v1::Refusal& refusal)
    : std::runtime_error(refusal.message()),
      code(refusal.code()),
      reason(ReasonName(refusal.reason())),
      owner(refusal.owner()),
      retry_after(FromProto(refusal.retry_after())) {}

bool Refused::IsFinal(bool is_stream) const {
  if (reason.empty()) {
    // Proxies end streams with any code. A unary call with one of these has reached something else.
    return !is_stream && (code == StatusCode::UNIMPLEMENTED || code == StatusCode::UNAUTHENTICATED ||
                          code == StatusCode::PERMISSION_DENIED || code == StatusCode::NOT_FOUND);
  }
  if (reason == "TOO_MANY_SESSIONS") return true;
  return code != StatusCode::UNAVAILABLE && code != StatusCode::DEADLINE_EXCEEDED &&
         code != StatusCode::RESOURCE_EXHAUSTED && code != StatusCode::INTERNAL;
}

std::string Refused::Words() const { return reason.empty() ? CodeName(code) : CodeName(code) + " " + reason; }

Servers::Servers(const std::vector<std::string>& addresses, std::optional<std::filesystem::path> credentials,
                 std::string principal, Seconds give_up_after)
    : principal_(std::move(principal)), give_up_after_(give_up_after), pause_(kFirstPause) {
  std::transform(addresses.begin(), addresses.end(), std::back_inserter(addresses_), WithoutScheme);
  server_ = addresses_.at(0);
  if (!credentials) {
    channel_credentials_ = grpc::InsecureChannelCredentials();
    return;
  }
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ReadPem(*credentials / "ca.crt");
  if (std::filesystem::exists(*credentials / "token")) {
    token_file_ = *credentials / "token";
    ReadFile(*token_file_);
  } else {
    options.pem_cert_chain = ReadPem(*credentials / "tls.crt");
    options.pem_private_key = ReadPem(*credentials / "tls.key");
  }
  channel_credentials_ = grpc::SslCredentials(options);
}

std::shared_ptr<grpc::Channel> Servers::Connect() {
  auto& channel = channels_[server_];
  if (!channel) {
    grpc::ChannelArguments arguments;
    // A server that is paused or cut off closes nothing: pings show it, while a call is open.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
    arguments.SetInt("grpc.http2.ping_timeout_ms", 10000);
    // A call that waits for its phase sends nothing else.
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    // The time for one connection, and the pauses between two. gRPC would wait for up to two minutes.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    // An answer on Attach may have more than the 4 MiB that gRPC takes.
    arguments.SetMaxReceiveMessageSize(-1);
    channel = grpc::CreateCustomChannel(server_, channel_credentials_, arguments);
  }
  channel->WaitForConnected(std::chrono::system_clock::now() + kConnectTimeout);
  return channel;
}

void Servers::Identify(grpc::ClientContext& context) const {
  if (token_file_) {
    // Read for each call, since it is replaced before it expires.
    std::string token = ReadFile(*token_file_);
    token.erase(token.find_last_not_of(" \r\n") + 1);
    context.AddMetadata("authorization", "Bearer " + token);
  } else if (!principal_.empty()) {
    context.AddMetadata("stickycas-principal", principal_);
  }
}

void Servers::NoteWelcome() {
  failing_since_.reset();
  redirects_ = 0;
}

void Servers::NoteAnswer() {
  NoteWelcome();
  pause_ = kFirstPause;
}

void Servers::PrepareNextTry(const Refused& refused, bool is_stream) {
  if (refused.IsFinal(is_stream)) throw Failure(refused.Words() + ": " + refused.what());
  std::cerr << "asks again: " << refused.Words() << std::endl;

  // The server is there, and the request waits for its phase or for the server's log.
  const bool is_waiting = refused.reason == "RECOVERING" || refused.code == StatusCode::DEADLINE_EXCEEDED;
  const auto now = std::chrono::steady_clock::now();
  if (is_waiting) {
    failing_since_.reset();
  } else if (!failing_since_) {
    failing_since_ = now;
  } else if (now - *failing_since_ > give_up_after_) {
    throw Failure("gave up without an answer: " + refused.Words() + ": " + refused.what());
  }

  const auto owner = std::find(addresses_.begin(), addresses_.end(), refused.owner);
  if (owner != addresses_.end() && redirects_ < kMaxRedirects) {
    ++redirects_;
    server_ = *owner;
    return;
  }
  redirects_ = 0;

  // With jitter, so that clients do not come all at the same moment.
  static std::minstd_rand random{std::random_device{}()};
  const double jitter = std::uniform_real_distribution<>(1, 1.5)(random);
  std::this_thread::sleep_for(std::max(pause_, refused.retry_after) * jitter);
  pause_ = std::min(pause_ * 2, kLongestPause);

  if (refused.code == StatusCode::UNAVAILABLE || (refused.reason.empty() && !is_waiting)) {
    const auto asked = std::find(addresses_.begin(), addresses_.end(), server_);
    server_ = std::next(asked) == addresses_.end() ? addresses_.front() : *std::next(asked);
  }
}
