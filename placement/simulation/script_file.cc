#include "placement/simulation/script_file.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "placement/files/yaml_reader.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "platform/text/units.h"

namespace weft {
namespace {

constexpr int64_t kMaxSteps = 1 << 30;

class ScriptReader {
 public:
  ScriptReader(const YamlSource& source, const ClusterSpec& cluster, const StepModel& model)
      : source_(source), cluster_(cluster), model_(model) {
    for (const WorkerSpec& worker : cluster.workers) {
      hosts_.try_emplace(worker.host, static_cast<int32_t>(hosts_.size()));
    }
  }

  absl::StatusOr<SimulationScript> Read(const YAML::Node& root) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map,
                          YamlMap::Read(source_, root, "the script", {"stall_timeout", "changes"}));
    if (map.Find("stall_timeout") != nullptr) {
      double seconds = 0;
      WEFT_RETURN_IF_ERROR(map.Quantity("stall_timeout", ParseSeconds, seconds));
      script_.stall_timeout_seconds = seconds;
    }
    WEFT_ASSIGN_OR_RETURN(const YAML::Node changes, map.Require("changes"));
    if (!changes.IsSequence()) return map.KeyError("changes", "expected a list of changes");
    for (const YAML::Node& change : changes) WEFT_RETURN_IF_ERROR(ReadChange(change));
    return std::move(script_);
  }

 private:
  absl::Status ReadChange(const YAML::Node& node) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map, YamlMap::Read(source_, node, "a change",
                                                           {"at", "step", "worker", "rank", "link",
                                                            "slower", "stops"}));
    ScriptedChange change;
    WEFT_RETURN_IF_ERROR(ReadTime(map, change));
    WEFT_RETURN_IF_ERROR(ReadKind(map, change));
    const int objects = (map.Find("worker") != nullptr) + (map.Find("rank") != nullptr) +
                        (map.Find("link") != nullptr);
    if (objects != 1) {
      return source_.Error(node, "a change needs one of 'worker', 'rank' and 'link'");
    }
    if (map.Find("link") != nullptr) return AddLinks(map, change);
    return map.Find("worker") != nullptr ? AddWorker(map, change) : AddRank(map, change);
  }

  absl::Status ReadTime(const YamlMap& map, ScriptedChange& change) const {
    if ((map.Find("at") != nullptr) == (map.Find("step") != nullptr)) {
      return source_.Error(map.node(), "a change needs either 'at' (a time) or 'step'");
    }
    WEFT_RETURN_IF_ERROR(map.Quantity("at", ParseSeconds, change.at_seconds));
    return map.Int("step", 0, kMaxSteps, change.at_step);
  }

  absl::Status ReadKind(const YamlMap& map, ScriptedChange& change) const {
    bool stops = false;
    WEFT_RETURN_IF_ERROR(map.Bool("stops", stops));
    WEFT_RETURN_IF_ERROR(map.Number("slower", change.factor));
    if (stops == (map.Find("slower") != nullptr)) {
      return source_.Error(map.node(), "a change needs either 'slower' or 'stops: true'");
    }
    if (!(change.factor > 0)) {
      return map.KeyError("slower", "expected a number > 0: how many times the usual time");
    }
    if (stops) change.kind = ScriptedChange::Kind::kRankStops;
    return absl::OkStatus();
  }

  absl::Status AddRank(const YamlMap& map, ScriptedChange change) {
    WEFT_RETURN_IF_ERROR(
        map.Int("rank", 0, static_cast<int64_t>(model_.ranks.size()) - 1, change.index));
    script_.changes.push_back(change);
    return absl::OkStatus();
  }

  absl::Status AddWorker(const YamlMap& map, ScriptedChange change) {
    std::string name;
    WEFT_RETURN_IF_ERROR(map.Text("worker", name));
    std::vector<std::string> names;
    for (const WorkerSpec& worker : cluster_.workers) names.push_back(worker.name);
    const auto worker = std::find(names.begin(), names.end(), name);
    if (worker == names.end()) {
      return map.KeyError("worker", absl::StrCat("the cluster has no worker '", name, "'",
                                                 DidYouMean(name, names)));
    }
    bool runs = false;
    for (size_t rank = 0; rank < model_.ranks.size(); ++rank) {
      if (model_.ranks[rank].worker != worker - names.begin()) continue;
      change.index = static_cast<int32_t>(rank);
      script_.changes.push_back(change);
      runs = true;
    }
    if (runs) return absl::OkStatus();
    return map.KeyError("worker", absl::StrCat("the plan does not use '", name, "'"));
  }

  absl::StatusOr<int32_t> HostOf(const YamlMap& link, const std::string& key) const {
    WEFT_RETURN_IF_ERROR(link.Require(key).status());
    std::string name;
    WEFT_RETURN_IF_ERROR(link.Text(key, name));
    const auto host = hosts_.find(name);
    if (host != hosts_.end()) return host->second;
    std::vector<std::string> names;
    for (const auto& [known, number] : hosts_) names.push_back(known);
    return link.KeyError(
        key, absl::StrCat("the cluster has no host '", name, "'", DidYouMean(name, names)));
  }

  absl::Status AddLinks(const YamlMap& map, ScriptedChange change) {
    if (change.kind == ScriptedChange::Kind::kRankStops) {
      return map.KeyError("stops", "a link can get slower, but not stop");
    }
    change.kind = ScriptedChange::Kind::kLinkSlower;
    WEFT_ASSIGN_OR_RETURN(const YamlMap link,
                          YamlMap::Read(source_, *map.Find("link"), "a link", {"from", "to"}));
    WEFT_ASSIGN_OR_RETURN(const int32_t from, HostOf(link, "from"));
    WEFT_ASSIGN_OR_RETURN(const int32_t to, HostOf(link, "to"));
    bool is_used = false;
    for (size_t i = 0; i < model_.links.size(); ++i) {
      if (model_.links[i].from_host != from || model_.links[i].to_host != to) continue;
      change.index = static_cast<int32_t>(i);
      script_.changes.push_back(change);
      is_used = true;
    }
    if (is_used) return absl::OkStatus();
    return map.KeyError("link", "the plan sends nothing over it");
  }

  const YamlSource& source_;
  const ClusterSpec& cluster_;
  const StepModel& model_;
  std::map<std::string, int32_t> hosts_;  // numbered as the cluster names them first
  SimulationScript script_;
};

}  // namespace

absl::StatusOr<SimulationScript> ParseScriptFile(const std::string& text,
                                                 const std::string& file_name,
                                                 const ClusterSpec& cluster,
                                                 const StepModel& model) {
  const YamlSource source(file_name);
  WEFT_ASSIGN_OR_RETURN(const YAML::Node root, source.Load(text));
  return ScriptReader(source, cluster, model).Read(root);
}

}  // namespace weft
