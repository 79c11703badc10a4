// EmulatedGpu: the Gpu of bodies (ops/kernels/cuda/language/gpu.h) on the emulator.
#ifndef WEFT_OPS_TESTING_EMULATOR_EMULATED_GPU_H_
#define WEFT_OPS_TESTING_EMULATOR_EMULATED_GPU_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/testing/emulator/checked_pointer.h"

namespace weft::testing {

// Where a thread is in its launch.
struct ThreadPlace {
  int thread = 0;
  int threads = 1;
  int64_t block = 0;
  int64_t block_y = 0;
  int64_t block_z = 0;
  int64_t blocks = 1;
};

namespace emulator_internal {
// One array of shared memory: its address is its name.
template <int kId, typename T, int kCount>
inline constexpr char kSharedTag = 0;
}  // namespace emulator_internal

// One thread of an emulated launch. Offers what gpu.h lists, with its meaning; what a body does
// wrong is reported to the device (EmulatedDevice::Verify).
class EmulatedGpu {
 public:
  EmulatedGpu(EmulatedThread& thread, const ThreadPlace& place) : thread_(thread), place_(place) {}
  EmulatedGpu(const EmulatedGpu&) = delete;

  int thread() const { return place_.thread; }
  int threads() const { return place_.threads; }
  int lane() const { return place_.thread % cuda::kWarp; }
  int warp() const { return place_.thread / cuda::kWarp; }
  int warps() const { return (place_.threads + cuda::kWarp - 1) / cuda::kWarp; }
  int64_t block() const { return place_.block; }
  int64_t block_y() const { return place_.block_y; }
  int64_t block_z() const { return place_.block_z; }
  int64_t blocks() const { return place_.blocks; }
  int64_t index() const { return place_.block * place_.threads + place_.thread; }
  int64_t stride() const { return place_.blocks * place_.threads; }

  template <typename T>
  CheckedPointer<T> Global(T* pointer) const {
    return {thread_, thread_.FindGlobal(pointer), reinterpret_cast<uintptr_t>(pointer)};
  }
  template <int N, typename T>
  cuda::Packet<cuda::Plain<T>, N> Load(CheckedPointer<T> memory, int64_t i) const {
    return (memory + i).template Read<cuda::Packet<cuda::Plain<T>, N>>();
  }
  template <int N, typename T>
  void Store(CheckedPointer<T> memory, int64_t i, const cuda::Packet<T, N>& packet) const {
    (memory + i).template Write<cuda::Packet<T, N>>(packet);
  }
  template <int kId, typename T, int kCount>
  CheckedPointer<T> Shared() const {
    MemoryRegion& region = thread_.Shared(&emulator_internal::kSharedTag<kId, T, kCount>,
                                          sizeof(T) * static_cast<size_t>(kCount));
    return {thread_, region, reinterpret_cast<uintptr_t>(region.data)};
  }
  template <typename T>
  CheckedPointer<T> DynamicShared(size_t byte) const {
    MemoryRegion& region = thread_.DynamicShared();
    return {thread_, region, reinterpret_cast<uintptr_t>(region.data) + byte};
  }

  void Barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    thread_.Barrier({file, line});
  }
  void WarpBarrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    thread_.MeetWarp(Meeting::kWarpBarrier, 0, 0, {file, line});
  }
  void Fence() const { thread_.Fence(); }

  template <typename T>
  T Shuffle(T value, int lane, const char* file = __builtin_FILE(),
            int line = __builtin_LINE()) const {
    return Exchange(Meeting::kShuffle, value, lane, {file, line});
  }
  template <typename T>
  T ShuffleXor(T value, int mask, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) const {
    return Exchange(Meeting::kShuffleXor, value, mask, {file, line});
  }
  template <typename T>
  T ShuffleDown(T value, int delta, const char* file = __builtin_FILE(),
                int line = __builtin_LINE()) const {
    return Exchange(Meeting::kShuffleDown, value, delta, {file, line});
  }
  template <typename T>
  T ShuffleUp(T value, int delta, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) const {
    return Exchange(Meeting::kShuffleUp, value, delta, {file, line});
  }
  bool Any(bool value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return thread_.MeetWarp(Meeting::kAny, value ? 1 : 0, 0, {file, line}) != 0;
  }
  bool All(bool value, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return thread_.MeetWarp(Meeting::kAll, value ? 1 : 0, 0, {file, line}) != 0;
  }
  uint32_t Ballot(bool value, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) const {
    return static_cast<uint32_t>(
        thread_.MeetWarp(Meeting::kBallot, value ? 1 : 0, 0, {file, line}));
  }

  template <typename T>
  T AtomicAdd(CheckedPointer<T> memory, int64_t i, T value) const {
    using Unsigned = std::make_unsigned_t<T>;
    return Atomic(memory, i, [value](T old) {
      return static_cast<T>(static_cast<Unsigned>(old) + static_cast<Unsigned>(value));
    });
  }
  template <typename T>
  T AtomicMax(CheckedPointer<T> memory, int64_t i, T value) const {
    return Atomic(memory, i, [value](T old) { return std::max(old, value); });
  }
  template <typename T>
  T AtomicMin(CheckedPointer<T> memory, int64_t i, T value) const {
    return Atomic(memory, i, [value](T old) { return std::min(old, value); });
  }
  template <typename T>
  T AtomicExchange(CheckedPointer<T> memory, int64_t i, T value) const {
    return Atomic(
        memory, i, [value](T) { return value; }, AccessKind::kAtomicWrite);
  }
  template <typename T>
  T AtomicOr(CheckedPointer<T> memory, int64_t i, T value) const {
    return Atomic(memory, i, [value](T old) { return static_cast<T>(old | value); });
  }
  template <typename T>
  T AtomicCompareExchange(CheckedPointer<T> memory, int64_t i, T expected, T desired) const {
    return Atomic(memory, i,
                  [expected, desired](T old) { return old == expected ? desired : old; });
  }

 private:
  template <typename T>
  T Exchange(Meeting meeting, T value, int argument, CodeLine at) const {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "CUDA shuffles plain numbers alone");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = thread_.MeetWarp(meeting, bits, argument, at);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  template <typename T, typename Next>
  T Atomic(CheckedPointer<T> memory, int64_t i, Next next,
           AccessKind kind = AccessKind::kAtomic) const {
    static_assert(std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t> ||
                      std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>,
                  "CUDA has atomics of 32-bit and 64-bit integers");
    return (memory + i).Update(next, kind);
  }

  EmulatedThread& thread_;
  const ThreadPlace place_;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_EMULATED_GPU_H_
