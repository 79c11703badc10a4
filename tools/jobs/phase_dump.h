// PhaseDump: what of a step's making is written to files, and where it ends: --until, --dump-after
// and --dump of `plan`.
#ifndef WEFT_TOOLS_JOBS_PHASE_DUMP_H_
#define WEFT_TOOLS_JOBS_PHASE_DUMP_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/passes/pass.h"
#include "graph/plan.h"
#include "platform/file_system.h"
#include "training/job/stored_programs.h"

namespace weft {

// How a step is made, in order. Each has a name, see PhaseNames.
enum class StepPhase : uint8_t {
  kImport,         // the model, with its trainable variables marked
  kSimplify,       // inputs shaped by the data, constants folded
  kExpand,         // functions that no kernel runs are what they are made of
  kDifferentiate,  // loss, gradients, updates
  kPlan,
  kPartition,
  kLowering,
};

struct DumpRequest {
  std::string folder = "";              // "" = nothing is written
  std::string until = "";               // a phase; "" = as far as is needed
  std::vector<std::string> after = {};  // phases and passes, or "all"; empty: the last phase
};

// Told of each phase in its order, it writes what was asked for: graphs as ONNX files without
// weights, the plan as YAML, partitions as a folder that can be run
// (training/job/partition_folder.h), programs as text. All begin with the number of their phase:
// 04-differentiate.onnx, 04-differentiate/02-add_loss.onnx (its second pass), 06-partition/,
// 07-lowering/train-128/rank-0/. Borrows the file system. One thread. Errors carry their exit code.
class PhaseDump {
 public:
  // InvalidArgument naming those that there are, and one that may be meant, for a name that is
  // none; also for names without a folder, and for what comes after `until`.
  static absl::StatusOr<PhaseDump> Create(FileSystem& files, DumpRequest request);
  static std::vector<std::string> PhaseNames();
  // Of graphs and of the lowering.
  static std::vector<std::string> PassNames();

  // Sees the passes of the phase that has begun (the first, or the one after the last that has
  // finished). Borrows this.
  GraphObserver observer();
  // The phase is done. Cancelled when the step's making ends here (has_ended).
  absl::Status Finish(StepPhase phase, const Graph& graph);
  absl::Status FinishPlan(const Plan& plan);
  // Cancelled, too, when it ends here: there is no report then.
  absl::Status FinishPartition(const StoredPrograms& programs);
  // Lowers the programs of all ranks on devices of this process; runs nothing.
  absl::Status Lower(const StoredPrograms& programs, const ClusterSpec& cluster);

  // A usage error where what is asked for comes from the shapes of data, and there is none.
  absl::Status CheckWithoutData() const;
  // Whether the phase is to be gone through for its dump or its end's sake.
  bool Needs(StepPhase phase) const;
  bool has_ended() const { return has_ended_; }
  // "ended after expand: 31 nodes", or "" where it has not.
  const std::string& end() const { return end_; }
  // "7 files written to dumped", with the passes that were asked for and are not in it; or "".
  std::string Summary() const;

 private:
  PhaseDump(FileSystem& files, DumpRequest request)
      : files_(&files), request_(std::move(request)) {}

  absl::Status Check();
  bool Wants(std::string_view name) const;
  absl::Status SeePass(std::string_view pass, const Graph& graph);
  absl::Status Write(const std::string& name, std::string_view bytes);
  absl::Status WriteGraph(const std::string& name, const Graph& graph);
  // Cancelled where the step's making ends after this phase.
  absl::Status End(StepPhase phase, const std::string& what);
  absl::Status LowerRank(const Partition& partition, Device& device, const std::string& folder);
  std::vector<std::string> UnseenPasses() const;

  FileSystem* files_;
  DumpRequest request_;
  StepPhase last_ = StepPhase::kPartition;
  StepPhase current_ = StepPhase::kImport;
  int passes_ = 0;  // of the current phase, so far
  int written_ = 0;
  std::set<std::string> seen_ = {};  // passes that had something to show
  bool has_ended_ = false;
  std::string end_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_PHASE_DUMP_H_
