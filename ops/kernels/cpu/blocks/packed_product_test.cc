// Each element is compared bit for bit with a loop over its own products. Operands end where memory
// that must not be read begins.
#include "ops/kernels/cpu/blocks/packed_product.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/cpu_info.h"

namespace weft::cpu {
namespace {

using testing::RandomTensor;

// Floats of which the last lies before a page that faults.
class GuardedFloats {
 public:
  explicit GuardedFloats(int64_t count) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    const size_t usable = (bytes + page - 1) / page * page;
    mapped_ = usable + page;
    base_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + usable, page, PROT_NONE);
    data_ = reinterpret_cast<float*>(base_ + usable - bytes);
  }
  ~GuardedFloats() { munmap(base_, mapped_); }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;

  void Randomize(uint64_t seed) {
    const Tensor random = RandomTensor({count_}, seed);
    std::memcpy(data_, random.raw_data(), static_cast<size_t>(count_) * sizeof(float));
  }
  float* data() { return data_; }
  float& operator[](int64_t i) { return data_[i]; }

 private:
  int64_t count_;
  size_t mapped_;
  char* base_;
  float* data_;
};

// Sizes, layouts and what is added, in short.
struct Case {
  int64_t m;
  int64_t n;
  int64_t k;
  bool trans_a = false;
  bool trans_b = false;
  bool constant_b = false;
  int64_t gap = 0;  // elements between the rows of each matrix
  enum class Added : uint8_t { kNothing, kRow, kMatrix, kY } added = Added::kNothing;
  float alpha = 1.0f;
  int threads = 1;

  std::string ToString() const {
    return absl::StrCat(m, "x", n, "x", k, trans_a ? " A^T" : "", trans_b ? " B^T" : "",
                        constant_b ? " constant" : "", " gap ", gap, " added ",
                        static_cast<int>(added), " alpha ", alpha, " threads ", threads);
  }
};

float MultiplyAdd(float a, float b, float c) {
  static const bool kFuses = EffectiveInstructionSet() >= InstructionSet::kAvx2;
  if (kFuses) return std::fma(a, b, c);
  const volatile float product = a * b;
  return product + c;
}

class PackedProductTest : public ::testing::Test {
 protected:
  // Operands with strides of their own.
  struct Operands {
    explicit Operands(const Case& c)
        : a_stride((c.trans_a ? c.m : c.k) + c.gap),
          b_stride((c.trans_b ? c.k : c.n) + c.gap),
          y_stride(c.n + c.gap),
          a((c.trans_a ? c.k - 1 : c.m - 1) * a_stride + (c.trans_a ? c.m : c.k)),
          b((c.trans_b ? c.n - 1 : c.k - 1) * b_stride + (c.trans_b ? c.k : c.n)),
          y((c.m - 1) * y_stride + c.n),
          before((c.m - 1) * y_stride + c.n),
          added((c.m - 1) * c.n + c.n) {
      a.Randomize(1);
      b.Randomize(2);
      before.Randomize(3);
      added.Randomize(4);
      std::memcpy(y.data(), before.data(), ((c.m - 1) * y_stride + c.n) * sizeof(float));
    }
    int64_t a_stride, b_stride, y_stride;
    GuardedFloats a, b, y, before, added;
  };

  static StridedProduct ProductOf(const Case& c, const Operands& operands) {
    return {.m = c.m,
            .n = c.n,
            .k = c.k,
            .a_row_stride = c.trans_a ? 1 : operands.a_stride,
            .a_depth_stride = c.trans_a ? operands.a_stride : 1,
            .b_depth_stride = c.trans_b ? 1 : operands.b_stride,
            .b_column_stride = c.trans_b ? operands.b_stride : 1,
            .y_row_stride = operands.y_stride,
            .alpha = c.alpha};
  }

  static float* Added(const Case& c, Operands& operands) {
    if (c.added == Case::Added::kNothing) return nullptr;
    return c.added == Case::Added::kY ? operands.y.data() : operands.added.data();
  }
  static int64_t AddedStride(const Case& c, const Operands& operands) {
    if (c.added == Case::Added::kY) return operands.y_stride;
    return c.added == Case::Added::kMatrix ? c.n : 0;
  }

