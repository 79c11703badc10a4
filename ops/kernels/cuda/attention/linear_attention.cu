#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/attention/linear_attention_body.h"
#include "ops/kernels/cuda/attention/linear_attention_launch.h"
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

// Columns are walked step by step: small blocks spread them over more multiprocessors.
constexpr int kColumnThreads = 64;
constexpr int kSumThreads = 256;
constexpr int64_t kSumBlocks = 16384;

LaunchGrid ColumnGrid(const LinearAttentionOperands& of) {
  return {Blocks(of.batch * of.kv_heads * of.value_size, kColumnThreads), kColumnThreads};
}

// A warp for each of `count` sums.
LaunchGrid SumGrid(int64_t count) {
  return {Blocks(count, kSumThreads / kWarp, kSumBlocks), kSumThreads};
}

template <typename T, typename C>
int LaunchChunk(LaunchQueue queue, const LinearAttentionChunk& chunk) {
  const LinearAttentionOperands& of = chunk.of;
  int code = Launch<kColumnThreads>(queue, ColumnGrid(of), LinearAttentionChunkBody<T, C>{chunk});
  const int64_t steps = of.batch * (chunk.end - chunk.begin);
  const bool decay_of_heads = chunk.ddecay != nullptr && of.decays == 1;
  const bool decay_of_keys = chunk.ddecay != nullptr && of.decays > 1;
  if (code == 0 && (chunk.dquery != nullptr || chunk.dkey != nullptr || decay_of_keys)) {
    code = Launch<kSumThreads>(queue, SumGrid(steps * of.kv_heads * of.key_size),
                               LinearAttentionKeyBody<T, C>{{chunk}});
  }
  if (code == 0 && decay_of_heads) {
    code = Launch<kSumThreads>(queue, SumGrid(steps * of.kv_heads),
                               LinearAttentionDecayBody<T, C>{{chunk}});
  }
  if (code == 0 && chunk.dbeta != nullptr) {
    code = Launch<kSumThreads>(queue, SumGrid(steps * of.betas),
                               LinearAttentionBetaBody<T, C>{{chunk}});
  }
  return code;
}

}  // namespace

int LaunchLinearAttention(LaunchQueue queue, DType dtype, bool wide,
                          const LinearAttentionForward& forward) {
  return LaunchByType(dtype, FloatLaunches{}, [&](auto zero) {
    using T = decltype(zero);
    if (wide) {
      return Launch<kColumnThreads>(queue, ColumnGrid(forward.of),
                                    LinearAttentionBody<T, double>{forward});
    }
    if constexpr (std::is_same_v<T, double>) {
      return kNoSuchBody;
    } else {
      return Launch<kColumnThreads>(queue, ColumnGrid(forward.of),
                                    LinearAttentionBody<T, float>{forward});
    }
  });
}

int LaunchLinearAttentionChunk(LaunchQueue queue, DType dtype, bool wide,
                               const LinearAttentionChunk& chunk) {
  return LaunchByType(dtype, FloatLaunches{}, [&](auto zero) {
    using T = decltype(zero);
    if (wide) return LaunchChunk<T, double>(queue, chunk);
    if constexpr (std::is_same_v<T, double>) {
      return kNoSuchBody;
    } else {
      return LaunchChunk<T, float>(queue, chunk);
    }
  });
}

}  // namespace weft::cuda
