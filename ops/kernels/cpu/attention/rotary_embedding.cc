#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

struct Rotation {
  int64_t batch, heads, length, size;
  int64_t half;       // pairs that are turned
  int64_t positions;  // rows of the caches
  bool packed;        // [batch, length, heads * size]
  bool interleaved;   // pairs are neighbours, else half the turned part apart
  bool has_positions;

  int64_t rows() const { return batch * heads * length; }
  // Of row `row`, in the order of X: the row of the caches where there are no position_ids.
  int64_t Sample(int64_t row) const {
    return packed ? row / heads : row / length / heads * length + row % length;
  }
};

Rotation RotationOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Attributes& attributes = context.attributes();
  Rotation rotation;
  rotation.packed = x.rank() == 3;
  rotation.batch = x.dim(0);
  rotation.heads = rotation.packed ? attributes.Int("num_heads", 1) : x.dim(1);
  rotation.length = x.dim(rotation.packed ? 1 : 2);
  rotation.size = rotation.packed ? x.dim(2) / rotation.heads : x.dim(3);
  const int64_t turned = attributes.Int("rotary_embedding_dim", 0);
  rotation.half = (turned == 0 ? rotation.size : turned) / 2;
  const Shape& cache = context.InputShape(1);
  rotation.has_positions = context.HasInput(3);
  rotation.positions = rotation.has_positions ? cache.dim(0) : cache.ProductOf(0, 2);
  rotation.interleaved = attributes.Int("interleaved", 0) != 0;
  return rotation;
}

absl::Status CheckPositions(const Rotation& rotation, const int64_t* ids) {
  for (int64_t i = 0; rotation.has_positions && i < rotation.batch * rotation.length; ++i) {
    if (ids[i] >= 0 && ids[i] < rotation.positions) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("position_ids[", i / rotation.length, ",", i % rotation.length, "] is ",
                     ids[i], ", expected 0 to ", rotation.positions - 1, " (rows of the caches)"));
  }
  return absl::OkStatus();
}

template <typename T>
void TurnRow(const Rotation& rotation, const T* x, const T* cos, const T* sin, T* y) {
  const int64_t half = rotation.half;
  const int64_t step = rotation.interleaved ? 2 : 1;
  const int64_t apart = rotation.interleaved ? 1 : half;
  using C = ComputeType<T>;
  for (int64_t i = 0; i < half; ++i) {
    const C a = Load(x[i * step]);
    const C b = Load(x[i * step + apart]);
    const C c = Load(cos[i]);
    const C s = Load(sin[i]);
    y[i * step] = Store<T>(c * a - s * b);
    y[i * step + apart] = Store<T>(s * a + c * b);
  }
  for (int64_t i = 2 * half; i < rotation.size; ++i) y[i] = x[i];
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRotaryEmbedding(const PrepareContext& context) {
  const Rotation rotation = RotationOf(context);
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto zero) {
    using T = decltype(zero);
    return MakeKernel([rotation, threads = context.threads()](const KernelContext& run) {
      const int64_t* ids = rotation.has_positions ? Input<int64_t>(run, 3) : nullptr;
      WEFT_RETURN_IF_ERROR(CheckPositions(rotation, ids));
      ParallelFor(threads, rotation.rows(), 2.0 * static_cast<double>(rotation.size), 1,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      const int64_t sample = rotation.Sample(row);
                      const int64_t angle = (ids == nullptr ? sample : ids[sample]) * rotation.half;
                      TurnRow(rotation, Input<T>(run, 0) + row * rotation.size,
                              Input<T>(run, 1) + angle, Input<T>(run, 2) + angle,
                              Output<T>(run, 0) + row * rotation.size);
                    }
                  });
      return absl::OkStatus();
    });
  });
}

WEFT_REGISTER_KERNEL("", "RotaryEmbedding", DeviceKind::kCpu, PrepareRotaryEmbedding);

}  // namespace
}  // namespace weft::cpu
