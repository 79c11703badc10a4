#include "placement/search/what_if.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "platform/text/units.h"

namespace weft {
namespace {

constexpr int kMaxWorkers = 1 << 16;

const std::vector<std::string>& Keys() {
  static const auto* const keys =
      new std::vector<std::string>{"nodes", "workers", "link", "latency", "memory", "model"};
  return *keys;
}

absl::Status Error(const std::string& text, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(
      "what-if '", text, "': ", message,
      "; expected for example nodes=16,link=25Gbit with the keys ", absl::StrJoin(Keys(), ", ")));
}

absl::StatusOr<std::map<std::string, std::string>> Entries(const std::string& text) {
  std::map<std::string, std::string> entries;
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[1].empty()) {
      return Error(text, absl::StrCat("'", item, "' is not KEY=VALUE"));
    }
    if (std::find(Keys().begin(), Keys().end(), parts[0]) == Keys().end()) {
      return Error(text,
                   absl::StrCat("unknown key '", parts[0], "'", DidYouMean(parts[0], Keys())));
    }
    if (!entries.try_emplace(parts[0], parts[1]).second) {
      return Error(text, absl::StrCat(parts[0], " comes twice"));
    }
  }
  return entries;
}

class Rebuilder {
 public:
  Rebuilder(const ClusterSpec& cluster, const std::string& text,
            std::map<std::string, std::string> entries)
      : cluster_(cluster), text_(text), entries_(std::move(entries)) {}

  absl::StatusOr<ClusterSpec> Run() {
    WEFT_RETURN_IF_ERROR(ReplicateWorkers());
    WEFT_RETURN_IF_ERROR(ReplicateHosts());
    WEFT_RETURN_IF_ERROR(ChangeLinks());
    WEFT_RETURN_IF_ERROR(ChangeWorkers());
    return std::move(result_);
  }

 private:
  const std::string* Find(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }
  absl::StatusOr<int> Count(const std::string& key) const {
    int count = 0;
    const std::string& value = *Find(key);
    if (absl::SimpleAtoi(value, &count) && count >= 1 && count <= kMaxWorkers) return count;
    return Error(
        text_, absl::StrCat(key, " is '", value, "', not a whole number from 1 to ", kMaxWorkers));
  }
  void Add(WorkerSpec worker, const std::string& host) {
    worker.host = host;
    worker.name = absl::StrCat("worker:", result_.workers.size());
    worker.address = absl::StrCat(host, ":", 4000 + result_.workers.size());
    result_.workers.push_back(std::move(worker));
  }

  absl::Status ReplicateWorkers() {
    result_ = cluster_;
    if (Find("workers") == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const int count, Count("workers"));
    result_.workers.clear();
    for (size_t i = 0; i < cluster_.workers.size(); ++i) {
      WorkerSpec worker = cluster_.workers[i];
      if (i > 0 && cluster_.workers[i - 1].host == worker.host) continue;
      for (int copy = 0; copy < count; ++copy) {
        Add(worker, worker.host);
        // Each on a card of its own.
        if (worker.device == DeviceKind::kCuda) ++worker.device_index;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReplicateHosts() {
    if (Find("nodes") == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const int count, Count("nodes"));
    const std::vector<WorkerSpec> workers = std::move(result_.workers);
    result_.workers.clear();
    // Links keep what the first one between two hosts has.
    LinkSpec link = cluster_.links.empty() ? LinkSpec() : cluster_.links.front();
    for (int host = 0; host < count; ++host) {
      const std::string name = absl::StrCat("node", host);
      for (const WorkerSpec& worker : workers) {
        if (worker.host == workers.front().host) Add(worker, name);
      }
    }
    result_.links.clear();
    if (cluster_.links.empty()) return absl::OkStatus();
    return LinkAll(link);
  }

  std::vector<std::string> Hosts() const {
    std::vector<std::string> hosts;
    for (const WorkerSpec& worker : result_.workers) {
      if (std::find(hosts.begin(), hosts.end(), worker.host) == hosts.end()) {
        hosts.push_back(worker.host);
      }
    }
    return hosts;
  }

  absl::Status LinkAll(LinkSpec link) {
    const std::vector<std::string> hosts = Hosts();
    result_.links.clear();
    for (size_t i = 0; i < hosts.size(); ++i) {
      for (size_t j = i + 1; j < hosts.size(); ++j) {
        link.from = hosts[i];
        link.to = hosts[j];
        result_.links.push_back(link);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ChangeLinks() {
    if (Find("link") == nullptr && Find("latency") == nullptr) return absl::OkStatus();
    LinkSpec link = result_.links.empty() ? LinkSpec() : result_.links.front();
    if (const std::string* const text = Find("link")) {
      const std::string unit = absl::StrContains(*text, "/s") ? *text : absl::StrCat(*text, "/s");
      const auto bandwidth = ParseBandwidth(unit);
      if (!bandwidth.ok()) return Error(text_, std::string(bandwidth.status().message()));
      link.bandwidth_bytes_per_second = *bandwidth;
    }
    if (const std::string* const text = Find("latency")) {
      const auto latency = ParseSeconds(*text);
      if (!latency.ok()) return Error(text_, std::string(latency.status().message()));
      link.latency_seconds = *latency;
    }
    return LinkAll(std::move(link));
  }

  absl::Status ChangeWorkers() {
    int64_t memory = 0;
    if (const std::string* const text = Find("memory")) {
      const auto bytes = ParseBytes(*text);
      if (!bytes.ok()) return Error(text_, std::string(bytes.status().message()));
      memory = *bytes;
    }
    for (WorkerSpec& worker : result_.workers) {
      if (memory > 0) worker.memory_bytes = memory;
      if (const std::string* const model = Find("model")) worker.model = *model;
    }
    return absl::OkStatus();
  }

  const ClusterSpec& cluster_;
  const std::string& text_;
  const std::map<std::string, std::string> entries_;
  ClusterSpec result_;
};

}  // namespace

absl::StatusOr<ClusterSpec> ClusterWhatIf(const ClusterSpec& cluster, const std::string& text) {
  WEFT_ASSIGN_OR_RETURN(auto entries, Entries(text));
  if (cluster.workers.empty()) return absl::InvalidArgumentError("the cluster has no workers");
  return Rebuilder(cluster, text, std::move(entries)).Run();
}

}  // namespace weft
