#include "training/job/partition_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "distributed/grpc/partition_files.h"
#include "nlohmann/json.hpp"
#include "placement/files/plan_file.h"
#include "placement/partition/partition_check.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using OrderedJson = nlohmann::ordered_json;
using SortedJson = nlohmann::json;

constexpr char kFormat[] = "weft-partitions";
constexpr int64_t kFormatVersion = 1;
constexpr char kIndexName[] = "job.json";
constexpr char kPlanName[] = "plan.yaml";
constexpr char kRankPrefix[] = "rank-";
constexpr int64_t kMaxWorkers = int64_t{1} << 20;

std::string PathOf(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

// "train-128" of "train/128".
std::string FolderOf(const std::string& program) {
  return absl::StrReplaceAll(program, {{"/", "-"}});
}

std::string IndexText(const StoredPrograms& stored) {
  OrderedJson json = {
      {"format", kFormat}, {"version", kFormatVersion}, {"workers", stored.workers}};
  if (stored.evaluation_digest != 0) {
    json["evaluation_digest"] = absl::StrFormat("%016x", stored.evaluation_digest);
  }
  json["flags"] = OrderedJson::object();
  for (const auto& [flag, values] : stored.flags) json["flags"][flag] = values.Text();
  json["programs"] = OrderedJson::array();
  for (const JobProgram& program : stored.programs) json["programs"].push_back(program.name);
  return absl::StrCat(json.dump(2, ' ', false, OrderedJson::error_handler_t::replace), "\n");
}

// Reads job.json.
class IndexReader {
 public:
  explicit IndexReader(std::string path) : path_(std::move(path)) {}

  absl::Status Read(const std::string& text, StoredPrograms& stored) const {
    const absl::Status within = CheckJsonLimits(text);
    if (!within.ok()) return Bad(absl::StrCat("it is ", within.message()));
    const SortedJson json = SortedJson::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return Bad("it is no JSON object");
    if (!json.contains("format") || json["format"] != kFormat) {
      return Bad(absl::StrCat("'format' is not \"", kFormat, "\""));
    }
    WEFT_ASSIGN_OR_RETURN(const int64_t version, Number(json, "version", kMaxWorkers));
    if (version != kFormatVersion) {
      return Bad(absl::StrCat("its version is ", version, ", this program reads ", kFormatVersion,
                              ": dump the partitions anew"));
    }
    WEFT_ASSIGN_OR_RETURN(const int64_t workers, Number(json, "workers", kMaxWorkers));
    stored.workers = static_cast<int>(workers);
    WEFT_RETURN_IF_ERROR(ReadDigest(json, stored.evaluation_digest));
    WEFT_RETURN_IF_ERROR(ReadFlags(json, stored.flags));
    return ReadPrograms(json, stored.programs);
  }

 private:
  absl::Status Bad(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }

  absl::StatusOr<int64_t> Number(const SortedJson& json, const char* key, int64_t max_value) const {
    if (json.contains(key) && json[key].is_number_unsigned()) {
      const auto number = json[key].get<uint64_t>();
      if (number >= 1 && number <= static_cast<uint64_t>(max_value)) {
        return static_cast<int64_t>(number);
      }
    }
    return Bad(absl::StrCat("'", key, "' is missing, or no number from 1 to ", max_value));
  }

  absl::Status ReadDigest(const SortedJson& json, uint64_t& digest) const {
    if (!json.contains("evaluation_digest")) return absl::OkStatus();
    const SortedJson& value = json["evaluation_digest"];
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    if (text.size() == 16 && absl::SimpleHexAtoi(text, &digest)) return absl::OkStatus();
    return Bad("'evaluation_digest' is no text of 16 hexadecimal digits");
  }

  absl::Status ReadFlags(const SortedJson& json, FlagRecord& flags) const {
    if (!json.contains("flags")) return absl::OkStatus();
    if (!json["flags"].is_object()) return Bad("'flags' is no object of texts");
    for (const auto& [name, value] : json["flags"].items()) {
      if (!value.is_string()) return Bad(absl::StrCat("flag '", name, "' is no text"));
      flags[name] = FlagValues::OfJoined(value.get<std::string>());
    }
    return absl::OkStatus();
  }

  absl::Status ReadPrograms(const SortedJson& json, std::vector<JobProgram>& programs) const {
    if (!json.contains("programs") || !json["programs"].is_array()) {
      return Bad("'programs' is missing, or no list");
    }
    for (const SortedJson& entry : json["programs"]) {
      const std::string name = entry.is_string() ? entry.get<std::string>() : "";
      const absl::StatusOr<ProgramKey> key = ParseProgramName(name);
      if (!key.ok()) return Annotate(key.status(), path_);
      const bool is_double =
          std::any_of(programs.begin(), programs.end(),
                      [&name](const JobProgram& other) { return other.name == name; });
      if (is_double) return Bad(absl::StrCat("program ", name, " is there twice"));
      programs.push_back({name, key->shape, {}});
    }
    if (programs.empty()) return Bad("'programs' is empty");
    return absl::OkStatus();
  }

  const std::string path_;
};

// Whether a program's folder has those of the ranks, and of no more.
absl::Status CheckRanks(FileSystem& files, const std::string& folder, const Mesh& mesh) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(folder));
  int rank_folders = 0;
  for (const std::string& name : names) rank_folders += absl::StartsWith(name, kRankPrefix) ? 1 : 0;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const std::string name = absl::StrCat(kRankPrefix, rank);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(PathOf(folder, name), " is missing: the plan ",
                                                   mesh.ToString(), " has ", mesh.size(),
                                                   " ranks"));
  }
  if (rank_folders == mesh.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(folder, " has folders of ", rank_folders,
                                                 " ranks, the plan ", mesh.ToString(), " has ",
                                                 mesh.size(), ": remove those of another dump"));
}

