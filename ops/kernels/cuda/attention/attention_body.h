// Bodies of attention: masked softmax of scores, masks, caches of keys and values.
#ifndef WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_BODY_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/kernels/cuda/attention/attention_launch.h"
#include "ops/kernels/cuda/blocks/any_number.h"
#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// Keys [begin, end).
struct KeySpan {
  int64_t begin;
  int64_t end;
};

// The keys of query `query` in a sample with `valid` of them.
WEFT_GPU KeySpan SpanOf(const AttendedKeys& keys, int64_t valid, int64_t query) {
  // How many keys come before the first query.
  int64_t before = keys.has_past ? keys.past : 0;
  if (!keys.has_past && keys.lengths != nullptr) before = valid - keys.queries;
  const int64_t position = query + before;
  int64_t end = valid < keys.mask_columns ? valid : keys.mask_columns;
  if (keys.causal && position + 1 < end) end = position + 1;
  if (keys.right >= 0 && keys.right < keys.total && position + keys.right + 1 < end) {
    end = position + keys.right + 1;
  }
  if (end < 0) end = 0;
  int64_t begin = keys.left >= 0 && keys.left <= position ? position - keys.left : 0;
  if (begin > end) begin = end;
  return {begin, end};
}

// AttentionSoftmax. A block computes row after row: the largest score, the sum of the powers, then
// the probabilities. Sums over short runs are in the type of the scores, those of runs in float64.
template <typename T>
struct AttentionSoftmaxBody {
  using Score = Compute<T>;

  AttentionSoftmax of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t rows = of.samples * of.heads * of.queries;
    for (int64_t row = gpu.block(); row < rows; row += gpu.blocks()) RunRow(gpu, row);
  }

 private:
  static constexpr int kRun = 16;
  static constexpr Score kNever = -std::numeric_limits<Score>::infinity();

  // Where a row lies.
  struct Row {
    int64_t scores;  // its first element of the scores of this launch
    int64_t output;  // and of the stage output
    int64_t mask;
    uint32_t begin;  // keys that are attended: [begin, end)
    uint32_t end;
  };

  template <class Gpu>
  WEFT_GPU Row Find(Gpu& gpu, int64_t row) const {
    const int64_t head_row = row / of.queries;
    const int64_t query = of.first_query + (row - head_row * of.queries);
    const int64_t of_piece = head_row / of.heads;
    const int64_t head = of.first_head + (head_row - of_piece * of.heads);
    const int64_t sample = of.first_sample + of_piece;
    int64_t valid = of.keys.total;
    if (of.keys.lengths != nullptr) {
      const int64_t length = gpu.Global(of.keys.lengths)[sample];
      if (gpu.thread() != 0 || InRange(gpu, of.lengths_fault, length, sample)) valid = length;
      if (length < 0 || length > of.keys.total) valid = 0;
    }
    Row found;
    found.scores = row * of.keys.total;
    found.output = ((sample * of.all_heads + head) * of.keys.queries + query) * of.keys.total;
    found.mask =
        sample * of.mask_strides[0] + head * of.mask_strides[1] + query * of.mask_strides[2];
    const KeySpan span = SpanOf(of.keys, valid, query);
    found.begin = static_cast<uint32_t>(span.begin);
    found.end = static_cast<uint32_t>(span.end);
    return found;
  }

  template <class Gpu>
  WEFT_GPU static uint32_t Thread(Gpu& gpu) {
    return static_cast<uint32_t>(gpu.thread());
  }
  template <class Gpu>
  WEFT_GPU static uint32_t Threads(Gpu& gpu) {
    return static_cast<uint32_t>(gpu.threads());
  }

  WEFT_GPU Score Capped(Score score) const {
    const auto cap = static_cast<Score>(of.softcap);
    return of.softcap > 0 ? cap * std::tanh(score / cap) : score;
  }

  // The score of key `j` with all that is added to it.
  template <class Gpu>
  WEFT_GPU Score Biased(Gpu& gpu, const Row& row, uint32_t j) const {
    const Score score = gpu.Global(static_cast<const Score*>(of.scores))[row.scores + j];
    if (of.mask == nullptr) return Capped(score);
    const Score bias =
        gpu.Global(static_cast<const Score*>(of.mask))[row.mask + j * of.mask_strides[3]];
    return bias == kNever ? kNever : Capped(score) + bias;
  }

  template <class Gpu>
  WEFT_GPU void RunRow(Gpu& gpu, int64_t number) const {
    const Row row = Find(gpu, number);
    Score largest = kNever;
    for (uint32_t j = row.begin + Thread(gpu); j < row.end; j += Threads(gpu)) {
      largest = Larger()(Biased(gpu, row, j), largest);
    }
    largest = BlockReduce<0>(gpu, largest, kNever, Larger());
    const double sum = BlockReduce<1>(gpu, SumOfThread(gpu, row, largest), 0.0, Plus());
    const double factor = sum == 0 ? 0 : 1 / sum;
    const auto total = static_cast<uint32_t>(of.keys.total);
    for (uint32_t j = Thread(gpu); j < total; j += Threads(gpu)) {
      Finish(gpu, row, j, largest, static_cast<Score>(factor));
    }
  }

  template <class Gpu>
  WEFT_GPU double SumOfThread(Gpu& gpu, const Row& row, Score largest) const {
    if (largest == kNever) return 0;
    double sum = 0;
    uint32_t j = row.begin + Thread(gpu);
    while (j < row.end) {
      Score run = 0;
      for (int n = 0; n < kRun && j < row.end; ++n, j += Threads(gpu)) {
        run += std::exp(Biased(gpu, row, j) - largest);
      }
      sum += static_cast<double>(run);
    }
    return sum;
  }

  // Writes the probability of key `j`, and what else is wanted of it.
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, const Row& row, uint32_t j, Score largest, Score factor) const {
    const bool attended = j >= row.begin && j < row.end;
    const Score biased = attended ? Biased(gpu, row, j) : kNever;
    Score probability = 0;
    if (attended && largest != kNever) probability = std::exp(biased - largest) * factor;
    if (of.stage_output != nullptr) {
      Score value = probability;
      if (of.stage == ScoresStage::kBiased) value = biased;
      if (of.stage == ScoresStage::kRaw || of.stage == ScoresStage::kCapped) {
        value = gpu.Global(static_cast<const Score*>(of.scores))[row.scores + j];
        if (of.stage == ScoresStage::kCapped) value = Capped(value);
      }
      gpu.Global(static_cast<T*>(of.stage_output))[row.output + j] = Narrow<T>(value);
    }
    gpu.Global(static_cast<T*>(of.probabilities))[row.scores + j] = Narrow<T>(probability);
  }
};