  static void Run(const Case& c, Operands& operands) {
    WorkspaceLayout layout;
    auto product = PackedProduct::Create(ProductOf(c, operands), c.threads, c.constant_b, layout);
    ASSERT_TRUE(product.ok()) << product.status();
    const Tensor workspace =
        *Tensor::Allocate(DType::kUint8, Shape{static_cast<int64_t>(layout.total()) + 64});
    auto* const bytes = static_cast<unsigned char*>(workspace.raw_data());
    std::memset(bytes, 0xA5, layout.total() + 64);
    product->Run(operands.a.data(), operands.b.data(), Added(c, operands), AddedStride(c, operands),
                 operands.y.data(), bytes);
    for (size_t i = layout.total(); i < layout.total() + 64; ++i) ASSERT_EQ(bytes[i], 0xA5);
  }

  // What the law of the header says.
  static float Expected(const Case& c, Operands& operands, int64_t i, int64_t j) {
    const StridedProduct p = ProductOf(c, operands);
    float y = 0;
    const float* added = c.added == Case::Added::kY ? operands.before.data() : Added(c, operands);
    if (added != nullptr) added += i * AddedStride(c, operands) + j;
    for (int64_t first = 0; first < c.k; first += kProductDepth) {
      float sum = 0;
      for (int64_t k = first; k < std::min(c.k, first + kProductDepth); ++k) {
        sum = MultiplyAdd(operands.a[i * p.a_row_stride + k * p.a_depth_stride],
                          operands.b[k * p.b_depth_stride + j * p.b_column_stride], sum);
      }
      const float before = first > 0 ? y : added == nullptr ? 0 : *added;
      y = first == 0 && added == nullptr ? c.alpha * sum : MultiplyAdd(c.alpha, sum, before);
    }
    return y;
  }

  static void ExpectBits(const Case& c) {
    SCOPED_TRACE(c.ToString());
    Operands operands(c);
    Run(c, operands);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const float expected = Expected(c, operands, i, j);
        ASSERT_EQ(operands.y[i * operands.y_stride + j], expected) << i << ", " << j;
      }
      for (int64_t j = c.n; i + 1 < c.m && j < operands.y_stride; ++j) {
        ASSERT_EQ(operands.y[i * operands.y_stride + j], operands.before[i * operands.y_stride + j])
            << "between rows: " << i << ", " << j;
      }
    }
  }

  static void ExpectBitsInAllLayouts(Case c) {
    for (int layout = 0; layout < 8; ++layout) {
      c.trans_a = (layout & 1) != 0;
      c.trans_b = (layout & 2) != 0;
      c.constant_b = (layout & 4) != 0;
      ExpectBits(c);
    }
  }
};

TEST_F(PackedProductTest, EveryHeightAndWidthOfTiles) {
  for (int64_t m = 1; m <= 33; ++m) ExpectBitsInAllLayouts({.m = m, .n = 1 + m * 7 % 37, .k = 9});
  for (int64_t n = 1; n <= 70; ++n) ExpectBitsInAllLayouts({.m = 1 + n * 5 % 19, .n = n, .k = 5});
  for (int64_t n = 65; n <= 200; n += 9) ExpectBitsInAllLayouts({.m = 15, .n = n, .k = 3});
  for (int64_t m = 1; m <= 5; ++m) ExpectBitsInAllLayouts({.m = m, .n = 150 + m, .k = 11});
}

TEST_F(PackedProductTest, EveryDepth) {
  for (int64_t k = 1; k <= 12; ++k) ExpectBitsInAllLayouts({.m = 17, .n = 130, .k = k});
  for (const int64_t k : {255, 256, 257, 511, 512, 600}) {
    ExpectBitsInAllLayouts({.m = 1, .n = 140, .k = k});
    ExpectBitsInAllLayouts({.m = 3, .n = 140, .k = k});
    ExpectBitsInAllLayouts({.m = 13, .n = 33, .k = k});
    ExpectBitsInAllLayouts({.m = 70, .n = 67, .k = k});
  }
}

TEST_F(PackedProductTest, StridesAreThoseOfLargerMatrices) {
  for (const int64_t gap : {1, 3, 40}) {
    ExpectBitsInAllLayouts({.m = 2, .n = 5, .k = 3, .gap = gap});
    ExpectBitsInAllLayouts({.m = 4, .n = 133, .k = 300, .gap = gap});
    ExpectBitsInAllLayouts({.m = 29, .n = 133, .k = 300, .gap = gap});
  }
  ExpectBitsInAllLayouts({.m = 40, .n = 1000, .k = 30, .gap = 24});  // rows in a few sets
}

