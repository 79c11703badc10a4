#include "training/job/replication.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "distributed/recovery/held_snapshots.h"
#include "executor/variables/snapshot_image.h"
#include "graph/partition.h"

namespace weft {
namespace {

int HostOf(const Plan& plan, int rank) {
  return plan.hosts.empty() ? 0 : plan.hosts[static_cast<size_t>(rank)];
}

bool AreApart(const Plan& plan, int rank, int other) {
  return HostOf(plan, rank) != HostOf(plan, other);
}

// The distance to a rank's keeper with which all have theirs on another host; 0: none.
int CommonShift(const Plan& plan) {
  const int ranks = plan.mesh.size();
  for (int shift = 1; shift < ranks; ++shift) {
    bool all = true;
    for (int rank = 0; rank < ranks; ++rank) {
      all = all && AreApart(plan, rank, (rank + shift) % ranks);
    }
    if (all) return shift;
  }
  return 0;
}

}  // namespace

std::vector<int32_t> KeepersOf(const Plan& plan) {
  const int ranks = plan.mesh.size();
  const std::set<int> hosts(plan.hosts.begin(), plan.hosts.end());
  const int shift = hosts.size() < 2 ? 1 : CommonShift(plan);
  std::vector<int32_t> keepers;
  std::vector<int> kept(static_cast<size_t>(ranks), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    int keeper = (rank + shift) % ranks;
    // Hosts of other sizes: of those on another host, who keeps the fewest.
    for (int distance = 1; shift == 0 && distance < ranks; ++distance) {
      const int other = (rank + distance) % ranks;
      const bool is_less =
          keeper == rank || kept[static_cast<size_t>(other)] < kept[static_cast<size_t>(keeper)];
      if (AreApart(plan, rank, other) && is_less) keeper = other;
    }
    keepers.push_back(keeper);
    ++kept[static_cast<size_t>(keeper)];
  }
  return keepers;
}

Replication ReplicationOf(const std::vector<JobProgram>& programs, const Plan& plan,
                          int64_t every) {
  Replication replication;
  if (every <= 0 || plan.mesh.size() < 2) return replication;
  replication.every = every;
  replication.keepers = KeepersOf(plan);
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    std::map<std::string, VariableShard> changed;
    for (const JobProgram& program : programs) {
      const Partition& partition = program.partitions[static_cast<size_t>(rank)];
      for (VariableShard& shard : SnapshotVariables(partition, /*primaries=*/true)) {
        changed[shard.name] = std::move(shard);
      }
    }
    std::vector<VariableShard> shards;
    for (auto& [name, shard] : changed) shards.push_back(std::move(shard));
    replication.bytes.push_back(LayOutSnapshot(std::move(shards)).bytes);
  }
  return replication;
}

}  // namespace weft
