// GridRun: one launch on the emulator, from its first block to its last.
#ifndef WEFT_OPS_TESTING_EMULATOR_GRID_RUN_H_
#define WEFT_OPS_TESTING_EMULATOR_GRID_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/testing/emulator/emulated_launch.h"
#include "ops/testing/emulator/emulated_thread.h"
#include "ops/testing/emulator/memory_region.h"
#include "ops/testing/emulator/warp_traffic.h"

namespace weft::testing {

// For block b of a launch, the last of its releases that another block has seen.
using SeenReleases = std::unordered_map<uint32_t, uint32_t>;

struct EmulatedWarp {
  int index = 0;
  uint32_t lanes = 0;     // that exist
  uint32_t runnable = 0;  // lanes that neither wait nor have ended
  uint32_t arrived = 0;   // lanes that wait for the warp
  uint32_t epoch = 0;     // WarpBarriers so far
  uint32_t readers = 0;   // the number of readers of this warp at once, and its version
  uint64_t readers_version = ~uint64_t{0};
  WarpTraffic traffic = {};
};

struct SharedArray {
  const void* tag = nullptr;
  std::vector<uint8_t> bytes;
  std::unique_ptr<MemoryRegion> region;
};

// A block that has begun and not ended.
struct EmulatedBlock {
  uint32_t number = 0;  // in the grid
  int64_t x = 0;
  int64_t y = 0;
  int64_t z = 0;
  std::vector<EmulatedThread> threads;
  std::vector<EmulatedWarp> warps;
  uint32_t runnable_warps = 0;
  int ended = 0;
  int at_barrier = 0;
  uint32_t epoch = 0;    // barriers so far
  uint32_t stamp = 1;    // releases so far (OrderByAtomic)
  uint64_t version = 0;  // of epoch and stamp
  uint32_t readers = 0;
  uint64_t readers_version = ~uint64_t{0};
  bool is_dirty = false;    // some thread came to a barrier without a fence after its writes
  bool has_fenced = false;  // some thread that came to a barrier had
  SeenReleases seen;
  std::vector<std::unique_ptr<SharedArray>> shared;
};

struct GridRunOptions {
  uint64_t seed = 1;
  // Accesses, meetings and begun threads of a launch; one that takes more is stuck.
  int64_t max_steps = 50'000'000;
  // CUDA says that shuffles and votes do not order memory.
  bool shuffles_order_memory = false;
  bool counts_traffic = false;
};

// What a launch needs of its device.
struct GridSurroundings {
  EmulatedMemory& memory;
  uint32_t first_access = kFirstAccess;  // of the launch; earlier work has smaller numbers
  // Whether earlier work on the device, which has this number, comes before the launch.
  std::function<bool(uint32_t access)> is_before;
  // Who did earlier work, in words.
  std::function<std::string(uint32_t access)> describe;
  std::function<void(std::string where, std::string what)> report;
};

// Runs the threads of a grid as fibers of the calling thread, in an order drawn from the seed:
// blocks in any order and several at once, warps of a block, and threads of a warp. Checks each
// access to memory.
//
// Two accesses of one byte, one of them a write, are a race unless both are atomic, or one thread
// does both, or the threads met in between: at a barrier of their block, or a WarpBarrier of their
// warp. Blocks are ordered by fences and atomics alone: what a block wrote and fenced before an
// atomic on a place comes before what another block does after it took an atomic there. (This looks
// at blocks, not at their threads: it forgives more than CUDA's memory model.)
class GridRun {
 public:
  // REQUIRES: a valid grid with blocks and threads (EmulateGrid).
  GridRun(const cuda::LaunchGrid& grid, const EmulatedBody& body, const GridRunOptions& options,
          GridSurroundings surroundings);
  ~GridRun();

  void Run();

  // Bytes of global memory; an access of several threads counts several times.
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_written() const { return bytes_written_; }
  // Nothing without GridRunOptions::counts_traffic.
  const TrafficCount& traffic() const { return traffic_; }
  // Numbers of accesses that the launch took from first_access on.
  uint32_t accesses() const { return static_cast<uint32_t>(stretches_.size()); }

 private:
  friend struct EmulatedThread;

  // What one thread, or several at once, does between two meetings.
  struct Stretch {
    enum class Of : uint8_t { kThread, kWarp, kBlock, kGrid };
    uint32_t block;
    int16_t thread;
    Of of;
    bool is_atomic;
    uint32_t block_epoch;
    uint32_t warp_epoch;
    uint32_t stamp;
  };
  enum class Order : uint8_t { kRandom, kForward, kBackward };

