// The vector loops of elementwise ops, sums and softmax, on one thread: bytes per second are bytes
// read plus bytes written, to be held against BM_Copy; items are elements.
//   bazel run //ops:kernels/cpu/elementwise_benchmark
#include <algorithm>
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/kernels/cpu/elementwise/elementwise_simd.h"
#include "ops/kernels/cpu/normalization/softmax_simd.h"
#include "ops/kernels/cpu/reduction/reduce_simd.h"

namespace weft::cpu {
namespace {

std::vector<float> Values(int64_t n) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 997) / 300.0f - 1.5f;
  return values;
}

void SetRates(benchmark::State& state, int64_t elements, int operands) {
  const int64_t total = elements * static_cast<int64_t>(state.iterations());
  state.SetItemsProcessed(total);
  state.SetBytesProcessed(total * operands * static_cast<int64_t>(sizeof(float)));
}

void BM_Copy(benchmark::State& state) {
  const std::vector<float> x = Values(state.range(0));
  std::vector<float> y(x.size());
  for (auto _ : state) {
    std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  SetRates(state, state.range(0), 2);
}
BENCHMARK(BM_Copy)->Arg(4 << 10)->Arg(256 << 10)->Arg(16 << 20);

void BM_Unary(benchmark::State& state, UnaryOp op) {
  const std::vector<float> x = Values(state.range(0));
  std::vector<float> y(x.size());
  for (auto _ : state) {
    UnaryFloat(op, x.data(), y.data(), x.size());
    benchmark::ClobberMemory();
  }
  SetRates(state, state.range(0), 2);
}
BENCHMARK_CAPTURE(BM_Unary, Relu, UnaryOp::kRelu)->Arg(4 << 10)->Arg(256 << 10)->Arg(16 << 20);
BENCHMARK_CAPTURE(BM_Unary, Exp, UnaryOp::kExp)->Arg(4 << 10)->Arg(16 << 20);
BENCHMARK_CAPTURE(BM_Unary, Erf, UnaryOp::kErf)->Arg(4 << 10)->Arg(16 << 20);
BENCHMARK_CAPTURE(BM_Unary, Sigmoid, UnaryOp::kSigmoid)->Arg(4 << 10)->Arg(16 << 20);
BENCHMARK_CAPTURE(BM_Unary, Tanh, UnaryOp::kTanh)->Arg(4 << 10)->Arg(16 << 20);
BENCHMARK_CAPTURE(BM_Unary, Log, UnaryOp::kLog)->Arg(4 << 10)->Arg(16 << 20);

void BM_Binary(benchmark::State& state, BinaryOp op) {
  const std::vector<float> a = Values(state.range(0));
  const std::vector<float> b = Values(state.range(0));
  std::vector<float> y(a.size());
  for (auto _ : state) {
    BinaryFloat(op, BinaryOperands::kArrays, a.data(), b.data(), y.data(), a.size());
    benchmark::ClobberMemory();
  }
  SetRates(state, state.range(0), 3);
}
BENCHMARK_CAPTURE(BM_Binary, Add, BinaryOp::kAdd)->Arg(64)->Arg(4 << 10)->Arg(256 << 10);
BENCHMARK_CAPTURE(BM_Binary, ErfGrad, BinaryOp::kErfGrad)->Arg(4 << 10);

void BM_Sum(benchmark::State& state) {
  const std::vector<float> x = Values(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(SumFloat(x.data(), x.size()));
  SetRates(state, state.range(0), 1);
}
BENCHMARK(BM_Sum)->Arg(10)->Arg(4 << 10)->Arg(16 << 20);

// A bias gradient: [rows, columns] summed to [columns].
void BM_SumColumns(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t columns = state.range(1);
  const std::vector<float> x = Values(rows * columns);
  for (auto _ : state) {
    for (int64_t c = 0; c < columns; c += kColumnTile) {
      double totals[kColumnTile] = {};
      SumColumns(x.data() + c, rows, columns, std::min(kColumnTile, columns - c), totals);
      benchmark::DoNotOptimize(totals);
    }
  }
  SetRates(state, rows * columns, 1);
}
BENCHMARK(BM_SumColumns)->Args({128, 512})->Args({128, 10})->Args({1024, 4096});

void BM_Softmax(benchmark::State& state, SoftmaxOp op) {
  const int64_t rows = state.range(0);
  const int64_t size = state.range(1);
  const std::vector<float> x = Values(rows * size);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    SoftmaxRows(op, x.data(), x.data(), y.data(), rows, size);
    benchmark::ClobberMemory();
  }
  SetRates(state, rows * size, 2);
}
BENCHMARK_CAPTURE(BM_Softmax, Softmax, SoftmaxOp::kSoftmax)
    ->Args({128, 2})
    ->Args({128, 10})
    ->Args({128, 21})
    ->Args({128, 128})
    ->Args({128, 197})
    ->Args({128, 1000})
    ->Args({16, 32000});
BENCHMARK_CAPTURE(BM_Softmax, SoftmaxGrad, SoftmaxOp::kSoftmaxGrad)->Args({128, 128});

// [size, columns], normalized over `size`.
void BM_SoftmaxColumns(benchmark::State& state, SoftmaxOp op) {
  const int64_t size = state.range(0);
  const int64_t columns = state.range(1);
  const std::vector<float> x = Values(size * columns);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    SoftmaxColumns(op, x.data(), x.data(), y.data(), columns, size, columns);
    benchmark::ClobberMemory();
  }
  SetRates(state, size * columns, 2);
}
BENCHMARK_CAPTURE(BM_SoftmaxColumns, Softmax, SoftmaxOp::kSoftmax)
    ->Args({4, 256})
    ->Args({21, 256})
    ->Args({128, 256});

}  // namespace
}  // namespace weft::cpu

BENCHMARK_MAIN();
