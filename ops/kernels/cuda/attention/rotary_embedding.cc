// RotaryEmbedding: pairs of elements of a head, turned by angles of their positions.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/attention/attention_launch.h"
#include "ops/kernels/cuda/blocks/launch_status.h"

namespace weft::cuda {
namespace {

class RotaryKernel final : public Kernel {
 public:
  explicit RotaryKernel(const PrepareContext& context)
      : dtype_(context.InputDType(0)),
        source_(absl::StrCat("RotaryEmbedding '", context.node().name, "': position_ids")) {
    const Shape& x = context.InputShape(0);
    const Attributes& attributes = context.attributes();
    pairs_.packed = x.rank() == 3;
    pairs_.batch = x.dim(0);
    pairs_.heads = pairs_.packed ? attributes.Int("num_heads", 1) : x.dim(1);
    pairs_.length = x.dim(pairs_.packed ? 1 : 2);
    pairs_.size = pairs_.packed ? x.dim(2) / pairs_.heads : x.dim(3);
    const int64_t turned = attributes.Int("rotary_embedding_dim", 0);
    pairs_.half = (turned == 0 ? pairs_.size : turned) / 2;
    pairs_.interleaved = attributes.Int("interleaved", 0) != 0;
    has_positions_ = context.HasInput(3);
    rows_ = has_positions_ ? context.InputShape(1).dim(0) : 0;
    is_empty_ = x.num_elements() == 0;
  }

  absl::Status Run(const KernelContext& run) override {
    if (is_empty_) return absl::OkStatus();
    RotatePairs rotate = pairs_;
    rotate.x = run.inputs[0];
    rotate.cosines = run.inputs[1];
    rotate.sines = run.inputs[2];
    rotate.y = run.outputs[0];
    if (has_positions_) {
      rotate.positions = static_cast<const int64_t*>(run.inputs[3]);
      rotate.positions_fault = {run.stream->fault(), source_.c_str(), 0, rows_};
    }
    return LaunchStatus(LaunchRotatePairs(QueueOf(run), dtype_, rotate), "a rotary embedding");
  }

 private:
  const DType dtype_;
  const std::string source_;
  RotatePairs pairs_;
  bool has_positions_ = false;
  int64_t rows_ = 0;  // of the caches
  bool is_empty_ = false;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRotaryEmbedding(const PrepareContext& context) {
  const DType dtype = context.InputDType(0);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64 && dtype != DType::kFloat16 &&
      dtype != DType::kBfloat16) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
  }
  return std::make_unique<RotaryKernel>(context);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "RotaryEmbedding", DeviceKind::kCuda, PrepareRotaryEmbedding);

}  // namespace weft::cuda