// MaskToBias, to B: a mask is of any number type, or bool.
template <typename B>
struct MaskToBiasBody {
  static constexpr B kNever = -std::numeric_limits<B>::infinity();

  MaskToBias of;
  DType mask_dtype;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto bias = gpu.Global(static_cast<B*>(of.bias));
    for (int64_t i = gpu.index(); i < of.count; i += gpu.stride()) {
      const double value = ToDouble(ReadAny(gpu, of.mask, mask_dtype, i));
      if (mask_dtype == DType::kBool) {
        bias[i] = value != 0 ? B{0} : kNever;
      } else {
        bias[i] = static_cast<B>(value);
      }
    }
  }
};

// JoinPast, of elements as wide as T.
template <typename T, typename Index>
struct JoinPastBody {
  JoinPast of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto past_rows = gpu.Global(static_cast<const T*>(of.past_rows));
    const auto rows = gpu.Global(static_cast<const T*>(of.rows));
    const auto joined = gpu.Global(static_cast<T*>(of.joined));
    const auto size = static_cast<Index>(of.size);
    const auto total = static_cast<Index>(of.past + of.keys);
    const auto heads = static_cast<Index>(of.heads);
    const auto past = static_cast<Index>(of.past);
    const Index count = static_cast<Index>(of.batch) * heads * total * size;
    for (Index i = static_cast<Index>(gpu.index()); i < count;
         i += static_cast<Index>(gpu.stride())) {
      const Index row = i / size;
      const Index element = i - row * size;
      const Index head_row = row / total;
      const Index key = row - head_row * total;
      T value;
      if (key < past) {
        value = past_rows[static_cast<int64_t>((head_row * past + key) * size + element)];
      } else {
        const Index now = key - past;
        const Index keys = static_cast<Index>(of.keys);
        const Index sample = head_row / heads;
        const Index head = head_row - sample * heads;
        const Index from = of.packed ? (sample * keys + now) * heads + head : head_row * keys + now;
        value = rows[static_cast<int64_t>(from * size + element)];
      }
      joined[static_cast<int64_t>(i)] = value;
    }
  }
};

// RotatePairs. A thread turns a pair, or copies an element behind the pairs.
template <typename T, typename Index>
struct RotatePairsBody {
  RotatePairs of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto slots = static_cast<Index>(of.size - of.half);
    const Index count = static_cast<Index>(of.batch * of.heads * of.length) * slots;
    for (Index i = static_cast<Index>(gpu.index()); i < count;
         i += static_cast<Index>(gpu.stride())) {
      const Index row = i / slots;
      Turn(gpu, row, static_cast<int64_t>(i - row * slots));
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU void Turn(Gpu& gpu, Index row, int64_t slot) const {
    const int64_t begin = static_cast<int64_t>(row) * of.size;
    const auto x = gpu.Global(static_cast<const T*>(of.x)) + begin;
    const auto y = gpu.Global(static_cast<T*>(of.y)) + begin;
    if (slot >= of.half) {
      const T value = x[slot + of.half];
      y[slot + of.half] = value;
      return;
    }
    const int64_t angle = AngleRow(gpu, row) * of.half + slot;
    const T cosine = gpu.Global(static_cast<const T*>(of.cosines))[angle];
    const T sine = gpu.Global(static_cast<const T*>(of.sines))[angle];
    const int64_t first = of.interleaved ? 2 * slot : slot;
    const int64_t second = of.interleaved ? first + 1 : slot + of.half;
    const T a = x[first];
    const T b = x[second];
    y[first] = Narrow<T>(Widen(cosine) * Widen(a) - Widen(sine) * Widen(b));
    y[second] = Narrow<T>(Widen(sine) * Widen(a) + Widen(cosine) * Widen(b));
  }

  // The row of the caches for a row of x.
  template <class Gpu>
  WEFT_GPU int64_t AngleRow(Gpu& gpu, Index row) const {
    const auto heads = static_cast<Index>(of.heads);
    const auto length = static_cast<Index>(of.length);
    const Index sample = of.packed ? row / heads : row / length / heads * length + row % length;
    if (of.positions == nullptr) return static_cast<int64_t>(sample);
    const int64_t position = gpu.Global(of.positions)[static_cast<int64_t>(sample)];
    return InRange(gpu, of.positions_fault, position, static_cast<int64_t>(sample)) ? position : 0;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_BODY_H_
