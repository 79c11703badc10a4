// What this machine can do at most with a number of threads, for shares of its limits:
//
//   machine_limits THREADS
//
// prints a line of JSON: the instruction set in use (ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA limits
// it), GFLOP/s of float32 multiply-adds in registers, and GB/s of a = b + s c over arrays that no
// cache holds (24 bytes an element, as STREAM counts them). Each is the best of several runs: a
// limit, not a mean.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "platform/clock.h"
#include "platform/cpu_info.h"

namespace weft {
namespace {

constexpr int kRuns = 7;
constexpr int kSums = 12;  // independent ones: what two units with a latency of 4 to 5 need
constexpr int64_t kRounds = 2'000'000;
constexpr int64_t kElements = int64_t{8} << 20;  // doubles of an array, for all threads together

// Each returns a sum, so that nothing of it is left out, and does kSums multiply-adds of a vector
// a round.
__attribute__((target("avx512f"))) float MultiplyAddAvx512(int64_t rounds) {
  const __m512 factor = _mm512_set1_ps(0.999f), addend = _mm512_set1_ps(1e-3f);
  __m512 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, addend);
  }
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx2,fma"))) float MultiplyAddAvx2(int64_t rounds) {
  const __m256 factor = _mm256_set1_ps(0.999f), addend = _mm256_set1_ps(1e-3f);
  __m256 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, addend);
  }
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return _mm256_cvtss_f32(sums[0]);
}

float MultiplyAddSse(int64_t rounds) {
  const __m128 factor = _mm_set1_ps(0.999f), addend = _mm_set1_ps(1e-3f);
  __m128 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm_set1_ps(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm_add_ps(_mm_mul_ps(sums[i], factor), addend);
  }
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) sums[0] = _mm_add_ps(sums[0], sums[i]);
  return _mm_cvtss_f32(sums[0]);
}

struct Arithmetic {
  int width;  // floats of a vector
  float (*run)(int64_t rounds);
};

Arithmetic ArithmeticOf(InstructionSet level) {
  if (level >= InstructionSet::kAvx512Core) return {16, MultiplyAddAvx512};
  if (level >= InstructionSet::kAvx2) return {8, MultiplyAddAvx2};
  return {4, MultiplyAddSse};
}

// The shortest of several runs of `work` on all threads at once, which gets the thread's number.
double ShortestSeconds(int threads, const std::function<void(int)>& work) {
  double shortest = 0;
  for (int run = 0; run < kRuns; ++run) {
    const int64_t begin = RealClock().MonotonicNanos();
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
    for (std::thread& other : others) other.join();
    const double seconds = static_cast<double>(RealClock().MonotonicNanos() - begin) * 1e-9;
    shortest = run == 0 ? seconds : std::min(shortest, seconds);
  }
  return shortest;
}

double MeasureGigaflops(int threads, InstructionSet level) {
  const Arithmetic arithmetic = ArithmeticOf(level);
  std::vector<float> sums(threads);
  const double seconds =
      ShortestSeconds(threads, [&](int thread) { sums[thread] = arithmetic.run(kRounds); });
  for (const float sum : sums) {
    if (!(sum > 0)) return 0;  // never: it keeps the sums alive
  }
  return 2e-9 * kSums * arithmetic.width * static_cast<double>(kRounds) * threads / seconds;
}

double MeasureGigabytes(int threads) {
  std::vector<double> a(kElements), b(kElements, 1), c(kElements, 2);
  const int64_t part = kElements / threads;
  const double seconds = ShortestSeconds(threads, [&](int thread) {
    double* const to = a.data() + thread * part;
    const double* const first = b.data() + thread * part;
    const double* const second = c.data() + thread * part;
    const __m128d factor = _mm_set1_pd(3);
    for (int64_t i = 0; i + 2 <= part; i += 2) {
      const __m128d product = _mm_mul_pd(factor, _mm_loadu_pd(second + i));
      _mm_storeu_pd(to + i, _mm_add_pd(_mm_loadu_pd(first + i), product));
    }
  });
  if (a[0] != 7) return 0;
  return 24e-9 * static_cast<double>(part * threads) / seconds;
}

int Main(int threads) {
  const InstructionSet level = EffectiveInstructionSet();
  std::printf(
      "{\"threads\": %d, \"instruction_set\": \"%s\", \"gflops\": %.2f, \"gigabytes\": %.2f}\n",
      threads, std::string(InstructionSetName(level)).c_str(), MeasureGigaflops(threads, level),
      MeasureGigabytes(threads));
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  int threads = 0;
  if (count != 2 || !absl::SimpleAtoi(arguments[1], &threads) || threads < 1) {
    std::fprintf(stderr, "usage: machine_limits THREADS\n");
    return 2;
  }
  return weft::Main(threads);
}
