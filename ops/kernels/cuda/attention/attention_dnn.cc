#include "ops/kernels/cuda/attention/attention_dnn.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/attention/attention_operands.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// What of a node is beyond what we ask of cuDNN; "" where nothing is.
std::string BeyondDnn(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  const DType dtype = context.InputDType(kQuery);
  if (dtype != DType::kFloat16 && dtype != DType::kBfloat16) {
    return absl::StrCat("operands of ", std::string(DTypeName(dtype)));
  }
  if (context.HasInput(kMask)) return "a mask";
  if (context.HasInput(kPastKey) || context.HasInput(kPastValue)) return "a past";
  if (context.HasInput(kValidLengths)) return "lengths of keys";
  for (const int output : {kPresentKey, kPresentValue, kScores}) {
    if (context.HasOutput(output)) return "an output besides Y";
  }
  if (attributes.Float("softcap", 0.0f) > 0) return "a cap of scores";
  if (attributes.Int("left_window_size", -1) >= 0 || attributes.Int("right_window_size", -1) >= 0) {
    return "a window of keys";
  }
  for (const int input : {kQuery, kKey, kValue}) {
    if (context.InputShape(input).num_elements() == 0) return "no elements";
  }
  return "";
}

AttentionSpec SpecOfNode(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  const int64_t q_heads = attributes.Int("q_num_heads", 1);
  const int64_t kv_heads = attributes.Int("kv_num_heads", 1);
  AttentionSpec spec;
  spec.dtype = context.InputDType(kQuery);
  spec.query = HeadsTensor(context.InputShape(kQuery), q_heads);
  spec.key = HeadsTensor(context.InputShape(kKey), kv_heads);
  spec.value = HeadsTensor(context.InputShape(kValue), kv_heads);
  spec.result = HeadsTensor(context.OutputShape(kY), q_heads);
  const double root = std::sqrt(static_cast<double>(spec.query.dims[3]));
  spec.scale = attributes.Has("scale") ? attributes.Float("scale", 1.0f) : 1 / root;
  spec.causal = attributes.Int("is_causal", 0) != 0;
  return spec;
}

class DnnAttentionKernel final : public Kernel {
 public:
  explicit DnnAttentionKernel(std::unique_ptr<PreparedAttention> attention)
      : attention_(std::move(attention)) {}

  size_t workspace_bytes() const override {
    return DnnWorkspaceRoom(attention_->workspace_bytes());
  }

  absl::Status Run(const KernelContext& run) override {
    AttentionOperands operands;
    operands.query = run.inputs[kQuery];
    operands.key = run.inputs[kKey];
    operands.value = run.inputs[kValue];
    operands.result = run.outputs[kY];
    void* const workspace = DnnWorkspaceIn(run.workspace, attention_->workspace_bytes());
    return attention_->Run(operands, workspace, QueueOf(run));
  }

 private:
  const std::unique_ptr<PreparedAttention> attention_;
};

}  // namespace

DnnTensor HeadsTensor(const Shape& shape, int64_t heads) {
  if (shape.rank() == 4) {
    return DnnTensor::Dense({shape.dim(0), shape.dim(1), shape.dim(2), shape.dim(3)});
  }
  const int64_t rows = shape.dim(1), width = shape.dim(2), size = width / heads;
  return {{shape.dim(0), heads, rows, size}, {rows * width, size, width, 1}};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnAttention(const PrepareContext& context) {
  if (!context.uses_cudnn()) return nullptr;
  const absl::StatusOr<Dnn*> library = DnnOf(context.device());
  if (!library.ok()) {
    return absl::Status(library.status().code(),
                        absl::StrCat("node '", context.node().name,
                                     "' (Attention): ", std::string(library.status().message())));
  }
  const auto other_way = [&](absl::string_view why) {
    Log(LogLevel::kInfo, "node '", context.node().name, "' does not go through cuDNN: ", why);
    return nullptr;
  };
  if (const std::string beyond = BeyondDnn(context); !beyond.empty()) {
    return other_way(absl::StrCat("it has ", beyond));
  }
  absl::StatusOr<std::unique_ptr<PreparedAttention>> attention =
      (*library)->PrepareAttention(SpecOfNode(context));
  if (absl::IsUnimplemented(attention.status())) return other_way(attention.status().message());
  WEFT_RETURN_IF_ERROR(attention.status());
  return std::make_unique<DnnAttentionKernel>(*std::move(attention));
}

}  // namespace weft::cuda
