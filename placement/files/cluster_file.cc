// ClusterSpec from and to YAML. The schema is described in docs/plan-files.md.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "placement/files/plan_file.h"
#include "placement/files/yaml_reader.h"
#include "platform/status_macros.h"
#include "platform/text/units.h"
#include "tensor/device_id.h"

namespace weft {
namespace {

constexpr int64_t kMaxRails = 1023;
constexpr char kAnyHost[] = "*";
constexpr char kWorkerRole[] = "worker";
constexpr char kSpareRole[] = "spare";

// "unix:/path" or "host:port".
absl::Status CheckAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) {
    if (address.size() > 5) return absl::OkStatus();
    return absl::InvalidArgumentError("'unix:' needs the path of a socket, as in unix:/tmp/a");
  }
  const size_t colon = address.rfind(':');
  int port = 0;
  const bool has_port = colon != std::string::npos && colon > 0 &&
                        absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 &&
                        port <= 65535;
  if (has_port) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", address,
                   "' is not an address; expected HOST:PORT with a port from 1 to 65535, or "
                   "unix:PATH"));
}

class ClusterReader {
 public:
  explicit ClusterReader(const YamlSource& source) : source_(source) {}

  absl::StatusOr<ClusterSpec> Read(const YAML::Node& root) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map,
                          YamlMap::Read(source_, root, "the cluster", {"hosts", "links"}));
    WEFT_ASSIGN_OR_RETURN(const YAML::Node hosts, map.Require("hosts"));
    if (!hosts.IsSequence() || hosts.size() == 0) {
      return map.KeyError("hosts", "expected a list of at least one host");
    }
    for (const YAML::Node& host : hosts) WEFT_RETURN_IF_ERROR(ReadHost(host));
    if (const YAML::Node* links = map.Find("links")) {
      if (!links->IsSequence()) return map.KeyError("links", "expected a list of links");
      for (const YAML::Node& link : *links) WEFT_RETURN_IF_ERROR(ReadLink(link));
    }
    if (spec_.workers.empty()) {
      return map.KeyError("hosts", "all workers are spares; expected one that is none");
    }
    if (hosts_.size() > 1) WEFT_RETURN_IF_ERROR(CheckAllHaveAddresses());
    // No plan has a part on a host of spares alone.
    std::erase_if(spec_.links, [this](const LinkSpec& link) {
      return IsOfSpares(link.from) || (!link.to.empty() && IsOfSpares(link.to));
    });
    return std::move(spec_);
  }

 private:
  absl::Status ReadHost(const YAML::Node& node) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map,
                          YamlMap::Read(source_, node, "a host", {"name", "workers"}));
    WEFT_RETURN_IF_ERROR(map.Require("name").status());
    std::string name;
    WEFT_RETURN_IF_ERROR(map.Text("name", name));
    if (!hosts_.insert(name).second) {
      return map.KeyError("name", absl::StrCat("there are two hosts '", name, "'"));
    }
    WEFT_ASSIGN_OR_RETURN(const YAML::Node workers, map.Require("workers"));
    if (!workers.IsSequence() || workers.size() == 0) {
      return map.KeyError("workers", "expected a list of at least one worker");
    }
    for (const YAML::Node& worker : workers) WEFT_RETURN_IF_ERROR(ReadWorker(worker, name));
    return absl::OkStatus();
  }

  absl::Status ReadWorker(const YAML::Node& node, const std::string& host) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map, YamlMap::Read(source_, node, "a worker",
                                                           {"name", "address", "device", "model",
                                                            "memory", "threads", "role"}));
    std::string role = kWorkerRole;
    WEFT_RETURN_IF_ERROR(map.Text("role", role));
    const bool is_spare = role == kSpareRole;
    if (!is_spare && role != kWorkerRole) {
      return map.KeyError("role",
                          absl::StrCat("'", role, "' is no role; expected worker or spare"));
    }
    std::vector<WorkerSpec>& workers = is_spare ? spec_.spares : spec_.workers;
    WorkerSpec worker;
    worker.host = host;
    worker.name = absl::StrCat(role, ":", workers.size());
    WEFT_RETURN_IF_ERROR(map.Text("name", worker.name));
    WEFT_RETURN_IF_ERROR(map.Text("address", worker.address));
    std::string device = "cpu";
    WEFT_RETURN_IF_ERROR(map.Text("device", device));
    const absl::StatusOr<DeviceId> id = ParseDevice(device);
    if (!id.ok()) return map.KeyError("device", std::string(id.status().message()));
    worker.device = id->kind;
    worker.device_index = id->index;
    WEFT_RETURN_IF_ERROR(map.Text("model", worker.model));
    WEFT_RETURN_IF_ERROR(map.Quantity("memory", ParseBytes, worker.memory_bytes));
    WEFT_RETURN_IF_ERROR(map.Int("threads", 1, kMaxWorkerThreads, worker.threads));
    WEFT_RETURN_IF_ERROR(CheckNames(map, worker));
    if (is_spare && worker.address.empty()) {
      return map.KeyError("role", "a spare needs an 'address': it waits there until it is wanted");
    }
    workers.push_back(std::move(worker));
    if (!is_spare) nodes_.push_back(node);
    return absl::OkStatus();
  }

  bool IsOfSpares(const std::string& host) const {
    return host != kAnyHost &&
           std::none_of(spec_.workers.begin(), spec_.workers.end(),
                        [&host](const WorkerSpec& worker) { return worker.host == host; });
  }

  absl::Status CheckNames(const YamlMap& map, const WorkerSpec& worker) {
    if (!worker.address.empty()) {
      if (absl::Status status = CheckAddress(worker.address); !status.ok()) {
        return map.KeyError("address", std::string(status.message()));
      }
    }
    if (!names_.insert(worker.name).second) {
      return map.KeyError("name", absl::StrCat("there are two workers '", worker.name, "'"));
    }
    if (worker.address.empty()) return absl::OkStatus();
    const auto [other, is_new] = by_address_.try_emplace(worker.address, worker.name);
    if (is_new) return absl::OkStatus();
    return map.KeyError("address", absl::StrCat("workers '", other->second, "' and '", worker.name,
                                                "' have the same address '", worker.address, "'"));
  }

  absl::Status ReadLink(const YAML::Node& node) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map, YamlMap::Read(source_, node, "a link",
                                                           {"from", "to", "within", "kind",
                                                            "bandwidth", "latency", "rails"}));
    LinkSpec link;
    WEFT_RETURN_IF_ERROR(ReadEnds(map, link));
    WEFT_RETURN_IF_ERROR(map.Text("kind", link.kind));
    WEFT_RETURN_IF_ERROR(map.Int("rails", 1, kMaxRails, link.rails));
    WEFT_RETURN_IF_ERROR(
        map.Quantity("bandwidth", ParseBandwidth, link.bandwidth_bytes_per_second));
    WEFT_RETURN_IF_ERROR(map.Quantity("latency", ParseSeconds, link.latency_seconds));
    const auto ends = std::minmax(link.from, link.to);
    if (!linked_.insert({ends.first, ends.second}).second) {
      return link.to.empty()
                 ? map.KeyError("within",
                                absl::StrCat("there are two links within '", link.from, "'"))
                 : map.KeyError("from", absl::StrCat("there are two links between '", link.from,
                                                     "' and '", link.to, "'"));
    }
    spec_.links.push_back(std::move(link));
    return absl::OkStatus();
  }

  // `from` and `to`, or `within`: names of hosts, or "*".
  absl::Status ReadEnds(const YamlMap& map, LinkSpec& link) const {
    const bool within = map.Find("within") != nullptr;
    for (const char* end :
         within ? std::vector<const char*>{"within"} : std::vector<const char*>{"from", "to"}) {
      WEFT_RETURN_IF_ERROR(map.Require(end).status());
      std::string& host = end == std::string("to") ? link.to : link.from;
      WEFT_RETURN_IF_ERROR(map.Text(end, host));
      if (host != kAnyHost && !hosts_.contains(host)) {
        return map.KeyError(end, absl::StrCat("there is no host '", host, "'"));
      }
    }
    if (within && (map.Find("from") != nullptr || map.Find("to") != nullptr)) {
      return map.KeyError("within", "a link is within a host, or from one to another");
    }
    if (!within && (link.from == kAnyHost) != (link.to == kAnyHost)) {
      return map.KeyError("from", "'*' stands for all hosts on both ends");
    }
    return absl::OkStatus();
  }

  // With several hosts we cannot choose the sockets.
  absl::Status CheckAllHaveAddresses() const {
    for (size_t i = 0; i < spec_.workers.size(); ++i) {
      if (!spec_.workers[i].address.empty()) continue;
      return source_.Error(nodes_[i], absl::StrCat("worker '", spec_.workers[i].name,
                                                   "' has no 'address'; with several hosts each "
                                                   "worker needs one"));
    }
    return absl::OkStatus();
  }

  const YamlSource& source_;
  ClusterSpec spec_;
  std::vector<YAML::Node> nodes_;  // of the workers
  std::set<std::string> hosts_;
  std::set<std::string> names_;
  std::map<std::string, std::string> by_address_;  // worker's name
  std::set<std::pair<std::string, std::string>> linked_;
};

