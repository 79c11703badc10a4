#include "ops/kernels/cpu/blocks/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "tensor/buffer.h"

// The entry of a parallel region in libgomp's interface for compilers ("The libgomp ABI" in its
// manual), which any compiler can call: `threads` threads run task(data), the calling one included.
extern "C" void GOMP_parallel(void (*task)(void* data), void* data, unsigned threads,
                              unsigned flags);

namespace weft::cpu {
namespace {

// A range should be worth this much, so that taking it costs nothing beside it.
constexpr double kNanosecondsPerRange = 8'000;
// Ranges that a share is cut into at most.
constexpr double kRangesPerShare = 8;

using Body = absl::FunctionRef<void(int slot, int64_t begin, int64_t end)>;

// Items [0, items) in one share per part; ranges are taken from a share in order.
struct Loop {
  Loop(int64_t all, double nanoseconds_per_item, int64_t grain, int count, Body what)
      : items(all), parts(count), body(what) {
    const auto in_grains = [&](int64_t n) { return (n + grain - 1) / grain * grain; };
    share = in_grains((items + parts - 1) / parts);
    const double worth = static_cast<double>(share) * nanoseconds_per_item / kNanosecondsPerRange;
    const int64_t ranges = static_cast<int64_t>(std::clamp(worth, 1.0, kRangesPerShare));
    range = in_grains((share + ranges - 1) / ranges);
  }

  int64_t items;
  int parts;
  Body body;
  int64_t share;
  int64_t range;
};

// Whether this thread is within a loop.
thread_local bool inside_loop = false;

// The loops of one calling thread.
class Team {
 public:
  // On a team of `threads`, of which the loop may need fewer: OpenMP ends threads that one region
  // has less than the one before, and starts others for the next.
  void Run(const Loop& loop, int threads) {
    Reserve(loop.parts);
    for (int i = 0; i < loop.parts; ++i) {
      places_[i].next.store(loop.share * i, std::memory_order_relaxed);
      places_[i].end = std::min(loop.items, loop.share * (i + 1));
    }
    loop_ = &loop;
    entry_.store(true, std::memory_order_release);
    GOMP_parallel([](void* team) { static_cast<Team*>(team)->Enter(); }, this,
                  static_cast<unsigned>(threads), 0);
    exits_.load(std::memory_order_acquire);
  }

 private:
  // What is left of a share.
  struct alignas(kAlignment) Place {
    std::atomic<int64_t> next;
    int64_t end;
  };

  void Reserve(int parts) {
    if (parts <= places_count_) return;
    places_ = std::make_unique<Place[]>(parts);
    places_count_ = parts;
  }

  // In each thread of the team. `entry_` and `exits_` tell ThreadSanitizer, which does not see into
  // OpenMP, that a region begins after what was before it and ends before what follows.
  void Enter() {
    entry_.load(std::memory_order_acquire);
    const int slot = omp_get_thread_num();
    inside_loop = true;
    if (slot < loop_->parts) Work(slot);
    inside_loop = false;
    exits_.fetch_add(1, std::memory_order_release);
  }

  // Takes ranges of the own share and then of the others', until there are none.
  void Work(int slot) {
    const Loop& loop = *loop_;
    for (int i = 0; i < loop.parts; ++i) {
      Place& place = places_[(slot + i) % loop.parts];
      for (;;) {
        const int64_t begin = place.next.fetch_add(loop.range, std::memory_order_relaxed);
        if (begin >= place.end) break;
        loop.body(slot, begin, std::min(begin + loop.range, place.end));
      }
    }
  }

  std::unique_ptr<Place[]> places_;  // one per share
  int places_count_ = 0;
  const Loop* loop_ = nullptr;  // within a region
  std::atomic<bool> entry_ = false;
  std::atomic<uint32_t> exits_ = 0;
};

}  // namespace

int UsefulThreads(int threads, int64_t items, double nanoseconds_per_item) {
  const double total = static_cast<double>(items) * nanoseconds_per_item;
  const double worth = total / kNanosecondsPerThread;
  if (worth < 2 || threads < 2) return 1;
  return static_cast<int>(std::min<double>(
      {worth, static_cast<double>(threads), static_cast<double>(std::max<int64_t>(items, 1))}));
}

void ParallelForSlots(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                      Body body) {
  if (items <= 0) return;
  const int parts = inside_loop ? 1 : UsefulThreads(threads, items, nanoseconds_per_item);
  if (parts == 1) return body(0, 0, items);
  thread_local Team team;
  team.Run(Loop(items, nanoseconds_per_item, grain, parts, body), threads);
}

void ParallelFor(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  ParallelForSlots(threads, items, nanoseconds_per_item, grain,
                   [&](int, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace weft::cpu
