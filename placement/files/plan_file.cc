// Plan from and to YAML. The schema is described in docs/plan-files.md.
#include "placement/files/plan_file.h"

#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/schedule/action_list.h"
#include "placement/files/yaml_reader.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/units.h"

namespace weft {
namespace {

constexpr int64_t kMaxRanks = 1 << 16;
constexpr int64_t kMaxMicroBatches = 1 << 16;
constexpr int64_t kMaxChunks = 1024;
constexpr int64_t kMaxSegments = 1 << 16;

std::string DigestToString(uint64_t digest) {
  return absl::StrCat(absl::Hex(digest, absl::kZeroPad16));
}

absl::StatusOr<uint64_t> ParseDigest(const std::string& text) {
  uint64_t digest = 0;
  if (text.size() == 16 && absl::SimpleHexAtoi(text, &digest)) return digest;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a digest of 16 hexadecimal digits"));
}

absl::StatusOr<Reduction> ParseReduction(const std::string& text) {
  if (text == "unordered") return Reduction::kUnordered;
  if (text == "ordered_tree") return Reduction::kOrderedTree;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a reduction; expected unordered or ordered_tree",
                   text == "ring" ? " ('ring' is now called unordered)" : ""));
}

absl::StatusOr<std::string> ParseSchedule(const std::string& text) {
  WEFT_RETURN_IF_ERROR(CheckScheduleName(text));
  return text;
}

class PlanReader {
 public:
  explicit PlanReader(const YamlSource& source) : source_(source) {}

  absl::StatusOr<Plan> Read(const YAML::Node& root) {
    WEFT_ASSIGN_OR_RETURN(const YamlMap map, YamlMap::Read(source_, root, "the plan", Keys()));
    WEFT_RETURN_IF_ERROR(
        map.Int("version", Plan::kSchemaVersion, Plan::kSchemaVersion, plan_.schema_version));
    WEFT_RETURN_IF_ERROR(map.Quantity("model_digest", ParseDigest, plan_.model_digest));
    WEFT_RETURN_IF_ERROR(map.Quantity("cluster_digest", ParseDigest, plan_.cluster_digest));
    WEFT_RETURN_IF_ERROR(map.Int("micro_batches", 1, kMaxMicroBatches, plan_.micro_batches));
    WEFT_RETURN_IF_ERROR(map.Bool("whole_batch", plan_.whole_batch));
    WEFT_RETURN_IF_ERROR(map.Quantity("schedule", ParseSchedule, plan_.schedule));
    WEFT_RETURN_IF_ERROR(map.Int("chunks", 1, kMaxChunks, plan_.chunks));
    if (const absl::Status fits = CheckSchedule(plan_.schedule, plan_.chunks); !fits.ok()) {
      return map.KeyError(map.Find("chunks") != nullptr ? "chunks" : "schedule",
                          std::string(fits.message()));
    }
    WEFT_RETURN_IF_ERROR(map.Bool("strict", plan_.strict));
    if (plan_.strict) plan_.reduction = Reduction::kOrderedTree;
    WEFT_RETURN_IF_ERROR(map.Quantity("reduction", ParseReduction, plan_.reduction));
    if (plan_.strict && plan_.reduction != Reduction::kOrderedTree) {
      return map.KeyError("reduction", "a strict plan needs ordered_tree");
    }
    WEFT_RETURN_IF_ERROR(map.Bool("tf32", plan_.tf32));
    WEFT_RETURN_IF_ERROR(ReadHostOps(map));
    WEFT_RETURN_IF_ERROR(map.Int("zero", 0, 3, plan_.zero));
    WEFT_RETURN_IF_ERROR(map.Quantity("bucket", ParseBytes, plan_.bucket_bytes));
    WEFT_RETURN_IF_ERROR(ReadMesh(map));
    WEFT_RETURN_IF_ERROR(ReadThreads(map));
    WEFT_RETURN_IF_ERROR(ReadWorkers(map));
    WEFT_RETURN_IF_ERROR(ReadShares(map));
    WEFT_RETURN_IF_ERROR(ReadStages(map));
    WEFT_RETURN_IF_ERROR(ReadShardings(map));
    WEFT_RETURN_IF_ERROR(ReadRecompute(map));
    WEFT_RETURN_IF_ERROR(ReadTexts(map, "zero_replicated", plan_.zero_replicated));
    WEFT_RETURN_IF_ERROR(ReadTexts(map, "pin", plan_.pins));
    WEFT_RETURN_IF_ERROR(ReadPrediction(map));
    return std::move(plan_);
  }

