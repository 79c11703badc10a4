// The body of products of bytes.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_PRODUCT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_PRODUCT_BODY_H_

#include <cstdint>
#include <cstring>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/packet.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/byte_dot.h"
#include "ops/kernels/cuda/quantized/byte_output_body.h"

namespace weft::cuda {

inline constexpr int kByteTile = 64;  // rows and columns of Y that a block computes at once
inline constexpr int kByteStep = 64;  // neighbours of the sums that it holds in shared memory
inline constexpr int kByteThreads = 256;
// Four neighbours of a sum are a word, and words of four rows or columns a quad. A tile has so many
// quads, and words of a row.
inline constexpr int kTileQuads = kByteTile / 4;
inline constexpr int kStepWords = kByteStep / 4;
static_assert(kTileQuads * kStepWords == kByteThreads);  // a thread loads a quad of each operand

using ByteQuad = Packet<uint32_t, 4>;

WEFT_GPU uint32_t FlipOf(const ByteFormat& format) {
  return format.kind == ByteKind::kUnsigned ? kFlipBytes : 0;
}

// The zero point of a line, as the flipped bytes count.
template <class Gpu>
WEFT_GPU uint32_t FlippedZero(Gpu& gpu, const ByteFormat& format, const ByteLines& zeros,
                              int64_t matrix, int64_t line) {
  const auto zero = static_cast<int32_t>(zeros.At(gpu, matrix, line));
  return static_cast<uint32_t>(format.kind == ByteKind::kUnsigned ? zero - 128 : zero);
}

// The word of bytes [first, first + 4) of `bytes`, those from `present` on as 0.
template <class Gpu, class Bytes>
WEFT_GPU uint32_t WordAt(Gpu& gpu, const Bytes& bytes, int64_t first, int64_t present,
                         bool has_words) {
  uint32_t word = 0;
  if (has_words && present >= 4) {
    const Packet<uint8_t, 4> packet = gpu.template Load<4>(bytes, first);
    memcpy(&word, packet.values, sizeof(word));
    return word;
  }
  WEFT_UNROLL
  for (int v = 0; v < 4; ++v) {
    if (v >= present) break;
    const uint8_t byte = bytes[first + v];
    word |= static_cast<uint32_t>(byte) << (8 * v);
  }
  return word;
}

// The bytes of a word whose elements of the sum are before its end.
WEFT_GPU uint32_t PresentMask(int64_t present) {
  return present >= 4 ? ~0u : present <= 0 ? 0u : (1u << (8 * present)) - 1;
}

// B as it is: rows of n bytes.
struct PlainColumns {
  bool has_words;  // rows begin at multiples of a word

  // Columns [first, first + count) of a thread.
  struct Columns {
    int64_t first;
    int64_t count;
  };
  template <class Gpu>
  WEFT_GPU Columns Begin(Gpu& /*gpu*/, const ByteProduct& of, int64_t first) const {
    return {first, of.n - first};
  }

  // words[c]: elements l to l + 4 of column c, flipped, those behind the end as 0.
  template <class Gpu, class Bytes>
  WEFT_GPU void Load(Gpu& gpu, const ByteProduct& of, const Bytes& b, const Columns& columns,
                     int64_t l, uint32_t flip, uint32_t (&words)[4]) const {
    uint32_t rows[4];
    WEFT_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int64_t present = l + r < of.k ? columns.count : 0;
      rows[r] = WordAt(gpu, b, (l + r) * of.n + columns.first, present, has_words);
      if (present > 0) rows[r] ^= flip;
    }
    TransposeBytes(rows, words);
  }
};

// A block computes tiles of Y one after the other, a thread 4 x 4 of a tile's elements. Bytes are
// flipped to int8, and zero points come in at the end:
//   sum (a - p)(b - q) = sum a b - p sum b - q sum a + k p q, modulo 2^32.
// Right: where the columns of B come from. Output: what becomes of the sums.
template <class Right, class Output>
struct ByteProductBody {
  static constexpr int kMinBlocks = 2;

