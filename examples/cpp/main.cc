// Proposes a value, creates an instance, or watches one. README.md tells how.
// Exit code: 0 done, 1 not done, 2 wrong usage or unusable credentials.

#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "process.h"
#include "servers.h"

namespace {

using namespace stickycas::v1;

constexpr char kUsage[] =
    "usage: stickycas-cpp propose SERVERS --instance NAME_OR_ID --value TEXT [--unary] [--give-up-after "
    "SECONDS]\n"
    "       stickycas-cpp create SERVERS --name NAME --processes N --warp-size P --read-size R --roster "
    "A,B,C\n"
    "                            [--append-rounds Q] [--patience SECONDS]\n"
    "       stickycas-cpp watch SERVERS --instance NAME_OR_ID\n"
    "SERVERS: --server HOST:PORT[,HOST:PORT...] and --credentials DIR or --principal NAME";

// The flags of the command line.
class Flags {
 public:
  Flags(const std::vector<std::string>& arguments, std::set<std::string> known) {
    known.insert({"--server", "--credentials", "--principal"});
    for (auto it = arguments.begin(); it != arguments.end(); ++it) {
      const std::string& flag = *it;
      if (known.count(flag) == 0) throw Unusable("unknown argument " + flag);
      if (flag == "--unary") {
        values_[flag] = "";
      } else {
        if (++it == arguments.end()) throw Unusable(flag + " needs a value");
        values_[flag] = *it;
      }
    }
  }

  bool Has(const std::string& flag) const { return values_.count(flag) > 0; }

  const std::string& Get(const std::string& flag) const {
    if (!Has(flag)) throw Unusable(flag + " is missing");
    return values_.at(flag);
  }

  std::vector<std::string> List(const std::string& flag) const {
    std::vector<std::string> parts;
    std::istringstream text(Get(flag));
    for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
    if (parts.empty()) throw Unusable(flag + " is empty");
    return parts;
  }

  template <typename Number>
  Number Parse(const std::string& flag) const {
    std::istringstream text(Get(flag));
    Number number;
    if (Get(flag)[0] == '-' || !(text >> number) || !text.eof()) throw Unusable(flag + " is no number");
    return number;
  }

 private:
  std::map<std::string, std::string> values_;
};

Servers MakeServers(const Flags& flags) {
  const Seconds give_up_after(flags.Has("--give-up-after") ? flags.Parse<double>("--give-up-after") : 30);
  if (flags.Has("--credentials")) {
    return Servers(flags.List("--server"), flags.Get("--credentials"), "", give_up_after);
  }
  return Servers(flags.List("--server"), std::nullopt, flags.Get("--principal"), give_up_after);
}

GetResponse Find(Servers& servers, const std::string& instance) {
  GetRequest request;
  const bool is_id =
      instance.size() == 32 && instance.find_first_not_of("0123456789abcdef") == std::string::npos;
  is_id ? request.set_instance_id(instance) : request.set_name(instance);
  return servers.Call<InstanceService>(&InstanceService::Stub::Get, request);
}

void RunPropose(const Flags& flags) {
  Servers servers = MakeServers(flags);
  const std::string& value = flags.Get("--value");
  const GetResponse found = Find(servers, flags.Get("--instance"));
  if (!found.has_own()) throw Failure("this principal is no process of the instance");
  if (found.instance().parameters().append_window() != APPEND_WINDOW_FIRST_ACCESS) {
    throw Failure("this program plays only where the append window is first_access");
  }
  const auto accesses =
      flags.Has("--unary") ? ByUnaryCalls(servers, found) : OnAttach(servers, found.instance().instance_id());
  const std::string decision = Propose(*accesses, found.instance().parameters(), value);
  std::cout << "decided " << decision << std::endl;
}

void RunCreate(const Flags& flags) {
  Servers servers = MakeServers(flags);
  CreateRequest request;
  request.set_name(flags.Get("--name"));
  for (const auto& principal : flags.List("--roster")) request.add_roster(principal);
  Parameters& parameters = *request.mutable_parameters();
  parameters.set_processes(flags.Parse<std::uint32_t>("--processes"));
  parameters.set_warp_size(flags.Parse<std::uint32_t>("--warp-size"));
  parameters.set_read_size(flags.Parse<std::uint32_t>("--read-size"));
  if (flags.Has("--append-rounds")) {
    parameters.set_append_rounds(flags.Parse<std::uint32_t>("--append-rounds"));
  }
  if (flags.Has("--patience")) {
    const auto patience = flags.Parse<double>("--patience");
    const double seconds = std::floor(patience);
    parameters.mutable_patience()->set_seconds(static_cast<std::int64_t>(seconds));
    parameters.mutable_patience()->set_nanos(static_cast<std::int32_t>((patience - seconds) * 1e9));
  }
  const CreateResponse created = servers.Call<InstanceService>(&InstanceService::Stub::Create, request);
  std::cout << created.instance().instance_id() << std::endl;
}

// Prints an event, if people want to know it. Returns whether it is the last one.
bool Print(const Event& event) {
  if (event.has_added()) {
    const auto& added = event.added();
    std::cout << "entry " << added.position() << " " << added.process() << " " << added.value() << std::endl;
  } else if (event.has_decided()) {
    std::cout << "decided " << event.decided().process() << " " << event.decided().value() << std::endl;
  } else if (event.has_finished() || event.has_closed()) {
    std::cout << (event.has_finished() ? "finished" : "closed") << std::endl;
    return true;
  }
  return false;
}

void RunWatch(const Flags& flags) {
  Servers servers = MakeServers(flags);
  WatchRequest request;
  request.set_instance_id(Find(servers, flags.Get("--instance")).instance().instance_id());
  std::uint64_t next = 0;
  bool is_over = false;
  while (true) {
    grpc::ClientContext context;
    servers.Identify(context);
    const auto reader = InstanceService::NewStub(servers.Connect())->Watch(&context, request);
    for (WatchResponse response; reader->Read(&response);) {
      servers.NoteAnswer();
      for (const auto& event : response.events().events()) {
        // The record of the last phase may have come in part, and is told again from its beginning.
        if (is_over || event.index() < next) continue;
        if (event.index() > next) {
          throw Failure("event " + std::to_string(event.index()) + " came where " + std::to_string(next) +
                        " was due");
        }
        ++next;
        if (event.has_stepped()) request.set_from_phase(event.stepped().phase());
        is_over = Print(event);
      }
    }
    const grpc::Status status = reader->Finish();
    if (is_over) return;
    servers.PrepareNextTry(Refused(status), /*is_stream=*/true);
  }
}

void Run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw Unusable("a command is missing");
  const std::string& command = arguments.front();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (command == "propose") {
    RunPropose(Flags(rest, {"--instance", "--value", "--unary", "--give-up-after"}));
  } else if (command == "create") {
    RunCreate(Flags(rest, {"--name", "--processes", "--warp-size", "--read-size", "--append-rounds", "--roster",
                           "--patience"}));
  } else if (command == "watch") {
    RunWatch(Flags(rest, {"--instance"}));
  } else {
    throw Unusable("unknown command " + command);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Run(std::vector<std::string>(argv + 1, argv + argc));
    return 0;
  } catch (const Unusable& unusable) {
    std::cerr << "error: " << unusable.what() << "\n" << kUsage << std::endl;
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
