// ParallelFor: shares the iterations of a loop among the threads a kernel may use.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_PARALLEL_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace weft::cpu {

// Below this much work per thread, waking another thread costs more than it saves: a wake-up takes
// 25 to 50 microseconds.
inline constexpr double kNanosecondsPerThread = 25'000;

// How many of `threads` are worth using for `items` of about `nanoseconds_per_item` each; >= 1.
int UsefulThreads(int threads, int64_t items, double nanoseconds_per_item);

// Calls body(begin, end) for disjoint ranges that cover [0, items), each once, on up to `threads`
// threads, the calling one included; returns when all are done. Inner borders are multiples of
// `grain`. No call for no items. Which thread runs what must not change results: the callee
// computes the same bits for an item whatever range it is in.
//
// The others are OpenMP's threads, on which oneDNN's loops run too: threads of our own would take
// the cores on which those wait for their next loop by spinning, and the other way round. Each
// thread takes small ranges of its own share first and then of the others', so that one who comes
// late finds less to do; but OpenMP waits for it. A loop within a loop runs on one thread.
// Allocates nothing once the threads exist. Loops of one thread should all say the same `threads`:
// OpenMP ends threads that a loop has less than the one before.
void ParallelFor(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> body);

// The same with the number of the thread, in [0, threads), whose scratch memory the body may use:
// no two calls with one number at one time.
void ParallelForSlots(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                      absl::FunctionRef<void(int slot, int64_t begin, int64_t end)> body);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_PARALLEL_H_
