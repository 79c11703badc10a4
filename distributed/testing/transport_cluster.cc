#include "distributed/testing/transport_cluster.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/in_process_transport.h"
#include "distributed/shared_memory/shared_memory_transport.h"

namespace weft::testing {
namespace {

class InProcessTransportCluster final : public TransportCluster {
 public:
  explicit InProcessTransportCluster(int ranks) : hub_(ranks) {
    for (int i = 0; i < ranks; ++i) transports_.push_back(hub_.NewTransport(RankId(i)));
  }
  Transport& transport(int rank) override { return *transports_[rank]; }

 private:
  InProcessHub hub_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

class GrpcTransportCluster final : public TransportCluster {
 public:
  explicit GrpcTransportCluster(int ranks) {
    std::string folder = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    JobMembership membership;
    membership.job_id = kTestJobId;
    for (int i = 0; i < ranks; ++i) {
      membership.addresses.push_back(absl::StrCat("unix:", folder_, "/", i));
      servers_.push_back(GrpcServer::Start({membership.addresses.back()}).value());
    }
    for (int i = 0; i < ranks; ++i) {
      membership.rank = RankId(i);
      transports_.push_back(servers_[i]->OpenTransport(membership).value());
    }
  }
  ~GrpcTransportCluster() override {
    transports_.clear();
    servers_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Transport& transport(int rank) override { return *transports_[rank]; }

 private:
  std::string folder_;
  std::vector<std::unique_ptr<GrpcServer>> servers_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// Rings between ranks of one machine, and gRPC between machines.
class SharedMemoryTransportCluster final : public TransportCluster {
 public:
  // Ranks are on machines of so many each.
  SharedMemoryTransportCluster(int ranks, int ranks_of_machine) {
    std::string folder = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    JobMembership membership;
    membership.job_id = kTestJobId;
    for (int i = 0; i < ranks; ++i) {
      membership.addresses.push_back(absl::StrCat("unix:", folder_, "/", i));
      servers_.push_back(GrpcServer::Start({membership.addresses.back()}).value());
    }
    SharedMemoryJob job{folder_, kTestJobId, RankId(), membership.addresses, {}, "a token"};
    for (int i = 0; i < ranks; ++i) {
      job.rank = membership.rank = RankId(i);
      job.may_be_here.clear();
      for (int peer = 0; peer < ranks; ++peer) {
        job.may_be_here.push_back(peer / ranks_of_machine == i / ranks_of_machine);
      }
      const auto open = [&](SharedMemoryTransport::OnAbort on_abort) {
        return servers_[static_cast<size_t>(i)]->OpenTransport(membership, std::move(on_abort));
      };
      transports_.push_back(SharedMemoryTransport::Open(job, open).value());
    }
  }
  ~SharedMemoryTransportCluster() override {
    transports_.clear();
    servers_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Transport& transport(int rank) override { return *transports_[static_cast<size_t>(rank)]; }

 private:
  std::string folder_;
  std::vector<std::unique_ptr<GrpcServer>> servers_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

std::unique_ptr<TransportCluster> NewSharedMemoryCluster(int ranks) {
  return std::make_unique<SharedMemoryTransportCluster>(ranks, ranks);
}
// Of more than two ranks, some share memory and others do not.
std::unique_ptr<TransportCluster> NewTwoMachinesCluster(int ranks) {
  return std::make_unique<SharedMemoryTransportCluster>(ranks, 2);
}

class PortCluster final : public TransportCluster {
 public:
  PortCluster(int ranks, const std::shared_ptr<KeyRing>& keys) {
    JobMembership membership;
    membership.job_id = kTestJobId;
    for (int i = 0; i < ranks; ++i) {
      servers_.push_back(GrpcServer::Start({"127.0.0.1:0", false, {}, {}, keys}).value());
      membership.addresses.push_back(servers_.back()->address());
    }
    for (int i = 0; i < ranks; ++i) {
      membership.rank = RankId(i);
      transports_.push_back(servers_[i]->OpenTransport(membership).value());
    }
  }
  ~PortCluster() override {
    transports_.clear();
    servers_.clear();
  }
  Transport& transport(int rank) override { return *transports_[rank]; }

 private:
  std::vector<std::unique_ptr<GrpcServer>> servers_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

template <typename Cluster>
std::unique_ptr<TransportCluster> NewCluster(int ranks) {
  return std::make_unique<Cluster>(ranks);
}

struct NamedTransport {
  const char* kind;
  std::unique_ptr<TransportCluster> (*make)(int ranks);
};

// A new transport has its line here.
constexpr NamedTransport kTransports[] = {
    {"InProcess", NewCluster<InProcessTransportCluster>},
    {"Grpc", NewCluster<GrpcTransportCluster>},
    {"SharedMemory", NewSharedMemoryCluster},
    {"TwoMachines", NewTwoMachinesCluster},
};

}  // namespace

std::vector<std::string> TransportKinds() {
  std::vector<std::string> kinds;
  for (const NamedTransport& transport : kTransports) kinds.emplace_back(transport.kind);
  return kinds;
}

std::unique_ptr<TransportCluster> NewTransportCluster(const std::string& kind, int ranks) {
  for (const NamedTransport& transport : kTransports) {
    if (kind == transport.kind) return transport.make(ranks);
  }
  return nullptr;
}

std::unique_ptr<TransportCluster> NewPortCluster(int ranks, std::shared_ptr<KeyRing> keys) {
  return std::make_unique<PortCluster>(ranks, keys);
}

}  // namespace weft::testing