 private:
  static std::vector<std::string> Keys() {
    return {"version",          "model_digest",  "cluster_digest", "mesh",
            "workers",          "micro_batches", "shares",         "whole_batch",
            "schedule",         "chunks",        "reduction",      "strict",
            "bucket",           "threads",       "stages",         "pin",
            "tensor_shardings", "recompute",     "zero",           "zero_replicated",
            "prediction",       "tf32",          "host_ops"};
  }

  absl::Status ReadMesh(const YamlMap& map) {
    const YAML::Node* node = map.Find("mesh");
    if (node == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const YamlMap mesh, YamlMap::Read(source_, *node, "the mesh",
                                                            {"data", "tensor", "pipeline"}));
    WEFT_RETURN_IF_ERROR(mesh.Int("data", 1, kMaxRanks, plan_.mesh.data));
    WEFT_RETURN_IF_ERROR(mesh.Int("tensor", 1, kMaxRanks, plan_.mesh.tensor));
    WEFT_RETURN_IF_ERROR(mesh.Int("pipeline", 1, kMaxRanks, plan_.mesh.pipeline));
    const int64_t ranks = int64_t{plan_.mesh.data} * plan_.mesh.tensor * plan_.mesh.pipeline;
    if (ranks <= kMaxRanks) return absl::OkStatus();
    return map.KeyError("mesh", absl::StrCat(ranks, " ranks are more than ", kMaxRanks));
  }

  absl::Status ReadWorkers(const YamlMap& map) {
    const YAML::Node* node = map.Find("workers");
    if (node == nullptr) return absl::OkStatus();
    if (!node->IsSequence()) return map.KeyError("workers", "expected a list of worker numbers");
    for (const YAML::Node& item : *node) {
      WEFT_ASSIGN_OR_RETURN(const int64_t worker,
                            ReadInteger(source_, item, "a worker", 0, kMaxRanks));
      for (int other : plan_.workers) {
        if (other != worker) continue;
        return source_.Error(item, absl::StrCat("worker ", worker, " is there twice"));
      }
      plan_.workers.push_back(static_cast<int>(worker));
    }
    const int ranks = plan_.mesh.size();
    if (static_cast<int>(plan_.workers.size()) == ranks) return absl::OkStatus();
    return map.KeyError("workers", absl::StrCat("there are ", plan_.workers.size(), " workers for ",
                                                ranks, " ranks (", plan_.mesh.ToString(), ")"));
  }

  // A number, or one for each rank.
  absl::Status ReadThreads(const YamlMap& map) {
    const YAML::Node* node = map.Find("threads");
    if (node == nullptr) return absl::OkStatus();
    if (!node->IsSequence()) {
      return map.Int("threads", 1, kMaxWorkerThreads, plan_.threads_per_worker);
    }
    for (const YAML::Node& item : *node) {
      WEFT_ASSIGN_OR_RETURN(const int64_t threads, ReadInteger(source_, item, "a number of threads",
                                                               1, kMaxWorkerThreads));
      plan_.rank_threads.push_back(static_cast<int>(threads));
    }
    if (static_cast<int>(plan_.rank_threads.size()) == plan_.mesh.size()) {
      plan_.threads_per_worker =
          *std::min_element(plan_.rank_threads.begin(), plan_.rank_threads.end());
      return absl::OkStatus();
    }
    return map.KeyError("threads",
                        absl::StrCat("there are numbers of threads for ", plan_.rank_threads.size(),
                                     " of ", plan_.mesh.size(), " ranks"));
  }

