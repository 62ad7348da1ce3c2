#include "process.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace stickycas::v1;

FirstAppend Appended(std::uint64_t phase, const AppendResult& result) {
  FirstAppend appended;
  appended.set_phase(phase);
  *appended.mutable_result() = result;
  return appended;
}

class UnaryAccesses final : public Accesses {
 public:
  UnaryAccesses(Servers& servers, const GetResponse& found)
      : servers_(servers), instance_id_(found.instance().instance_id()), own_(found.own()) {}

  Own Begin() override { return own_; }

  FirstAppend Append(std::uint64_t number, const std::string& value) override {
    AppendRequest request;
    request.set_instance_id(instance_id_);
    request.set_access_number(number);
    request.set_value(value);
    const AppendResponse response =
        servers_.Call<StickyCasService>(&StickyCasService::Stub::Append, request);
    return Appended(response.phase(), response.result());
  }

  ReadResult Read(std::uint64_t number, std::uint32_t start) override {
    ReadRequest request;
    request.set_instance_id(instance_id_);
    request.set_access_number(number);
    request.set_start(start);
    return servers_.Call<StickyCasService>(&StickyCasService::Stub::Read, request).result();
  }

  void Decide(const std::string& value) override {
    DecideRequest request;
    request.set_instance_id(instance_id_);
    request.set_value(value);
    servers_.Call<StickyCasService>(&StickyCasService::Stub::Decide, request);
  }

 private:
  Servers& servers_;
  const std::string instance_id_;
  const Own own_;
};

// One stream of Attach. It ends with this object.
class Stream {
 public:
  Stream(Servers& servers, std::uint64_t incarnation) : incarnation_(incarnation) {
    servers.Identify(context_);
    rpc_ = StickyCasService::NewStub(servers.Connect())->Attach(&context_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (!has_ended_) {
      context_.TryCancel();
      rpc_->Finish();
    }
  }

  bool has_ended() const { return has_ended_; }

  // The server's answer to a frame. Throws Refused also if the stream breaks.
  ServerFrame Ask(const ClientFrame& frame) {
    AttachRequest request;
    *request.add_frames() = frame;
    rpc_->Write(request);  // If that fails, so does the next read.
    while (true) {
      ServerFrame received = Next();
      switch (received.frame_case()) {
        case ServerFrame::kWelcome:
        case ServerFrame::kDecided:
          return received;
        case ServerFrame::kAnswer:
          if (received.answer().number() == frame.access().number()) return received;
          break;
        case ServerFrame::kRefusal:
          // With number 0 it is not about an access.
          if (const auto number = received.refusal().access_number();
              number == 0 || number == frame.access().number()) {
            throw Refused(received.refusal());
          }
          break;
        case ServerFrame::kReplaced:
          if (received.replaced().incarnation() != incarnation_) {
            throw Failure("replaced: another client plays this process");
          }
          // A hello of an earlier stream of this client came late.
          throw Refused(
              grpc::Status(grpc::StatusCode::ABORTED, "the session was replaced by an older hello"));
        default:  // A frame that this client does not know.
          break;
      }
    }
  }

 private:
  ServerFrame Next() {
    while (received_.empty()) {
      AttachResponse response;
      if (!rpc_->Read(&response)) {
        has_ended_ = true;
        throw Refused(rpc_->Finish());
      }
      received_.insert(received_.end(), response.frames().begin(), response.frames().end());
    }
    ServerFrame frame = std::move(received_.front());
    received_.pop_front();
    return frame;
  }

  const std::uint64_t incarnation_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<AttachRequest, AttachResponse>> rpc_;
  std::deque<ServerFrame> received_;
  bool has_ended_ = false;
};

class AttachAccesses final : public Accesses {
 public:
  AttachAccesses(Servers& servers, const std::string& instance_id) : servers_(servers) {
    std::random_device random;
    hello_.mutable_hello()->set_instance_id(instance_id);
    hello_.mutable_hello()->set_incarnation(std::uint64_t{random()} << 32 | random());
  }

  Own Begin() override {
    return Again([this] { return own_; });
  }

  FirstAppend Append(std::uint64_t number, const std::string& value) override {
    ClientFrame frame;
    frame.mutable_access()->set_number(number);
    frame.mutable_access()->mutable_append()->set_value(value);
    const ServerFrame answer = Ask(frame);
    return Appended(answer.answer().phase(), answer.answer().append());
  }

