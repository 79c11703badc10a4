#include "training/job/stored_programs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "placement/graph_views/graph_digest.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "training/job/cpu_fallback.h"

namespace weft {
namespace {

absl::Status Misfit(const StoredPrograms& stored, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("the partitions in '", stored.folder, "' ", what));
}

absl::Status CheckGraph(const JobSpec& spec, const std::string& kind, const Graph& graph) {
  const StoredPrograms& stored = *spec.stored;
  const bool trains = kind == kTrainingSteps;
  const uint64_t expected = trains ? stored.plan.model_digest : stored.evaluation_digest;
  if (expected == 0 && !trains) {
    return Misfit(stored,
                  "have no programs of an evaluation; dump them with the same --eval-every, "
                  "--eval-data and --eval-labels, or leave the evaluation out");
  }
  const uint64_t digest = GraphDigest(graph);
  if (digest == expected) return absl::OkStatus();
  std::string reason = absl::StrJoin(FlagDifferences(stored.flags, spec.given_flags), "; ");
  if (reason.empty()) {
    reason = trains ? "the flags are the same: the model or the shapes of the data differ"
                    : "the flags of training are the same: the model, --eval-metric, --eval-ema or "
                      "the shapes of the data differ";
  }
  return Misfit(
      stored,
      absl::StrFormat("were made for another %s: its digest is %016x, that of this one is %016x "
                      "(%s); give the same model, data and flags, or dump them anew",
                      trains ? "training step" : "evaluation", expected, digest, reason));
}

absl::Status CheckVariables(const Graph& graph, const Partition& partition) {
  for (const VariableShard& shard : partition.variables) {
    const Variable* const variable = graph.FindVariable(shard.name);
    if (variable == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is a variable '", shard.name, "', which the model has not"));
    }
    const ValueType expected = graph.value(variable->value).type;
    const ValueType actual{ValueKind::kTensor, shard.dtype, SymbolicShape(shard.global_shape)};
    if (actual == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat("variable '", shard.name, "' is ",
                                                   actual.ToString(), ", the model's is ",
                                                   expected.ToString()));
  }
  return absl::OkStatus();
}

// Whether what is read back of each updated variable makes a whole. The rest would be what the
// memory held before, in the trained model and in checkpoints. After CheckVariables.
absl::Status CheckPrimaries(const Graph& graph, const JobProgram& program) {
  std::map<std::string, int64_t> elements;            // that primary shards have
  std::set<std::tuple<std::string, int, int>> parts;  // tensor shard and rows
  for (const Partition& partition : program.partitions) {
    for (const VariableShard& shard : partition.variables) {
      if (!shard.is_primary || !graph.FindVariable(shard.name)->update.valid()) continue;
      elements[shard.name] += shard.local_shape.num_elements();
      const int index = shard.tensor_sharding.is_split() ? shard.tensor_index : 0;
      if (parts.insert({shard.name, index, shard.data_index}).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(program.name, ": two ranks say is_primary of the same part of variable '",
                       shard.name, "'; one copy of each part is read back"));
    }
  }
  for (const Variable& variable : graph.variables()) {
    const std::optional<Shape> shape = graph.value(variable.value).type.shape.ToConcrete();
    if (!variable.update.valid() || !shape.has_value()) continue;
    const int64_t held = elements[variable.name];
    if (held == shape->num_elements()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        program.name, ": variable '", variable.name, "' has ", shape->num_elements(),
        " elements, its parts that say is_primary have ", held, "; all of it is read back"));
  }
  return absl::OkStatus();
}

absl::Status CheckProgram(const PreparedJob& job, const JobProgram& program) {
  for (const Partition& partition : program.partitions) {
    const auto check = [&]() -> absl::Status {
      WEFT_RETURN_IF_ERROR(CheckVariables(job.graph, partition));
      for (const FeedInput& feed : partition.inputs) {
        if (feed.role != InputRole::kData) continue;
        WEFT_RETURN_IF_ERROR(CheckInputFits(*job.data, feed));
      }
      return absl::OkStatus();
    };
    WEFT_RETURN_IF_ERROR(
        Annotate(check(), absl::StrCat(program.name, ", rank ", partition.rank.value)));
  }
  return CheckPrimaries(job.graph, program);
}

JobProgram CloneOf(const JobProgram& program) {
  JobProgram clone{program.name, program.shape, {}};
  for (const Partition& partition : program.partitions) {
    clone.partitions.push_back(partition.Clone());
  }
  return clone;
}

// Whether partitions allow any operator on hosts though the plan allows none: who dumped them could
// not tell which these are (WorkersSettleFallback).
bool LeaveFallbackToWorkers(const PreparedJob& job) {
  const std::vector<std::string> any = AnyOperator();
  return job.plan.host_ops.empty() &&
         std::any_of(job.programs.begin(), job.programs.end(), [&any](const JobProgram& program) {
           return std::any_of(
               program.partitions.begin(), program.partitions.end(),
               [&any](const Partition& partition) { return partition.host_ops == any; });
         });
}

std::string NamesOf(const StoredPrograms& stored) {
  return absl::StrJoin(stored.programs, ", ", [](std::string* text, const JobProgram& program) {
    absl::StrAppend(text, program.name);
  });
}

}  // namespace

std::string ProgramName(const std::string& kind, const BatchShape& shape) {
  return absl::StrCat(kind, "/", shape.batch,
                      shape.length > 0 ? absl::StrCat("x", shape.length) : "");
}

absl::StatusOr<ProgramKey> ParseProgramName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits('/', 1));
  ProgramKey key{parts[0], {}};
  bool is_name = parts.size() == 2 && (key.kind == kTrainingSteps || key.kind == kEvaluationSteps);
  if (is_name) {
    const std::vector<std::string> sizes = absl::StrSplit(parts[1], 'x');
    is_name = sizes.size() <= 2 && absl::SimpleAtoi(sizes[0], &key.shape.batch) &&
              (sizes.size() == 1 || absl::SimpleAtoi(sizes[1], &key.shape.length)) &&
              key.shape.batch > 0 && key.shape.length >= 0;
  }
  // Nothing but what ProgramName writes: no "+1", no "01".
  if (is_name && ProgramName(key.kind, key.shape) == name) return key;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is not the name of a program; expected train/128 or evaluate/128x64"));
}

absl::Status TakeStoredPrograms(const JobSpec& spec, const std::string& kind, PreparedJob& job) {
  const StoredPrograms& stored = *spec.stored;
  const auto workers = static_cast<int>(spec.cluster.workers.size());
  if (workers != stored.workers) {
    return Misfit(
        stored, absl::StrCat("were made for a cluster of ", stored.workers,
                             " workers, this one has ", workers, "; give --local ", stored.workers,
                             " or a --cluster of as many, or dump them anew"));
  }
  WEFT_RETURN_IF_ERROR(CheckGraph(spec, kind, job.graph));
  job.plan = stored.plan;
  for (const BatchShape& shape : job.data->shapes()) {
    const std::string name = ProgramName(kind, shape);
    const JobProgram* found = nullptr;
    for (const JobProgram& program : stored.programs) {
      if (program.name == name) found = &program;
    }
    if (found == nullptr) {
      return Misfit(stored,
                    absl::StrCat("lack the program ", name, " that the data needs (they have ",
                                 NamesOf(stored), "); dump them with the same --data and --batch"));
    }
    WEFT_RETURN_IF_ERROR(Annotate(CheckProgram(job, *found), stored.folder));
    job.programs.push_back(CloneOf(*found));
  }
  job.workers_settle_fallback = LeaveFallbackToWorkers(job);
  return absl::OkStatus();
}

}  // namespace weft