  absl::Status ReadShares(const YamlMap& map) {
    const YAML::Node* node = map.Find("shares");
    if (node == nullptr) return absl::OkStatus();
    if (!node->IsSequence()) return map.KeyError("shares", "expected a list of numbers");
    for (const YAML::Node& item : *node) {
      WEFT_ASSIGN_OR_RETURN(const int64_t share,
                            ReadInteger(source_, item, "a share", 1, kMaxMicroBatches));
      plan_.shares.push_back(static_cast<int>(share));
    }
    if (static_cast<int>(plan_.shares.size()) == plan_.mesh.data) return absl::OkStatus();
    return map.KeyError("shares", absl::StrCat("there are ", plan_.shares.size(), " shares for ",
                                               plan_.mesh.data, " data-parallel replicas"));
  }

  absl::Status ReadHostOps(const YamlMap& map) {
    const YAML::Node* node = map.Find("host_ops");
    if (node == nullptr) return absl::OkStatus();
    if (!node->IsSequence()) return map.KeyError("host_ops", "expected a list of operators");
    for (const YAML::Node& item : *node) {
      WEFT_ASSIGN_OR_RETURN(plan_.host_ops.emplace_back(),
                            ReadText(source_, item, "an operator of 'host_ops'"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadStages(const YamlMap& map) {
    const YAML::Node* node = map.Find("stages");
    if (node == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries,
                          ReadEntries(source_, *node, "'stages'"));
    for (const YamlEntry& entry : entries) {
      WEFT_ASSIGN_OR_RETURN(
          const int64_t stage,
          ReadInteger(source_, entry.value, absl::StrCat("the stage of '", entry.key, "'"), 0,
                      plan_.num_stages() - 1));
      plan_.stages[entry.key] = static_cast<int>(stage);
    }
    return absl::OkStatus();
  }

  absl::Status ReadShardings(const YamlMap& map) {
    const YAML::Node* node = map.Find("tensor_shardings");
    if (node == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries,
                          ReadEntries(source_, *node, "'tensor_shardings'"));
    for (const YamlEntry& entry : entries) {
      const std::string what = absl::StrCat("the sharding of '", entry.key, "'");
      WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(source_, entry.value, what));
      const absl::StatusOr<AxisSharding> sharding = AxisSharding::Parse(text);
      if (!sharding.ok()) {
        return source_.Error(entry.value, absl::StrCat(what, ": ", sharding.status().message()));
      }
      plan_.tensor_shardings[entry.key] = *sharding;
    }
    return absl::OkStatus();
  }

  absl::Status ReadSegmentCount(const YAML::Node& node) {
    const std::string text = node.Scalar();
    int& count = plan_.recompute_segments;
    if (text == "all") {
      count = 1;
      return absl::OkStatus();
    }
    if (absl::SimpleAtoi(text, &count) && count >= 0 && count <= kMaxSegments) {
      return absl::OkStatus();
    }
    return source_.Error(
        node,
        absl::StrCat("'recompute' is '", text,
                     "'; expected all, a number of segments, a list of patterns or a map from "
                     "patterns to segments"));
  }

  absl::Status ReadRecompute(const YamlMap& map) {
    const YAML::Node* node = map.Find("recompute");
    if (node == nullptr) return absl::OkStatus();
    if (node->IsScalar()) return ReadSegmentCount(*node);
    if (node->IsSequence()) {
      for (const YAML::Node& item : *node) {
        WEFT_ASSIGN_OR_RETURN(const std::string pattern,
                              ReadText(source_, item, "a recomputed segment's pattern"));
        plan_.recompute[pattern] = SegmentOfPattern(pattern);
      }
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries,
                          ReadEntries(source_, *node, "'recompute'"));
    for (const YamlEntry& entry : entries) {
      WEFT_ASSIGN_OR_RETURN(
          plan_.recompute[entry.key],
          ReadText(source_, entry.value, absl::StrCat("the segment of '", entry.key, "'")));
    }
    return absl::OkStatus();
  }

  absl::Status ReadTexts(const YamlMap& map, const std::string& key,
                         std::map<std::string, std::string>& target) {
    const YAML::Node* node = map.Find(key);
    if (node == nullptr) return absl::OkStatus();
    const std::string what = absl::StrCat("'", key, "'");
    WEFT_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries, ReadEntries(source_, *node, what));
    for (const YamlEntry& entry : entries) {
      WEFT_ASSIGN_OR_RETURN(
          target[entry.key],
          ReadText(source_, entry.value, absl::StrCat(what, " of '", entry.key, "'")));
    }
    return absl::OkStatus();
  }

  absl::Status ReadBytesPerRank(const YamlMap& map, const std::string& key,
                                std::vector<int64_t>& target) {
    const YAML::Node* node = map.Find(key);
    if (node == nullptr) return absl::OkStatus();
    if (!node->IsSequence()) return map.KeyError(key, "expected a list of bytes, one per rank");
    for (const YAML::Node& item : *node) {
      WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(source_, item, key));
      const absl::StatusOr<int64_t> bytes = ParseBytes(text);
      if (!bytes.ok()) return source_.Error(item, std::string(bytes.status().message()));
      target.push_back(*bytes);
    }
    return absl::OkStatus();
  }

  absl::Status ReadPrediction(const YamlMap& map) {
    const YAML::Node* node = map.Find("prediction");
    if (node == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const YamlMap prediction,
                          YamlMap::Read(source_, *node, "the prediction",
                                        {"step", "compute", "communication", "bubble", "calibrated",
                                         "memory", "sent"}));
    Prediction& target = plan_.prediction;
    WEFT_RETURN_IF_ERROR(prediction.Quantity("step", ParseSeconds, target.step_seconds));
    WEFT_RETURN_IF_ERROR(prediction.Quantity("compute", ParseSeconds, target.compute_seconds));
    WEFT_RETURN_IF_ERROR(
        prediction.Quantity("communication", ParseSeconds, target.communication_seconds));
    WEFT_RETURN_IF_ERROR(prediction.Number("bubble", target.bubble_fraction));
    WEFT_RETURN_IF_ERROR(prediction.Bool("calibrated", target.calibrated));
    WEFT_RETURN_IF_ERROR(ReadBytesPerRank(prediction, "memory", target.memory_bytes));
    return ReadBytesPerRank(prediction, "sent", target.bytes_per_step);
  }

  const YamlSource& source_;
  Plan plan_;
};

void EmitBytes(const char* key, const std::vector<int64_t>& bytes, YAML::Emitter& out) {
  if (bytes.empty()) return;
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
  for (int64_t value : bytes) out << BytesToString(value);
  out << YAML::EndSeq;
}

void EmitPrediction(const Prediction& prediction, YAML::Emitter& out) {
  out << YAML::Key << "prediction" << YAML::Value << YAML::BeginMap;
  const std::array<std::pair<const char*, double>, 3> times = {
      {{"step", prediction.step_seconds},
       {"compute", prediction.compute_seconds},
       {"communication", prediction.communication_seconds}}};
  for (const auto& [key, seconds] : times) {
    out << YAML::Key << key << YAML::Value << SecondsToString(seconds);
  }
  out << YAML::Key << "bubble" << YAML::Value << prediction.bubble_fraction;
  out << YAML::Key << "calibrated" << YAML::Value << prediction.calibrated;
  EmitBytes("memory", prediction.memory_bytes, out);
  EmitBytes("sent", prediction.bytes_per_step, out);
  out << YAML::EndMap;
}

void EmitTexts(const char* key, const std::map<std::string, std::string>& texts,
               YAML::Emitter& out) {
  if (texts.empty()) return;
  out << YAML::Key << key << YAML::Value << YAML::BeginMap;
  for (const auto& [name, text] : texts) {
    out << YAML::Key << name << YAML::Value << YAML::DoubleQuoted << text;
  }
  out << YAML::EndMap;
}

void EmitMesh(const Mesh& mesh, YAML::Emitter& out) {
  out << YAML::Key << "mesh" << YAML::Value << YAML::Flow << YAML::BeginMap;
  out << YAML::Key << "data" << YAML::Value << mesh.data;
  out << YAML::Key << "tensor" << YAML::Value << mesh.tensor;
  out << YAML::Key << "pipeline" << YAML::Value << mesh.pipeline << YAML::EndMap;
}

}  // namespace