  ReadResult Read(std::uint64_t number, std::uint32_t start) override {
    ClientFrame frame;
    frame.mutable_access()->set_number(number);
    frame.mutable_access()->mutable_read()->set_start(start);
    return Ask(frame).answer().read();
  }

  void Decide(const std::string& value) override {
    ClientFrame frame;
    frame.mutable_decision()->set_value(value);
    Ask(frame);
  }

 private:
  ServerFrame Ask(const ClientFrame& frame) {
    return Again([&] { return stream_->Ask(frame); });
  }

  // Does something on the stream, and again on a new one when it has broken.
  template <typename Action>
  std::invoke_result_t<Action> Again(Action action) {
    while (true) {
      try {
        if (!stream_) Open();
        auto result = action();
        servers_.NoteAnswer();
        return result;
      } catch (const Refused& refused) {
        // A session stays open if the server has only put off one of its frames.
        if (stream_ && (stream_->has_ended() || refused.code != grpc::StatusCode::RESOURCE_EXHAUSTED)) {
          stream_.reset();
        }
        servers_.PrepareNextTry(refused, /*is_stream=*/true);
      }
    }
  }

  void Open() {
    auto stream = std::make_unique<Stream>(servers_, hello_.hello().incarnation());
    own_ = stream->Ask(hello_).welcome().own();
    servers_.NoteWelcome();
    stream_ = std::move(stream);
  }

  Servers& servers_;
  ClientFrame hello_;
  std::unique_ptr<Stream> stream_;
  Own own_;
};

// The most frequent value; of those that are equally frequent the smallest, as std::map has them in the order
// of their unsigned bytes.
std::string Mode(const std::vector<std::string>& values) {
  std::map<std::string, int> counts;
  for (const auto& value : values) ++counts[value];
  const auto less_frequent = [](const auto& one, const auto& other) { return one.second < other.second; };
  return std::max_element(counts.begin(), counts.end(), less_frequent)->first;
}

}  // namespace

std::unique_ptr<Accesses> ByUnaryCalls(Servers& servers, const GetResponse& found) {
  return std::make_unique<UnaryAccesses>(servers, found);
}

std::unique_ptr<Accesses> OnAttach(Servers& servers, const std::string& instance_id) {
  return std::make_unique<AttachAccesses>(servers, instance_id);
}

std::string Propose(Accesses& accesses, const Parameters& parameters, const std::string& proposal) {
  const Own own = accesses.Begin();
  if (own.has_decided()) return own.decided();
  FirstAppend appended = own.append();
  // What an earlier life of this process has left waiting.
  for (const auto& waiting : own.waiting()) {
    if (waiting.has_append()) {
      appended = accesses.Append(waiting.number(), waiting.append().value());
    } else {
      accesses.Read(waiting.number(), waiting.read().start());
    }
  }

  const auto warps = (parameters.processes() + parameters.warp_size() - 1) / parameters.warp_size();
  const auto rounds = std::max(parameters.append_rounds(), 1u);
  // Until it wins, or its warp has had its append rounds (K2).
  const auto is_to_append_again = [&] {
    return appended.result().outcome() == APPEND_OUTCOME_FAILED && appended.phase() <= warps * (rounds - 1);
  };
  auto number = own.next_access_number();
  while (number == 1 || is_to_append_again()) appended = accesses.Append(number++, proposal);

  // The most entries that there can be (K1), or all of a sealed list.
  const auto in_last = parameters.processes() - (warps - 1) * parameters.warp_size();
  const auto most = (warps - 1) * rounds + std::min(rounds, in_last);
  std::vector<std::string> held;
  ReadResult last;
  while (held.size() < most && !(last.sealed() && held.size() == last.length())) {
    const ReadResult result = accesses.Read(number++, static_cast<std::uint32_t>(held.size()));
    if (result.length() < last.length() ||
        (last.sealed() && (!result.sealed() || result.length() > last.length()))) {
      throw Failure("lost: the list is not the one that a server has told before");
    }
    held.insert(held.end(), result.values().begin(), result.values().end());
    last = result;
  }
  if (held.empty()) throw Failure("no decision: the list is sealed and has no entries");

  const std::string decision = Mode(held);
  accesses.Decide(decision);
  return decision;
}
