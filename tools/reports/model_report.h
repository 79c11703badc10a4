// What `inspect` says about a model.
#ifndef WEFT_TOOLS_REPORTS_MODEL_REPORT_H_
#define WEFT_TOOLS_REPORTS_MODEL_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"

namespace weft {

// Whether the engine can do a thing with an op: run it on the CPU, pass gradients through it, shard
// it.
enum class Ability : uint8_t {
  kYes,
  kNotNeeded,  // has no gradient by nature
  kNo,
};
std::string_view AbilityName(Ability ability);  // "yes", "-", "no"

// One operator of a model: how often it occurs, and its cost.
struct OpRow {
  std::string op;  // with its domain unless that is ONNX's
  int count = 0;
  double flops = 0;  // of all these nodes, per sample; 0 when not known
  Ability runs = Ability::kNo;
  Ability trains = Ability::kNo;
  Ability shards = Ability::kNo;
};

// A node that stands in the way.
struct NodeProblem {
  std::string node;
  std::string op;
  std::string reason;
};

// What `inspect` prints, as data.
struct ModelReport {
  std::vector<ParameterDecision> parameters;
  int64_t trainable_elements = 0;
  std::vector<OpRow> ops;  // the most frequent first
  std::vector<NodeProblem> cannot_run;
  std::vector<NodeProblem> cannot_train;  // between a trainable parameter and an output
  // Sizes that stand for symbolic dimensions in `flops`.
  std::map<std::string, int64_t> dimensions;
  double flops = 0;           // one forward pass of one sample
  std::string flops_unknown;  // why they are not known; "" when they are
};

// What `inspect` is asked for.
struct ModelReportOptions {
  TrainableOptions trainable;
  // Sizes of symbolic dimensions for counting FLOPs; 1 for those not given.
  std::map<std::string, int64_t> dimensions;
};

// What is to be said of a model of a later operator set than those known here; "" of others.
std::string UnknownOpsetText(const ImportedModel& model);

// Marks what trains in the model's graph, and describes it. InvalidArgument for patterns and
// dimensions that match nothing.
absl::StatusOr<ModelReport> DescribeModel(ImportedModel& model, const ModelReportOptions& options);

// The nodes that nothing runs, bodies included.
absl::StatusOr<std::vector<NodeProblem>> NodesThatCannotRun(const Graph& model);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_MODEL_REPORT_H_