void EmitWorker(const WorkerSpec& worker, bool is_spare, YAML::Emitter& out) {
  out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << worker.name;
  if (!worker.address.empty()) out << YAML::Key << "address" << YAML::Value << worker.address;
  const bool is_cpu = worker.device == DeviceKind::kCpu;
  const std::string device = is_cpu && worker.device_index == 0
                                 ? "cpu"
                                 : absl::StrCat(is_cpu ? "cpu:" : "cuda:", worker.device_index);
  out << YAML::Key << "device" << YAML::Value << device;
  if (!worker.model.empty()) out << YAML::Key << "model" << YAML::Value << worker.model;
  if (worker.memory_bytes > 0) {
    out << YAML::Key << "memory" << YAML::Value << BytesToString(worker.memory_bytes);
  }
  if (worker.threads > 0) out << YAML::Key << "threads" << YAML::Value << worker.threads;
  if (is_spare) out << YAML::Key << "role" << YAML::Value << kSpareRole;
  out << YAML::EndMap;
}

// Those of the host that are not written yet.
void EmitSpares(const std::string& host, std::vector<WorkerSpec>& spares, YAML::Emitter& out) {
  for (const WorkerSpec& spare : spares) {
    if (spare.host == host) EmitWorker(spare, /*is_spare=*/true, out);
  }
  std::erase_if(spares, [&host](const WorkerSpec& spare) { return spare.host == host; });
}

