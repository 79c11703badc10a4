#include "tools/flags/cluster_share.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "platform/cpu_info.h"

namespace weft {
namespace {

constexpr char kEveryHost[] = "*";

// What a job can tell of its workers, but for names and addresses; hosts are numbered as they come.
using WorkerTraits = std::tuple<DeviceKind, std::string, int, int64_t, int>;

std::vector<WorkerTraits> TraitsOf(const ClusterSpec& cluster) {
  std::map<std::string, int> hosts;
  std::vector<WorkerTraits> traits;
  for (const WorkerSpec& worker : cluster.workers) {
    const int host = hosts.try_emplace(worker.host, static_cast<int>(hosts.size())).first->second;
    traits.emplace_back(worker.device, worker.model, worker.threads, worker.memory_bytes, host);
  }
  return traits;
}

}  // namespace

std::vector<int> WorkersOf(const WorkerShare& share, int all) {
  std::vector<int> workers(static_cast<size_t>(share.workers > 0 ? share.workers : all));
  std::iota(workers.begin(), workers.end(), share.index * share.workers);
  return workers;
}

ClusterSpec ShareOf(const ClusterSpec& all, const WorkerShare& share, int cores) {
  const std::vector<int> indices = WorkersOf(share, static_cast<int>(all.workers.size()));
  if (indices.size() == all.workers.size()) return all;
  std::map<std::string, int> workers_on;
  for (const WorkerSpec& worker : all.workers) ++workers_on[worker.host];
  ClusterSpec spec;
  std::set<std::string> hosts = {kEveryHost, ""};  // in LinkSpec::to: within a host
  for (size_t i = 0; i < indices.size(); ++i) {
    WorkerSpec worker = all.workers[static_cast<size_t>(indices[i])];
    if (worker.threads == 0) worker.threads = ThreadBudget(cores, workers_on[worker.host]);
    if (worker.address.empty()) worker.name = all.workers[i].name;
    hosts.insert(worker.host);
    spec.workers.push_back(std::move(worker));
  }
  for (const LinkSpec& link : all.links) {
    if (hosts.contains(link.from) && hosts.contains(link.to)) spec.links.push_back(link);
  }
  return spec;
}

bool SharesAreAlike(const ClusterSpec& all, WorkerShare share, int cores) {
  share.index = 0;
  const std::vector<WorkerTraits> first = TraitsOf(ShareOf(all, share, cores));
  for (share.index = 1; share.index < share.count; ++share.index) {
    if (TraitsOf(ShareOf(all, share, cores)) != first) return false;
  }
  return true;
}

}  // namespace weft
