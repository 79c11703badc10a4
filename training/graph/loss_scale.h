// Dynamic loss scaling: keeps gradients in float16 from vanishing or overflowing.
#ifndef WEFT_TRAINING_GRAPH_LOSS_SCALE_H_
#define WEFT_TRAINING_GRAPH_LOSS_SCALE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"

namespace weft {

// State of a step, as variables of the graph: checkpoints keep them, all shards agree on them.
inline constexpr char kLossScale[] = "weft.loss_scale";        // float32 [], of the next step
inline constexpr char kGoodSteps[] = "weft.good_steps";        // int64 [], since it last changed
inline constexpr char kSkippedSteps[] = "weft.skipped_steps";  // int64 [], since the job began
bool IsLossScaleState(const std::string& variable);
// Outputs of a step: the scale that it has used, and the steps skipped so far, this one included.
inline constexpr char kLossScaleOutput[] = "weft.report/loss_scale";
inline constexpr char kSkippedStepsOutput[] = "weft.report/skipped_steps";

// Micikevicius et al., Mixed Precision Training (2018), section 3.2; numbers and rule are those of
// PyTorch's torch.cuda.amp.GradScaler (aten: amp_update_scale). The scale multiplies the sum of the
// losses of a micro-batch, where PyTorch's multiplies their mean, so it settles lower.
struct LossScaleSpec {
  double initial = 65536;
  double growth = 2;     // after growth_interval good steps in a row
  double backoff = 0.5;  // after a step whose gradients overflow
  int64_t growth_interval = 2000;
};
// InvalidArgument naming what is out of range.
absl::Status ValidateLossScale(const LossScaleSpec& spec);

// Adds the variables.
void AddLossScale(Graph& graph, const LossScaleSpec& spec);

// To be called when all updates are there, with `builder` in the step region: `squares` is the sum
// of the squares of all scaled gradients of the whole step, over all micro-batches, shards and
// stages. Where it is not finite, each variable of the graph keeps its value, whatever its update
// says; the scale backs off and the step is counted. Adds the updates of the three variables, the
// outputs and a guard, which fails the step when the scale gets below the smallest float16: no
// scale helps then, since the loss itself is not finite.
absl::Status SkipOverflows(GraphBuilder& builder, const LossScaleSpec& spec, ValueId squares);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_LOSS_SCALE_H_
