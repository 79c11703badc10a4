#include "ops/kernels/cpu/parallel.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "tensor/buffer.h"

namespace weft::cpu {
namespace {

// A range should be worth this much, so that taking it costs nothing beside it.
constexpr double kNanosecondsPerRange = 8'000;
// Ranges that a share is cut into at most.
constexpr double kRangesPerShare = 8;
// About 50 microseconds: what waking a thread costs.
constexpr int kSpins = 2'000;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `word` is not `old` any more.
void AwaitChange(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  word.wait(old, std::memory_order_acquire);
}

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

// Whether this thread is within a loop, as its caller or as a helper.
thread_local bool inside_loop = false;

// The helpers of one calling thread.
class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  ~Crew() {
    stopping_ = true;
    Post();
    for (std::thread& helper : helpers_) helper.join();
  }

  void Run(const Loop& loop) {
    Grow(loop.parts);
    loop_ = &loop;
    for (int i = 0; i < loop.parts; ++i) {
      places_[i].next.store(loop.share * i, std::memory_order_relaxed);
      places_[i].end = std::min(loop.items, loop.share * (i + 1));
    }
    gate_.store(kOpen, std::memory_order_release);
    Post();
    inside_loop = true;
    Work(0);
    inside_loop = false;
    // Who has not come in by now is not waited for.
    gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
    while (const uint32_t inside = gate_.load(std::memory_order_acquire)) {
      AwaitChange(gate_, inside);
    }
  }

 private:
  // Beyond the number of helpers that are within the loop.
  static constexpr uint32_t kOpen = 1u << 31;

  // What is left of a share.
  struct alignas(kAlignment) Place {
    std::atomic<int64_t> next;
    int64_t end;
  };

  void Post() {
    posted_.fetch_add(1, std::memory_order_release);
    posted_.notify_all();
  }

  void Grow(int parts) {
    if (parts <= places_count_) return;
    places_ = std::make_unique<Place[]>(parts);
    places_count_ = parts;
    const uint32_t posted = posted_.load(std::memory_order_relaxed);
    while (static_cast<int>(helpers_.size()) + 1 < parts) {
      const int slot = static_cast<int>(helpers_.size()) + 1;
      try {
        helpers_.emplace_back([this, slot, posted] { Help(slot, posted); });
      } catch (const std::system_error&) {
        return;  // no more threads to be had: those that are do the work
      }
    }
  }

  void Help(int slot, uint32_t seen) {
    inside_loop = true;
    for (;;) {
      AwaitChange(posted_, seen);
      seen = posted_.load(std::memory_order_acquire);
      if (stopping_) return;
      if (!Enter()) continue;
      if (slot < loop_->parts) Work(slot);
      if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_all();
    }
  }

  bool Enter() {
    uint32_t gate = gate_.load(std::memory_order_acquire);
    while ((gate & kOpen) != 0) {
      if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
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

  std::vector<std::thread> helpers_;
  std::unique_ptr<Place[]> places_;  // one per share
  int places_count_ = 0;
  const Loop* loop_ = nullptr;  // while the gate is open or someone is inside
  std::atomic<bool> stopping_ = false;
  alignas(kAlignment) std::atomic<uint32_t> posted_ = 0;  // loops so far; helpers sleep on it
  alignas(kAlignment) std::atomic<uint32_t> gate_ = 0;
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
  thread_local Crew crew;
  crew.Run(Loop(items, nanoseconds_per_item, grain, parts, body));
}

void ParallelFor(int threads, int64_t items, double nanoseconds_per_item, int64_t grain,
                 absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  ParallelForSlots(threads, items, nanoseconds_per_item, grain,
                   [&](int, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace weft::cpu
