#include "training/job/replication.h"

#include <algorithm>
#include <cstddef>
#include <map>
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

// The distance to a rank's keeper with which most ranks have theirs on another host.
int BestShift(const Plan& plan) {
  const int ranks = plan.mesh.size();
  int best = 1, most = -1;
  for (int shift = 1; shift < ranks; ++shift) {
    int apart = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      apart += HostOf(plan, rank) != HostOf(plan, (rank + shift) % ranks) ? 1 : 0;
    }
    if (apart > most) {
      best = shift;
      most = apart;
    }
  }
  return best;
}

}  // namespace

std::vector<int32_t> KeepersOf(const Plan& plan) {
  const int ranks = plan.mesh.size();
  const int shift = BestShift(plan);
  std::vector<int32_t> keepers;
  std::vector<int> kept(static_cast<size_t>(ranks), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    keepers.push_back((rank + shift) % ranks);
    ++kept[static_cast<size_t>(keepers.back())];
  }
  // Hosts of other sizes leave some ranks with a keeper beside them.
  for (int rank = 0; rank < ranks; ++rank) {
    int32_t& keeper = keepers[static_cast<size_t>(rank)];
    if (HostOf(plan, rank) != HostOf(plan, keeper)) continue;
    int best = -1;
    for (int other = 0; other < ranks; ++other) {
      const bool is_apart = HostOf(plan, rank) != HostOf(plan, other);
      const auto load = [&kept](int of) { return kept[static_cast<size_t>(of)]; };
      if (is_apart && (best < 0 || load(other) < load(best))) best = other;
    }
    if (best < 0) continue;
    --kept[static_cast<size_t>(keeper)];
    ++kept[static_cast<size_t>(best)];
    keeper = best;
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