absl::StatusOr<Plan> ParsePlanFile(const std::string& text, const std::string& file_name) {
  const YamlSource source(file_name);
  WEFT_ASSIGN_OR_RETURN(const YAML::Node root, source.Load(text));
  return PlanReader(source).Read(root);
}

std::string PlanToYaml(const Plan& plan) {
  YAML::Emitter out;
  out.SetDoublePrecision(17);
  out << YAML::BeginMap << YAML::Key << "version" << YAML::Value << plan.schema_version;
  if (plan.model_digest != 0) {
    out << YAML::Key << "model_digest" << YAML::Value << YAML::DoubleQuoted
        << DigestToString(plan.model_digest);
  }
  if (plan.cluster_digest != 0) {
    out << YAML::Key << "cluster_digest" << YAML::Value << YAML::DoubleQuoted
        << DigestToString(plan.cluster_digest);
  }
  EmitMesh(plan.mesh, out);
  if (!plan.workers.empty()) {
    out << YAML::Key << "workers" << YAML::Value << YAML::Flow << plan.workers;
  }
  out << YAML::Key << "micro_batches" << YAML::Value << plan.micro_batches;
  if (!plan.shares.empty()) {
    out << YAML::Key << "shares" << YAML::Value << YAML::Flow << plan.shares;
  }
  if (plan.whole_batch) out << YAML::Key << "whole_batch" << YAML::Value << true;
  out << YAML::Key << "schedule" << YAML::Value << plan.schedule;
  if (plan.chunks > 1) out << YAML::Key << "chunks" << YAML::Value << plan.chunks;
  out << YAML::Key << "reduction" << YAML::Value
      << (plan.reduction == Reduction::kUnordered ? "unordered" : "ordered_tree");
  out << YAML::Key << "strict" << YAML::Value << plan.strict;
  if (plan.tf32) out << YAML::Key << "tf32" << YAML::Value << true;
  if (!plan.host_ops.empty()) {
    out << YAML::Key << "host_ops" << YAML::Value << YAML::Flow << YAML::BeginSeq;
    for (const std::string& op : plan.host_ops) out << YAML::DoubleQuoted << op;
    out << YAML::EndSeq;
  }
  out << YAML::Key << "bucket" << YAML::Value << BytesToString(plan.bucket_bytes);
  out << YAML::Key << "threads" << YAML::Value;
  if (plan.rank_threads.empty()) {
    out << plan.threads_per_worker;
  } else {
    out << YAML::Flow << plan.rank_threads;
  }
  if (!plan.stages.empty()) out << YAML::Key << "stages" << YAML::Value << plan.stages;
  EmitTexts("pin", plan.pins, out);
  if (!plan.tensor_shardings.empty()) {
    out << YAML::Key << "tensor_shardings" << YAML::Value << YAML::BeginMap;
    for (const auto& [name, sharding] : plan.tensor_shardings) {
      out << YAML::Key << name << YAML::Value << sharding.ToString();
    }
    out << YAML::EndMap;
  }
  if (plan.recompute_segments > 0) {
    out << YAML::Key << "recompute" << YAML::Value << plan.recompute_segments;
  } else if (!plan.recompute.empty()) {
    out << YAML::Key << "recompute" << YAML::Value << plan.recompute;
  }
  if (plan.zero > 0) out << YAML::Key << "zero" << YAML::Value << plan.zero;
  EmitTexts("zero_replicated", plan.zero_replicated, out);
  if (plan.prediction.step_seconds > 0) EmitPrediction(plan.prediction, out);
  out << YAML::EndMap;
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace weft
