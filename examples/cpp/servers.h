// The servers as one principal sees them: which of them to ask, as whom, and when to ask again.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "stickycas/v1/sticky_cas_service.grpc.pb.h"

using Seconds = std::chrono::duration<double>;

// Nothing more can be done: the text names the reason.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The command line or the credentials cannot be used.
struct Unusable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A request without an answer: a server has refused it, or it was lost with its connection.
struct Refused : std::runtime_error {
  explicit Refused(const grpc::Status& status);
  explicit Refused(const stickycas::v1::Refusal& refusal);

  // Whether the very same request would be refused again.
  bool IsFinal(bool is_stream) const;
  // The code and the reason, for people.
  std::string Words() const;

  int code;
  // Why a StickyCAS server has refused. Empty: the connection broke, or something else has answered.
  std::string reason;
  // The server that owns the instance, if that is told.
  std::string owner;
  Seconds retry_after{0};
};

class Servers {
 public:
  // How long a unary call may wait for its phase before it is made again.
  static constexpr std::chrono::seconds kCallDeadline{10};

  // The addresses are HOST:PORT, also as URLs. With a folder of credentials TLS is used, else the principal
  // is only named.
  Servers(const std::vector<std::string>& addresses, std::optional<std::filesystem::path> credentials,
          std::string principal, Seconds give_up_after);

  // The response to a unary call. The same request is made until it is answered, or refused for good.
  template <typename Service, typename Request, typename Response>
  Response Call(grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const Request& request) {
    while (true) {
      const auto stub = Service::NewStub(Connect());
      grpc::ClientContext context;
      Identify(context);
      context.set_deadline(std::chrono::system_clock::now() + kCallDeadline);
      Response response;
      const grpc::Status status = ((*stub).*method)(&context, request, &response);
      if (status.ok()) {
        NoteAnswer();
        return response;
      }
      PrepareNextTry(Refused(status), /*is_stream=*/false);
    }
  }

  // The channel to the server whose turn it is, connected if that can be done soon. If not, a call fails at
  // once and tells why.
  std::shared_ptr<grpc::Channel> Connect();

  // Adds to a call who makes it, unless a certificate tells.
  void Identify(grpc::ClientContext& context) const;

  // A server is there: the time after which this client gives up begins anew. The pause stays, or streams that break
  // behind each Welcome would follow each other at once.
  void NoteWelcome();

  // A server has answered.
  void NoteAnswer();

  // Chooses the server to ask next, after a pause if that is due. Throws Failure if nothing is to be asked
  // again.
  void PrepareNextTry(const Refused& refused, bool is_stream);

 private:
  std::vector<std::string> addresses_;
  std::optional<std::filesystem::path> token_file_;
  std::string principal_;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials_;
  Seconds give_up_after_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
  std::string server_;
  std::optional<std::chrono::steady_clock::time_point> failing_since_;
  Seconds pause_;
  int redirects_ = 0;
};