  // -- Who runs when (grid_run.cc).
  uint64_t Random();
  uint64_t Random(uint64_t below) { return Random() % below; }
  void AdmitBlocks();
  void BeginBlock(uint32_t number);
  void EndBlock(size_t resident);
  // A bit of the mask, which is not 0.
  int Pick(uint32_t mask);
  void RunSomeThreads(EmulatedBlock& block);
  static void RunThread(void* thread);
  // On the fiber of a thread.
  void Step(EmulatedThread& thread);
  void Yield(EmulatedThread& thread);
  [[noreturn]] void GiveUp(EmulatedThread& thread);
  void Wake(EmulatedBlock& block, EmulatedThread& thread);
  void FinishBarrier(EmulatedBlock& block);
  void FinishWarp(EmulatedBlock& block, EmulatedWarp& warp);
  uint64_t BitsFor(const EmulatedBlock& block, const EmulatedThread& thread, uint32_t votes);
  void ReportStuck(const EmulatedBlock& block);

  // -- What they may touch (grid_access.cc).
  MemoryRegion& FindGlobal(const void* pointer);
  bool Access(EmulatedThread& thread, MemoryRegion& region, uintptr_t address, size_t bytes,
              size_t alignment, AccessKind kind);
  bool IsInside(EmulatedThread& thread, const MemoryRegion& region, uintptr_t address, size_t bytes,
                size_t alignment, AccessKind kind);
  // What CheckOrder has found in the bytes of an access, and whose accesses it looked at last.
  struct OrderCheck {
    uint32_t own;
    uint32_t good_write;
    uint32_t good_read;
    uint32_t former_readers;
    uint32_t new_readers;
    bool is_unwritten = false;
    uint32_t raced = 0;
    bool raced_with_write = false;
  };
  void CheckOrder(EmulatedThread& thread, MemoryRegion& region, size_t offset, size_t bytes,
                  AccessKind kind);
  void CheckWriter(EmulatedThread& thread, const ByteShadow& byte, AccessKind kind,
                   OrderCheck& check);
  void CheckReaders(EmulatedThread& thread, const ByteShadow& byte, OrderCheck& check);
  void AddReader(EmulatedThread& thread, ByteShadow& byte, OrderCheck& check);
  uint32_t NumberOf(EmulatedThread& thread, bool is_atomic);
  uint32_t NewStretch(const EmulatedThread& thread, Stretch::Of of, bool is_atomic);
  bool IsBefore(uint32_t access, const EmulatedThread& thread);
  // The number of the readers `former` and `thread`, which reads as `own`.
  uint32_t ReadersWith(uint32_t former, uint32_t own, EmulatedThread& thread);
  bool IsAtomic(uint32_t access) const;
  void OrderByAtomic(EmulatedThread& thread, uintptr_t address);
  MemoryRegion& Shared(EmulatedThread& thread, const void* tag, size_t bytes);

  void Report(const EmulatedThread& thread, const std::string& what);
  std::string Place(const MemoryRegion& region, uintptr_t address) const;
  std::string Who(uint32_t access, const EmulatedThread& thread) const;

  const cuda::LaunchGrid grid_;
  const EmulatedBody body_;
  const GridRunOptions options_;
  const GridSurroundings surroundings_;
  uint64_t random_;
  Order order_ = Order::kRandom;

  uint64_t total_blocks_;
  uint64_t begun_ = 0;
  std::vector<uint32_t> block_order_;
  size_t max_resident_ = 1;
  std::vector<std::unique_ptr<EmulatedBlock>> resident_;
  std::vector<std::unique_ptr<EmulatedBlock>> spare_;
  std::unique_ptr<Fiber> spare_fiber_;
  int64_t steps_ = 0;
  int64_t until_yield_ = 0;
  bool has_given_up_ = false;
  int64_t reports_ = 0;

  std::vector<Stretch> stretches_;
  uint32_t grid_readers_ = 0;
  std::unordered_map<uintptr_t, SeenReleases> released_;
  std::vector<std::shared_ptr<MemoryRegion>> used_;  // regions that this launch found
  MemoryRegion nowhere_;
  // The answers of surroundings_.is_before.
  std::unordered_map<uint32_t, bool> earlier_;
  uint32_t last_earlier_ = 0;
  bool last_is_before_ = true;
  bool has_reported_static_shared_ = false;
  int64_t bytes_read_ = 0;
  int64_t bytes_written_ = 0;
  TrafficCount traffic_;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_GRID_RUN_H_
