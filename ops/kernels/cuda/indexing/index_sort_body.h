// Bodies that put keys in order: a stable radix sort, eight bits of the keys at a time.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_SORT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_SORT_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/indexing/index_sort_launch.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

inline constexpr int kRankThreads = 256;
inline constexpr int kRankWarps = kRankThreads / kWarp;

// For few keys. The place of key i is the number of keys before it: smaller ones, and equal ones
// with a smaller i. A warp counts for one key, all n^2 pairs are looked at.
struct RankSortBody {
  const uint32_t* keys;
  uint32_t* sorted_keys;
  uint32_t* order;
  int32_t count;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto all = gpu.Global(keys);
    const int64_t warps = gpu.blocks() * gpu.warps();
    for (int64_t i = gpu.block() * gpu.warps() + gpu.warp(); i < count; i += warps) {
      const uint32_t own = all[i];
      int32_t before = 0;
      for (int32_t j = gpu.lane(); j < count; j += kWarp) {
        const uint32_t other = all[j];
        before += other < own || (other == own && j < i) ? 1 : 0;
      }
      WEFT_UNROLL
      for (int mask = kWarp / 2; mask > 0; mask /= 2) before += gpu.ShuffleXor(before, mask);
      if (gpu.lane() != 0) continue;
      gpu.Global(sorted_keys)[before] = own;
      gpu.Global(order)[before] = static_cast<uint32_t>(i);
    }
  }
};

inline constexpr int kDigits = 256;
// Keys that a block puts in order in one pass; one for each thread at a time.
inline constexpr int kRadixThreads = 256;
inline constexpr int kRadixKeys = 2048;

WEFT_GPU int DigitOf(uint32_t key, int shift) { return static_cast<int>(key >> shift & 255U); }

// counts[digit * blocks + block] = how many keys of the block have the digit.
struct RadixCountBody {
  const uint32_t* keys;
  uint32_t* counts;
  int64_t count;
  int shift;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto found = gpu.template Shared<0, uint32_t, kDigits>();
    for (int d = gpu.thread(); d < kDigits; d += gpu.threads()) found[d] = 0;
    gpu.Barrier();
    const int64_t begin = gpu.block() * kRadixKeys;
    for (int j = gpu.thread(); j < kRadixKeys && begin + j < count; j += gpu.threads()) {
      const uint32_t key = gpu.Global(keys)[begin + j];
      gpu.AtomicAdd(found, DigitOf(key, shift), uint32_t{1});
    }
    gpu.Barrier();
    for (int d = gpu.thread(); d < kDigits; d += gpu.threads()) {
      gpu.Global(counts)[d * gpu.blocks() + gpu.block()] = static_cast<uint32_t>(found[d]);
    }
  }
};

// Replaces numbers by the sums of those before them. One block of 1024 threads; each takes a run.
inline constexpr int kScanThreads = 1024;
struct ScanBody {
  uint32_t* values;
  int64_t count;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto sums = gpu.template Shared<0, uint32_t, kWarp>();
    const auto all = gpu.Global(values);
    uint32_t before = 0;  // of the stretches that are done
    for (int64_t begin = 0; begin < count; begin += kScanThreads) {
      const int64_t i = begin + gpu.thread();
      uint32_t own = 0;
      if (i < count) own = all[i];
      uint32_t sum = own;
      WEFT_UNROLL
      for (int delta = 1; delta < kWarp; delta *= 2) {
        const uint32_t other = gpu.ShuffleUp(sum, delta);
        if (gpu.lane() >= delta) sum += other;
      }
      if (gpu.lane() == kWarp - 1) sums[gpu.warp()] = sum;
      gpu.Barrier();
      uint32_t of_warps = gpu.lane() < gpu.warps() ? static_cast<uint32_t>(sums[gpu.lane()]) : 0;
      WEFT_UNROLL
      for (int delta = 1; delta < kWarp; delta *= 2) {
        const uint32_t other = gpu.ShuffleUp(of_warps, delta);
        if (gpu.lane() >= delta) of_warps += other;
      }
      // What the warps before have; of_warps of a lane includes the warp of its number.
      const uint32_t former = gpu.Shuffle(of_warps, gpu.warp() > 0 ? gpu.warp() - 1 : 0);
      const uint32_t warps_before = gpu.warp() > 0 ? former : 0;
      if (i < count) all[i] = before + warps_before + sum - own;
      before += gpu.Shuffle(of_warps, kWarp - 1);
      gpu.Barrier();
    }
  }
};

