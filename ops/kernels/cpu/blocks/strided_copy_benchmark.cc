// Data movement against memcpy of as many bytes: the rate is bytes read plus bytes written.
//   bazel run //ops:kernels/cpu/strided_copy_benchmark
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "tensor/shape.h"

namespace weft::cpu {
namespace {

void SetRate(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(2 * bytes * static_cast<int64_t>(state.iterations()));
}

void BM_Memcpy(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  std::vector<char> from(bytes, 1), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  SetRate(state, bytes);
}
BENCHMARK(BM_Memcpy)->Arg(64 << 10)->Arg(2 << 20)->Arg(64 << 20);

// A float32 tensor of `shape` transposed by `perm`.
void BM_Transpose(benchmark::State& state, Shape shape, std::vector<int> perm) {
  const auto from_strides = shape.Strides();
  Shape to_shape;
  for (const int axis : perm) to_shape.AddDim(shape.dim(axis));
  const auto to_strides = to_shape.Strides();
  std::vector<CopyAxis> axes;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    axes.push_back({to_shape.dim(axis), from_strides[perm[axis]], to_strides[axis]});
  }
  const StridedCopy copy(axes, 4);
  std::vector<float> from(shape.num_elements(), 1), to(shape.num_elements());
  for (auto _ : state) {
    copy.Run(from.data(), to.data(), 1);
    benchmark::ClobberMemory();
  }
  SetRate(state, copy.bytes());
}
BENCHMARK_CAPTURE(BM_Transpose, heads_64x64x4x32_0213, Shape{64, 64, 4, 32},
                  std::vector<int>{0, 2, 1, 3});
BENCHMARK_CAPTURE(BM_Transpose, keys_64x64x4x32_0231, Shape{64, 64, 4, 32},
                  std::vector<int>{0, 2, 3, 1});
BENCHMARK_CAPTURE(BM_Transpose, matrix_128x128, Shape{128, 128}, std::vector<int>{1, 0});
BENCHMARK_CAPTURE(BM_Transpose, matrix_1024x1024, Shape{1024, 1024}, std::vector<int>{1, 0});
BENCHMARK_CAPTURE(BM_Transpose, matrix_4096x4096, Shape{4096, 4096}, std::vector<int>{1, 0});
BENCHMARK_CAPTURE(BM_Transpose, image_32x3x224x224_0231, Shape{32, 3, 224, 224},
                  std::vector<int>{0, 2, 3, 1});

}  // namespace
}  // namespace weft::cpu

BENCHMARK_MAIN();