TEST_F(PackedProductTest, AddsAndScales) {
  using Added = Case::Added;
  for (const Added added : {Added::kNothing, Added::kRow, Added::kMatrix, Added::kY}) {
    for (const float alpha : {1.0f, -0.3f}) {
      for (const int64_t m : {1, 4, 9, 80}) {
        ExpectBitsInAllLayouts(
            {.m = m, .n = 141, .k = 270, .gap = 2, .added = added, .alpha = alpha});
        ExpectBitsInAllLayouts({.m = m, .n = 6, .k = 7, .added = added, .alpha = alpha});
      }
    }
  }
}

// Each of several chunks is shared by rows, by columns, or by both.
TEST_F(PackedProductTest, ThreadsDoNotChangeBits) {
  for (const int threads : {1, 2, 3}) {
    ExpectBits({.m = 331, .n = 190, .k = 300, .threads = threads});
    ExpectBits({.m = 5, .n = 2100, .k = 520, .threads = threads});
    ExpectBits({.m = 20, .n = 1030, .k = 260, .trans_b = true, .threads = threads});
    ExpectBits({.m = 90, .n = 640, .k = 280, .trans_a = true, .threads = threads});
    ExpectBits({.m = 33, .n = 1024, .k = 270, .threads = threads});
    ExpectBits({.m = 60, .n = 700, .k = 300, .constant_b = true, .threads = threads});
    ExpectBits({.m = 70, .n = 1100, .k = 1100, .trans_b = true, .threads = threads});
    ExpectBits({.m = 70, .n = 1100, .k = 1100, .constant_b = true, .threads = threads});
  }
}

TEST_F(PackedProductTest, ConstantsArePackedOnce) {
  const Case c{.m = 20, .n = 70, .k = 300, .constant_b = true};
  Operands operands(c);
  WorkspaceLayout layout;
  auto product = PackedProduct::Create(ProductOf(c, operands), 1, true, layout);
  ASSERT_TRUE(product.ok());
  EXPECT_GE(product->retained_bytes(), 70 * 300 * sizeof(float));
  const Tensor workspace =
      *Tensor::Allocate(DType::kUint8, Shape{static_cast<int64_t>(layout.total())});
  const float expected = Expected(c, operands, 3, 5);
  for (int run = 0; run < 2; ++run) {
    product->Run(operands.a.data(), operands.b.data(), nullptr, 0, operands.y.data(),
                 workspace.raw_data());
    EXPECT_EQ(operands.y[3 * operands.y_stride + 5], expected);
    operands.b.Randomize(9);
  }
}

// What fills up tiles and vectors does not come into the sums, and what is not finite does.
TEST_F(PackedProductTest, NonFiniteElementsReachTheirRowsAndColumnsAlone) {
  for (const int64_t m : {1, 5, 31}) {
    for (int layout = 0; layout < 8; ++layout) {
      const Case c{.m = m,
                   .n = 133,
                   .k = 300,
                   .trans_a = (layout & 1) != 0,
                   .trans_b = (layout & 2) != 0,
                   .constant_b = (layout & 4) != 0};
      SCOPED_TRACE(c.ToString());
      Operands operands(c);
      const StridedProduct p = ProductOf(c, operands);
      const int64_t nan_row = m / 2;
      operands.a[nan_row * p.a_row_stride + 7 * p.a_depth_stride] =
          std::numeric_limits<float>::quiet_NaN();
      operands.b[299 * p.b_depth_stride + 132 * p.b_column_stride] =
          std::numeric_limits<float>::infinity();
      Run(c, operands);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < c.n; ++j) {
          const float y = operands.y[i * operands.y_stride + j];
          ASSERT_EQ(std::isnan(y), i == nan_row) << i << ", " << j;
          ASSERT_EQ(std::isinf(y), i != nan_row && j == 132) << i << ", " << j;
        }
      }
    }
  }
}

TEST_F(PackedProductTest, ARowHasItsBitsWhateverTheOthers) {
  const Case all{.m = 67, .n = 200, .k = 400};
  Operands operands(all);
  Run(all, operands);
  for (const int64_t rows : {1, 2, 5, 14, 33}) {
    Case some = all;
    some.m = rows;
    Operands part(some);
    const int64_t first = all.m - rows;
    std::memcpy(part.a.data(), operands.a.data() + first * all.k, rows * all.k * sizeof(float));
    std::memcpy(part.b.data(), operands.b.data(), all.k * all.n * sizeof(float));
    Run(some, part);
    EXPECT_EQ(
        std::memcmp(part.y.data(), operands.y.data() + first * all.n, rows * all.n * sizeof(float)),
        0)
        << rows << " rows";
  }
}

}  // namespace
}  // namespace weft::cpu
