// One correct process of an instance.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "servers.h"
#include "stickycas/v1/instance_service.grpc.pb.h"
#include "stickycas/v1/sticky_cas_service.grpc.pb.h"

// The accesses of one process at one instance. Each is asked again, with the same number, until it is
// answered.
class Accesses {
 public:
  virtual ~Accesses() = default;
  // Where the process stands: at the beginning, unless an earlier life of it has been here.
  virtual stickycas::v1::Own Begin() = 0;
  virtual stickycas::v1::FirstAppend Append(std::uint64_t number, const std::string& value) = 0;
  virtual stickycas::v1::ReadResult Read(std::uint64_t number, std::uint32_t start) = 0;
  virtual void Decide(const std::string& value) = 0;
};

// By one unary call for each access.
std::unique_ptr<Accesses> ByUnaryCalls(Servers& servers, const stickycas::v1::GetResponse& found);

// On one stream.
std::unique_ptr<Accesses> OnAttach(Servers& servers, const std::string& instance_id);

// Appends the proposal, reads the list and decides. Returns the decision, which has been reported.
std::string Propose(Accesses& accesses, const stickycas::v1::Parameters& parameters,
                    const std::string& proposal);
