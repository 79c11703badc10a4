#include "graph/cluster_spec.h"

#include <xxhash.h>

#include <bit>
#include <string>

#include "absl/strings/str_cat.h"

namespace weft {

ClusterSpec ClusterSpec::Local(int workers, int threads_each) {
  ClusterSpec spec;
  for (int i = 0; i < workers; ++i) {
    WorkerSpec worker;
    worker.name = absl::StrCat("worker:", i);
    worker.host = "localhost";
    worker.threads = threads_each;
    spec.workers.push_back(std::move(worker));
  }
  return spec;
}

uint64_t ClusterSpec::Digest() const {
  // Every field ends in a separator that names and addresses do not contain.
  std::string text = "cluster 1\n";
  for (const WorkerSpec& worker : workers) {
    absl::StrAppend(&text, worker.name, "\n", worker.host, "\n", worker.address, "\n",
                    static_cast<int>(worker.device), "\n", worker.device_index, "\n",
                    worker.memory_bytes, "\n", worker.threads, "\n");
    if (!worker.model.empty()) absl::StrAppend(&text, "model\n", worker.model, "\n");
  }
  for (const LinkSpec& link : links) {
    absl::StrAppend(&text, "link\n", link.from, "\n", link.to, "\n",
                    absl::Hex(std::bit_cast<uint64_t>(link.bandwidth_bytes_per_second)), "\n",
                    absl::Hex(std::bit_cast<uint64_t>(link.latency_seconds)), "\n");
    if (!link.kind.empty()) absl::StrAppend(&text, "kind\n", link.kind, "\n");
    if (link.rails != 0) absl::StrAppend(&text, "rails\n", link.rails, "\n");
  }
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace weft