// Moves the keys of a block to their places: `starts` is `counts` after the scan. In rounds of a
// key for each thread, whose order is kept: before a key come those of former rounds, of former
// warps, and of lanes before it.
struct RadixMoveBody {
  const uint32_t* keys;
  const uint32_t* order;  // null: 0, 1, 2, ...
  const uint32_t* starts;
  uint32_t* moved_keys;
  uint32_t* moved_order;
  int64_t count;
  int shift;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    constexpr int kWarps = kRadixThreads / kWarp;
    // Where the next key with a digit goes, then how many of a round each warp has.
    const auto next = gpu.template Shared<0, uint32_t, kDigits>();
    const auto of_warp = gpu.template Shared<1, uint32_t, kDigits * kWarps>();
    for (int d = gpu.thread(); d < kDigits; d += gpu.threads()) {
      next[d] = static_cast<uint32_t>(gpu.Global(starts)[d * gpu.blocks() + gpu.block()]);
    }
    const int64_t begin = gpu.block() * kRadixKeys;
    for (int round = 0; round < kRadixKeys / kRadixThreads; ++round) {
      const int64_t i = begin + round * kRadixThreads + gpu.thread();
      for (int d = gpu.thread(); d < kDigits * kWarps; d += gpu.threads()) of_warp[d] = 0;
      gpu.Barrier();
      const bool has_key = i < count;
      uint32_t key = 0;
      if (has_key) key = gpu.Global(keys)[i];
      const int digit = DigitOf(key, shift);
      // The lanes with the same digit.
      uint32_t same = gpu.Ballot(has_key);
      WEFT_UNROLL
      for (int bit = 0; bit < 8; ++bit) {
        const bool is_set = (digit >> bit & 1) != 0;
        const uint32_t set = gpu.Ballot(is_set);
        same &= is_set ? set : ~set;
      }
      const uint32_t before = same & ((uint32_t{1} << gpu.lane()) - 1);
      const int rank = Bits(before);
      if (has_key && rank == 0) of_warp[digit * kWarps + gpu.warp()] = Bits(same);
      gpu.Barrier();
      if (has_key) {
        uint32_t place = next[digit];
        for (int w = 0; w < gpu.warp(); ++w) {
          place += static_cast<uint32_t>(of_warp[digit * kWarps + w]);
        }
        place += rank;
        gpu.Global(moved_keys)[place] = key;
        uint32_t source = static_cast<uint32_t>(i);
        if (order != nullptr) source = gpu.Global(order)[i];
        gpu.Global(moved_order)[place] = source;
      }
      gpu.Barrier();
      for (int d = gpu.thread(); d < kDigits; d += gpu.threads()) {
        uint32_t sum = next[d];
        WEFT_UNROLL
        for (int w = 0; w < kWarps; ++w) sum += static_cast<uint32_t>(of_warp[d * kWarps + w]);
        next[d] = sum;
      }
      gpu.Barrier();
    }
  }

 private:
  // How many bits are set: Hacker's Delight, figure 5-2.
  WEFT_GPU static int Bits(uint32_t x) {
    x = x - (x >> 1 & 0x55555555U);
    x = (x & 0x33333333U) + (x >> 2 & 0x33333333U);
    x = (x + (x >> 4)) & 0x0f0f0f0fU;
    return static_cast<int>(x * 0x01010101U >> 24);
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_SORT_BODY_H_
