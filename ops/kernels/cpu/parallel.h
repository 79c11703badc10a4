// ParallelFor: shares the iterations of a loop among the threads a kernel may use.
#ifndef WEFT_OPS_KERNELS_CPU_PARALLEL_H_
#define WEFT_OPS_KERNELS_CPU_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace weft::cpu {

// Below this much work per thread, waking another thread costs more than it saves: a wake-up takes
// 25 to 50 microseconds (docs: performance facts).
inline constexpr double kNanosecondsPerThread = 25'000;

// How many of `threads` are worth using for `items` of about `nanoseconds_per_item` each; >= 1.
int UsefulThreads(int threads, int64_t items, double nanoseconds_per_item);

// Calls body(begin, end) for disjoint ranges that cover [0, items), each once, on up to `threads`
// threads, the calling one included; returns when all are done. Inner borders are multiples of
// `grain`. No call for no items. Which thread runs what must not change results: the callee
// computes the same bits for an item whatever range it is in.
//
// The others are threads of the calling thread's own, made when first needed, which spin for some
// microseconds after a loop and then sleep. Each thread takes small ranges of its own share first
// and then of the others', and nobody waits for a thread that has not come: a core that something
// else keeps busy delays a loop by one range at most. A loop within a loop runs on one thread.
// Allocates nothing once the threads exist.
void ParallelFor(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> body);

// The same with the number of the thread, in [0, threads), whose scratch memory the body may use:
// no two calls with one number at one time.
void ParallelForSlots(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                      absl::FunctionRef<void(int slot, int64_t begin, int64_t end)> body);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_PARALLEL_H_