void BeginHost(const std::string& name, YAML::Emitter& out) {
  out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << name;
  out << YAML::Key << "workers" << YAML::Value << YAML::BeginSeq;
}

void EmitLink(const LinkSpec& link, YAML::Emitter& out) {
  out << YAML::BeginMap << YAML::Key << (link.to.empty() ? "within" : "from") << YAML::Value
      << link.from;
  if (!link.to.empty()) out << YAML::Key << "to" << YAML::Value << link.to;
  if (!link.kind.empty()) out << YAML::Key << "kind" << YAML::Value << link.kind;
  if (link.rails > 0) out << YAML::Key << "rails" << YAML::Value << link.rails;
  if (link.bandwidth_bytes_per_second > 0) {
    out << YAML::Key << "bandwidth" << YAML::Value
        << BandwidthToString(link.bandwidth_bytes_per_second);
  }
  if (link.latency_seconds > 0) {
    out << YAML::Key << "latency" << YAML::Value << SecondsToString(link.latency_seconds);
  }
  out << YAML::EndMap;
}

}  // namespace

absl::StatusOr<ClusterSpec> ParseClusterFile(const std::string& text,
                                             const std::string& file_name) {
  const YamlSource source(file_name);
  WEFT_ASSIGN_OR_RETURN(const YAML::Node root, source.Load(text));
  return ClusterReader(source).Read(root);
}

std::string ClusterToYaml(const ClusterSpec& cluster) {
  YAML::Emitter out;
  std::vector<WorkerSpec> spares = cluster.spares;
  out << YAML::BeginMap << YAML::Key << "hosts" << YAML::Value << YAML::BeginSeq;
  // Workers of one host stand together; the file keeps their order only if they are neighbours.
  for (size_t i = 0; i < cluster.workers.size();) {
    const std::string& host = cluster.workers[i].host;
    BeginHost(host, out);
    for (; i < cluster.workers.size() && cluster.workers[i].host == host; ++i) {
      EmitWorker(cluster.workers[i], /*is_spare=*/false, out);
    }
    EmitSpares(host, spares, out);
    out << YAML::EndSeq << YAML::EndMap;
  }
  while (!spares.empty()) {
    const std::string host = spares.front().host;
    BeginHost(host, out);
    EmitSpares(host, spares, out);
    out << YAML::EndSeq << YAML::EndMap;
  }
  out << YAML::EndSeq;
  if (!cluster.links.empty()) {
    out << YAML::Key << "links" << YAML::Value << YAML::BeginSeq;
    for (const LinkSpec& link : cluster.links) EmitLink(link, out);
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace weft