  ByteProduct of;
  bool has_a_words;  // A's rows begin at multiples of a word
  Right right;
  Output output;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t across = (of.n + kByteTile - 1) / kByteTile;
    const int64_t of_matrix = (of.m + kByteTile - 1) / kByteTile * across;
    for (int64_t tile = gpu.block(); tile < of.matrices * of_matrix; tile += gpu.blocks()) {
      const int64_t matrix = tile / of_matrix;
      const int64_t number = tile - matrix * of_matrix;
      const int64_t down = number / across;
      Compute(gpu, matrix, down * kByteTile, (number - down * across) * kByteTile);
    }
  }

 private:
  // What a thread has of a tile: products, and the sums of bytes of what it loads.
  struct Sums {
    uint32_t of_products[4][4] = {};
    uint32_t of_a[4] = {};
    uint32_t of_b[4] = {};
  };

  // Quad `quad` of word `word` of A's tile. Threads that store to one word's neighbours meet
  // different banks.
  WEFT_GPU static int PlaceOfA(int word, int quad) {
    return word * kTileQuads + (quad ^ (word % 8));
  }

  template <class Gpu>
  WEFT_GPU void Compute(Gpu& gpu, int64_t matrix, int64_t row, int64_t column) const {
    const auto a_tile = gpu.template Shared<0, ByteQuad, kByteThreads>();
    const auto b_tile = gpu.template Shared<1, ByteQuad, kByteThreads>();
    const auto a = gpu.Global(static_cast<const uint8_t*>(of.a)) + of.a_matrix.Offset(matrix);
    const auto b = gpu.Global(static_cast<const uint8_t*>(of.b)) + of.b_matrix.Offset(matrix);
    const int low = gpu.thread() % kTileQuads;
    const int high = gpu.thread() / kTileQuads;
    // Neighbours load neighbours of a row: words of A, quads of B.
    const int64_t a_row = row + 4 * high;
    const auto columns = right.Begin(gpu, of, column + 4 * low);
    const uint32_t b_flip = FlipOf(of.b_format);
    Sums sums;
    ByteQuad a_words;
    ByteQuad b_words;
    LoadA(gpu, a, a_row, 4 * low, a_words);
    right.Load(gpu, of, b, columns, 4 * high, b_flip, b_words.values);
    for (int64_t l = 0; l < of.k; l += kByteStep) {
      a_tile[PlaceOfA(low, high)] = a_words;
      b_tile[high * kTileQuads + low] = b_words;
      WEFT_UNROLL
      for (int v = 0; v < 4; ++v) {
        sums.of_a[v] = ByteDot(a_words.values[v], kOneBytes, sums.of_a[v]);
        sums.of_b[v] = ByteDot(b_words.values[v], kOneBytes, sums.of_b[v]);
      }
      gpu.Barrier();
      if (l + kByteStep < of.k) {  // on their way while the block multiplies
        LoadA(gpu, a, a_row, l + kByteStep + 4 * low, a_words);
        right.Load(gpu, of, b, columns, l + kByteStep + 4 * high, b_flip, b_words.values);
      }
      for (int word = 0; word < kStepWords; ++word) {
        const ByteQuad left = a_tile[PlaceOfA(word, high)];
        const ByteQuad top = b_tile[word * kTileQuads + low];
        WEFT_UNROLL
        for (int r = 0; r < 4; ++r) {
          WEFT_UNROLL
          for (int c = 0; c < 4; ++c) {
            sums.of_products[r][c] = ByteDot(left.values[r], top.values[c], sums.of_products[r][c]);
          }
        }
      }
      gpu.Barrier();
    }
    Finish(gpu, matrix, row + 4 * high, column + 4 * low, sums);
  }

  template <class Gpu, class Bytes>
  WEFT_GPU void LoadA(Gpu& gpu, const Bytes& a, int64_t row, int64_t l, ByteQuad& words) const {
    const uint32_t flip = FlipOf(of.a_format);
    WEFT_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int64_t present = row + r < of.m ? of.k - l : 0;
      const uint32_t word = WordAt(gpu, a, (row + r) * of.k + l, present, has_a_words);
      words.values[r] = (word ^ flip) & PresentMask(present);
    }
  }

  // Brings the sums of bytes from those who have parts of them, then the zero points.
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t matrix, int64_t row, int64_t column, Sums& sums) const {
    const auto of_rows = gpu.template Shared<2, ByteQuad, kTileQuads>();
    const auto of_columns = gpu.template Shared<1, ByteQuad, kByteThreads>();  // B's tile
    const int low = gpu.thread() % kTileQuads;
    const int high = gpu.thread() / kTileQuads;
    ByteQuad a_sums;
    ByteQuad b_sums;
    WEFT_UNROLL
    for (int v = 0; v < 4; ++v) {
      uint32_t sum = sums.of_a[v];
      for (int lane = 1; lane < kStepWords; lane *= 2) sum += gpu.ShuffleXor(sum, lane);
      a_sums.values[v] = sum;
      b_sums.values[v] = sums.of_b[v];
    }
    if (low == 0) of_rows[high] = a_sums;
    of_columns[gpu.thread()] = b_sums;
    gpu.Barrier();
    a_sums = of_rows[high];
    b_sums = of_columns[low];
    for (int word = 1; word < kStepWords; ++word) {
      const ByteQuad more = of_columns[word * kTileQuads + low];
      WEFT_UNROLL
      for (int v = 0; v < 4; ++v) b_sums.values[v] += more.values[v];
    }
    gpu.Barrier();
    uint32_t b_zeros[4];
    WEFT_UNROLL
    for (int c = 0; c < 4; ++c) {
      b_zeros[c] =
          column + c < of.n ? FlippedZero(gpu, of.b_format, of.b_zeros, matrix, column + c) : 0;
    }
    const int64_t count = of.n - column;
    const int64_t rows = count <= 0 ? 0 : of.m - row;
    // One after the other: rows move up, so that the code of an output is there once.
    for (int r = 0; r < 4 && r < rows; ++r) {
      const uint32_t a_zero = FlippedZero(gpu, of.a_format, of.a_zeros, matrix, row + r);
      uint32_t whole[kOutputsAtOnce];
      WEFT_UNROLL
      for (int c = 0; c < 4; ++c) {
        whole[c] = sums.of_products[0][c] - a_zero * b_sums.values[c] -
                   b_zeros[c] * a_sums.values[0] +
                   static_cast<uint32_t>(of.k) * a_zero * b_zeros[c];
      }
      output.Write(gpu, matrix, row + r, column, count, whole);
      WEFT_UNROLL
      for (int next = 1; next < 4; ++next) {
        a_sums.values[next - 1] = a_sums.values[next];
        WEFT_UNROLL
        for (int c = 0; c < 4; ++c) {
          sums.of_products[next - 1][c] = sums.of_products[next][c];
        }
      }
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_PRODUCT_BODY_H_