absl::Status CheckPartition(const Partition& partition, const Plan& plan, const ProgramKey& key,
                            int rank) {
  const auto differs = [](const char* field, const std::string& is, const std::string& expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("its ", field, " is ", is, ", expected ", expected));
  };
  if (partition.rank.value != rank) {
    return differs("rank", absl::StrCat(partition.rank.value),
                   absl::StrCat(rank, ", as the folder"));
  }
  if (!(partition.mesh == plan.mesh)) {
    return differs("mesh", partition.mesh.ToString(),
                   absl::StrCat(plan.mesh.ToString(), ", as the plan"));
  }
  if (partition.global_batch != key.shape.batch) {
    return differs("global_batch", absl::StrCat(partition.global_batch),
                   absl::StrCat(key.shape.batch, ", as the program"));
  }
  if (partition.training != (key.kind == kTrainingSteps)) {
    return differs("training", partition.training ? "true" : "false",
                   absl::StrCat("that of a program ", key.kind));
  }
  if (partition.strict != plan.strict) {
    return differs("strict", partition.strict ? "true" : "false", "that of the plan");
  }
  return absl::OkStatus();
}

// Whether all ranks of a program go together: what a partitioner promises of its own partitions,
// for those that may have been edited.
absl::Status CheckTogether(const std::vector<Partition>& partitions) {
  const absl::Status status = CheckPartitions(partitions);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(std::string(status.message()));
}

absl::StatusOr<std::vector<Partition>> ReadPartitions(FileSystem& files, const std::string& folder,
                                                      const Plan& plan, const ProgramKey& key) {
  WEFT_RETURN_IF_ERROR(CheckRanks(files, folder, plan.mesh));
  std::vector<Partition> partitions;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    const std::string rank_folder = PathOf(folder, absl::StrCat(kRankPrefix, rank));
    WEFT_ASSIGN_OR_RETURN(Partition partition, ReadPartitionFiles(files, rank_folder));
    const std::string text = PathOf(rank_folder, kPartitionTextName);
    WEFT_RETURN_IF_ERROR(Annotate(CheckPartition(partition, plan, key, rank), text));
    partitions.push_back(std::move(partition));
  }
  WEFT_RETURN_IF_ERROR(Annotate(CheckTogether(partitions), folder));
  return partitions;
}

absl::Status CheckPlan(const Plan& plan, int workers) {
  const auto is_there = [workers](int worker) { return worker < workers; };
  if (static_cast<int>(plan.workers.size()) == plan.mesh.size() &&
      std::all_of(plan.workers.begin(), plan.workers.end(), is_there)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("'workers' does not name one of the ", workers,
                                                 " workers of ", kIndexName, " for each of the ",
                                                 plan.mesh.size(), " ranks"));
}

}  // namespace

absl::StatusOr<int> WritePartitionFolder(FileSystem& files, const std::string& folder,
                                         const StoredPrograms& stored) {
  WEFT_RETURN_IF_ERROR(files.CreateDirectories(folder));
  const std::string index = PathOf(folder, kIndexName);
  if (files.Exists(index)) WEFT_RETURN_IF_ERROR(files.RemoveFile(index));
  WEFT_RETURN_IF_ERROR(
      files.WriteFileAtomically(PathOf(folder, kPlanName), PlanToYaml(stored.plan)));
  int written = 2;
  for (const JobProgram& program : stored.programs) {
    for (const Partition& partition : program.partitions) {
      const std::string rank_folder =
          absl::StrCat(folder, "/", FolderOf(program.name), "/", kRankPrefix, partition.rank.value);
      WEFT_ASSIGN_OR_RETURN(const int more, WritePartitionFiles(files, rank_folder, partition));
      written += more;
    }
  }
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(index, IndexText(stored)));
  return written;
}

absl::StatusOr<StoredPrograms> ReadPartitionFolder(FileSystem& files, const std::string& folder) {
  StoredPrograms stored;
  stored.folder = folder;
  const std::string index = PathOf(folder, kIndexName);
  WEFT_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(index));
  WEFT_RETURN_IF_ERROR(IndexReader(index).Read(text, stored));
  const std::string plan = PathOf(folder, kPlanName);
  WEFT_ASSIGN_OR_RETURN(const std::string plan_text, files.ReadFile(plan));
  WEFT_ASSIGN_OR_RETURN(stored.plan, ParsePlanFile(plan_text, plan));
  WEFT_RETURN_IF_ERROR(Annotate(CheckPlan(stored.plan, stored.workers), plan));
  for (JobProgram& program : stored.programs) {
    WEFT_ASSIGN_OR_RETURN(const ProgramKey key, ParseProgramName(program.name));
    WEFT_ASSIGN_OR_RETURN(
        program.partitions,
        ReadPartitions(files, PathOf(folder, FolderOf(program.name)), stored.plan, key));
  }
  return stored;
}

absl::StatusOr<FlagRecord> ReadPartitionFlags(FileSystem& files, const std::string& folder) {
  StoredPrograms stored;
  const std::string index = PathOf(folder, kIndexName);
  WEFT_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(index));
  WEFT_RETURN_IF_ERROR(IndexReader(index).Read(text, stored));
  return std::move(stored.flags);
}

}  // namespace weft
