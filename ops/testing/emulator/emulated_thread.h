// What one thread of an emulated launch can do; EmulatedGpu (emulated_gpu.h) dresses it for bodies.
#ifndef WEFT_OPS_TESTING_EMULATOR_EMULATED_THREAD_H_
#define WEFT_OPS_TESTING_EMULATOR_EMULATED_THREAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/testing/emulator/fiber.h"
#include "ops/testing/emulator/memory_region.h"

namespace weft::testing {

class GridRun;
struct EmulatedBlock;
struct EmulatedWarp;

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic, kAtomicWrite };

// A line of a body.
struct CodeLine {
  const char* file = nullptr;
  int line = 0;
};

// Where threads wait for each other.
enum class Meeting : uint8_t {
  kNone,
  kBarrier,
  kWarpBarrier,
  kShuffle,
  kShuffleXor,
  kShuffleDown,
  kShuffleUp,
  kAny,
  kAll,
  kBallot,
};

// One thread of a block that runs. Its methods are called on its own fiber.
struct EmulatedThread {
  GridRun* run = nullptr;
  EmulatedBlock* block = nullptr;
  EmulatedWarp* warp = nullptr;
  int index = 0;

  // The allocation that an argument of the launch points into; a region without bytes where it
  // points nowhere.
  MemoryRegion& FindGlobal(const void* pointer);
  // Memory of the block. `tag` tells arrays apart.
  MemoryRegion& Shared(const void* tag, size_t bytes);
  MemoryRegion& DynamicShared();
  // Reports what is wrong with the access; false: it must not happen.
  bool Access(MemoryRegion& region, uintptr_t address, size_t bytes, size_t alignment,
              AccessKind kind);
  // After a good atomic access to global memory: may order blocks (GridRun).
  void OrderByAtomic(const MemoryRegion& region, uintptr_t address);
  void Fence();
  // Waits for all threads of the block.
  void Barrier(CodeLine at);
  // Waits for all threads of the warp; returns the bits that the meeting gives this thread.
  uint64_t MeetWarp(Meeting meeting, uint64_t bits, int argument, CodeLine at);

  // Of GridRun.
  std::unique_ptr<Fiber> fiber = nullptr;
  Meeting waits_at = Meeting::kNone;
  CodeLine line = {};
  uint64_t bits = 0;
  int argument = 0;
  bool has_ended = false;
  bool is_dirty = false;  // wrote to global memory since its last fence
  bool has_fenced = false;
  // The number of its accesses now, plain and atomic, and the version of that.
  uint32_t access[2] = {0, 0};
  uint64_t access_version[2] = {~uint64_t{0}, ~uint64_t{0}};
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_EMULATED_THREAD_H_
