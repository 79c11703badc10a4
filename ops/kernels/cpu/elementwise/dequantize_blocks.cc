#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft::cpu {
namespace {

// The first of the groups that is none of `blocks` is an error.
absl::Status CheckGroups(const int32_t* groups, int64_t columns, int64_t blocks) {
  for (int64_t k = 0; k < columns; ++k) {
    if (groups[k] >= 0 && groups[k] < blocks) continue;
    return absl::InvalidArgumentError(absl::StrCat("g_idx[", k, "] is ", groups[k],
                                                   ", expected 0 to ", blocks - 1,
                                                   ", the blocks that have scales"));
  }
  return absl::OkStatus();
}

// weight[n, k] = (q - zero point) * scale of k's block, or of the block that g_idx says for k.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareDequantizeBlocks(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  const int64_t rows = attributes.Int("N", 0);
  const int64_t columns = attributes.Int("K", 0);
  const int64_t size = attributes.Int("block_size", 32);
  const int bits = static_cast<int>(attributes.Int("bits", 4));
  const int64_t blocks = (columns + size - 1) / size;
  const bool has_zeros = context.HasInput(2);
  const bool has_groups = context.HasInput(3);
  const bool packed_zeros = has_zeros && context.InputDType(2) == DType::kUint8;
  if (has_zeros && !packed_zeros && context.InputDType(2) != context.InputDType(1)) {
    return context.Unimplemented("zero points are neither uint8 nor of the scales' type");
  }
  const int64_t zero_row = (blocks * bits + 7) / 8 * 8 / bits;  // elements of a padded row
  return PrepareByDType(context, context.InputDType(1), FloatTypes(), [&](auto type) {
    using T = decltype(type);
    return MakeKernel([=, threads = context.threads()](const KernelContext& run) -> absl::Status {
      const int32_t* const groups = has_groups ? Input<int32_t>(run, 3) : nullptr;
      if (has_groups) WEFT_RETURN_IF_ERROR(CheckGroups(groups, columns, blocks));
      const auto at = [&](int input, int64_t i) -> int {
        const auto* bytes = static_cast<const uint8_t*>(run.inputs[input]);
        return static_cast<int>(PackedElement(bytes, bits, i));
      };
      const auto scale_of = [&](int64_t row, int64_t block) {
        return static_cast<float>(Load(Input<T>(run, 1)[row * blocks + block]));
      };
      const auto zero_of = [&](int64_t row, int64_t block) -> float {
        if (packed_zeros) return static_cast<float>(at(2, row * zero_row + block));
        if (has_zeros) return static_cast<float>(Load(Input<T>(run, 2)[row * blocks + block]));
        return static_cast<float>(1 << (bits - 1));
      };
      ParallelFor(
          threads, rows * blocks, static_cast<double>(size), 1, [&](int64_t begin, int64_t end) {
            for (int64_t block = begin; block < end; ++block) {
              const int64_t row = block / blocks;
              const int64_t first = block % blocks * size;
              float zero = zero_of(row, block % blocks);
              float scale = scale_of(row, block % blocks);
              for (int64_t k = first; k < std::min(first + size, columns); ++k) {
                if (groups != nullptr) {
                  zero = zero_of(row, groups[k]);
                  scale = scale_of(row, groups[k]);
                }
                const int q = at(0, block * size + k - first);
                Output<T>(run, 0)[row * columns + k] =
                    Store<T>(static_cast<ComputeType<T>>((static_cast<float>(q) - zero) * scale));
              }
            }
          });
      return absl::OkStatus();
    });
  });
}

WEFT_REGISTER_KERNEL(kWeftDomain, "DequantizeBlocks", DeviceKind::kCpu, PrepareDequantizeBlocks);

}  // namespace
}  // namespace weft::cpu
