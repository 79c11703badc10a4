#include "ops/kernels/cpu/parallel.h"

#include <algorithm>

namespace weft::cpu {

int UsefulThreads(int threads, int64_t items, double nanoseconds_per_item) {
  const double total = static_cast<double>(items) * nanoseconds_per_item;
  const double worth = total / kNanosecondsPerThread;
  if (worth < 2 || threads < 2) return 1;
  return static_cast<int>(std::min<double>(
      {worth, static_cast<double>(threads), static_cast<double>(std::max<int64_t>(items, 1))}));
}

void ParallelFor(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  if (items <= 0) return;
  const int parts = UsefulThreads(threads, items, nanoseconds_per_item);
  if (parts == 1) return body(0, items);
  const int64_t share = (items + parts - 1) / parts;
  const int64_t chunk = (share + grain - 1) / grain * grain;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) {
    const int64_t begin = part * chunk;
    const int64_t end = std::min(items, begin + chunk);
    if (begin < end) body(begin, end);
  }
}

}  // namespace weft::cpu
