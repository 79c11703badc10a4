// Sums, strided copies and the search for NaNs on the emulated GPU, or the one that
// WEFT_TEST_DEVICE names, against plain loops.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/memory_work.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "tensor/device.h"
#include "tensor/device_id.h"
#include "tensor/dtype.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::cuda {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(1);
// Larger than a block of 256 threads with packets of 16 bytes, and no multiple of anything.
const std::vector<int64_t> kCounts = {0, 1, 3, 31, 257, 1031, 4099};

class MemoryTest : public ::testing::TestWithParam<int> {
 protected:
  MemoryTest() : device_(MakeDevice()) {
    stream_ = *device_.NewStream("compute");
    work_ = FindMemoryWork(DeviceKind::kCuda);
  }

  Device& MakeDevice() {
    if (!testing::TestsOnARealGpu()) {
      return emulated_.emplace(
          testing::EmulatedDeviceOptions{.seed = static_cast<uint64_t>(GetParam())});
    }
    const DeviceId id = ParseDevice(std::getenv("WEFT_TEST_DEVICE")).value();
    return *FindDevice(id.kind, id.index).value();
  }

  // The bytes on the device, `offset` behind a buffer's begin; the buffer is kept.
  char* Upload(const void* bytes, size_t size, size_t offset) {
    buffers_.push_back(*device_.Allocate(size + offset));
    char* const data = static_cast<char*>(buffers_.back()->data()) + offset;
    EXPECT_TRUE(device_.CopyFromHost(*stream_, bytes, data, size).ok());
    return data;
  }
  void Download(const void* data, void* bytes, size_t size) {
    ASSERT_TRUE(device_.CopyToHost(*stream_, data, bytes, size).ok());
    ASSERT_TRUE(stream_->Synchronize(kTimeout).ok());
    if (emulated_) {
      ASSERT_TRUE(emulated_->Verify().ok()) << emulated_->Verify();
    }
  }

  template <typename T>
  std::vector<T> Sum(const std::vector<T>& from, const std::vector<T>& into, size_t offset) {
    const size_t bytes = from.size() * sizeof(T);
    SumArguments arguments{DTypeOf<T>::value, static_cast<int64_t>(from.size()),
                           Upload(from.data(), bytes, offset), Upload(into.data(), bytes, offset)};
    EXPECT_TRUE(stream_->Enqueue({work_->sum, &arguments}).ok());
    std::vector<T> result(from.size());
    Download(arguments.into, result.data(), bytes);
    buffers_.clear();
    return result;
  }

  template <typename T>
  int64_t FirstNonFinite(const std::vector<T>& values) {
    const int64_t garbage = 3;
    FiniteArguments arguments{DTypeOf<T>::value, static_cast<int64_t>(values.size()),
                              Upload(values.data(), values.size() * sizeof(T), 0), nullptr};
    arguments.first = reinterpret_cast<int64_t*>(Upload(&garbage, sizeof(garbage), 0));
    EXPECT_TRUE(stream_->Enqueue({work_->find_non_finite, &arguments}).ok());
    int64_t first = 0;
    Download(arguments.first, &first, sizeof(first));
    buffers_.clear();
    return first;
  }

  std::optional<testing::EmulatedDevice> emulated_;
  Device& device_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::unique_ptr<Stream> stream_;
  const MemoryWork* work_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Orders, MemoryTest, ::testing::Values(1, 2));

TEST_P(MemoryTest, SumsNumbersOfEveryWidth) {
  ASSERT_NE(work_, nullptr);
  for (const int64_t count : kCounts) {
    for (const size_t offset : {size_t{0}, size_t{8}}) {  // aligned to a packet, or to an element
      SCOPED_TRACE(std::to_string(count) + " at " + std::to_string(offset));
      const auto check = [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> from(count), into(count), expected(count);
        for (int64_t i = 0; i < count; ++i) {
          from[i] = static_cast<T>(i % 53);
          into[i] = static_cast<T>(i % 61);
          expected[i] = static_cast<T>(i % 53 + i % 61);
        }
        EXPECT_EQ(Sum(from, into, offset), expected) << DTypeName(DTypeOf<T>::value);
      };
      check(float{}), check(double{});
      check(int8_t{}), check(int16_t{}), check(int32_t{}), check(int64_t{});
      check(uint8_t{}), check(uint16_t{}), check(uint32_t{}), check(uint64_t{});
    }
  }
}

// Of 16-bit floats, each sum is the nearest to the exact one; float32 holds the exact one here.
TEST_P(MemoryTest, SmallFloatsAreRoundedOnce) {
  const int64_t count = 1031;
  std::vector<Float16> half_from(count), half_into(count);
  std::vector<Bfloat16> bfloat_from(count), bfloat_into(count);
  for (int64_t i = 0; i < count; ++i) {
    half_from[i] = ToFloat16(static_cast<float>(i) * 0.37f);
    half_into[i] = ToFloat16(1.0f / static_cast<float>(i + 1));
    bfloat_from[i] = ToBfloat16(static_cast<float>(i) * -0.37f);
    bfloat_into[i] = ToBfloat16(1.0f / static_cast<float>(i + 1));
  }
  const std::vector<Float16> half = Sum(half_from, half_into, 2);
  const std::vector<Bfloat16> bfloat = Sum(bfloat_from, bfloat_into, 0);
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(half[i].bits, ToFloat16(ToFloat(half_from[i]) + ToFloat(half_into[i])).bits) << i;
    EXPECT_EQ(bfloat[i].bits, ToBfloat16(ToFloat(bfloat_from[i]) + ToFloat(bfloat_into[i])).bits)
        << i;
  }
}

TEST_P(MemoryTest, WhatCannotBeSummedIsRefused) {
  SumArguments arguments{DType::kBool, 0, nullptr, nullptr};
  const absl::Status status = stream_->Enqueue({work_->sum, &arguments});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("bool"));
}

struct Region {
  CopyRegion region;
  size_t offset;  // of both buffers
};

TEST_P(MemoryTest, CopiesRowsOfAnyWidth) {
  const std::vector<Region> kRegions = {
      {{3, 48, 64, 80, 16, 32}, 0},  // words of 16 bytes
      {{5, 24, 40, 24, 8, 0}, 0},    // of 8
      {{70, 4, 12, 8, 4, 0}, 4},     // of 4, more rows than a block has
      {{7, 6, 10, 8, 2, 2}, 2},      // of 2
      {{11, 5, 7, 9, 1, 3}, 1},      // of 1
      {{1, 20011, 0, 0, 3, 5}, 0},   // one long row
      {{1031, 1, 3, 2, 0, 1}, 0},    // short ones
      {{0, 16, 16, 16, 0, 0}, 0},    // none
      {{4, 0, 16, 16, 0, 0}, 0}};    // empty ones
  for (const Region& test : kRegions) {
    const CopyRegion& region = test.region;
    SCOPED_TRACE(std::to_string(region.rows) + " rows of " + std::to_string(region.bytes));
    const int64_t rows = std::max<int64_t>(region.rows - 1, 0);
    std::vector<char> from(region.source_offset + rows * region.source_stride + region.bytes);
    std::vector<char> into(region.target_offset + rows * region.target_stride + region.bytes);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
    for (size_t i = 0; i < into.size(); ++i) into[i] = static_cast<char>(i * 11 + 3);
    RowsArguments arguments{region, Upload(from.data(), from.size(), test.offset),
                            Upload(into.data(), into.size(), test.offset)};
    ASSERT_TRUE(stream_->Enqueue({work_->copy_rows, &arguments}).ok());
    std::vector<char> copied(into.size());
    Download(arguments.into, copied.data(), copied.size());
    for (int64_t row = 0; row < region.rows; ++row) {
      for (int64_t i = 0; i < region.bytes; ++i) {
        into[region.target_offset + row * region.target_stride + i] =
            from[region.source_offset + row * region.source_stride + i];
      }
    }
    EXPECT_EQ(copied, into);
    buffers_.clear();
  }
}

TEST_P(MemoryTest, FindsTheFirstElementThatIsNotFinite) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const int64_t count : {int64_t{1}, int64_t{257}, int64_t{4099}}) {
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
      for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
        SCOPED_TRACE(std::to_string(count) + " at " + std::to_string(at));
        std::vector<float> floats(count, std::numeric_limits<float>::max());
        std::vector<double> doubles(count, -std::numeric_limits<double>::max());
        std::vector<Float16> halves(count, ToFloat16(65504));
        std::vector<Bfloat16> bfloats(count, ToBfloat16(1e38f));
        for (int64_t i = at; i < count; i += 5) {
          floats[i] = static_cast<float>(bad);
          doubles[i] = bad;
          halves[i] = ToFloat16(static_cast<float>(bad));
          bfloats[i] = ToBfloat16(static_cast<float>(bad));
        }
        EXPECT_EQ(FirstNonFinite(floats), at);
        EXPECT_EQ(FirstNonFinite(doubles), at);
        EXPECT_EQ(FirstNonFinite(halves), at);
        EXPECT_EQ(FirstNonFinite(bfloats), at);
      }
    }
  }
}

TEST_P(MemoryTest, FiniteNumbersAndIntegersAreAllFinite) {
  EXPECT_EQ(FirstNonFinite(std::vector<float>{}), FiniteArguments::kAllFinite);
  EXPECT_EQ(FirstNonFinite(std::vector<float>(300, 1e-45f)), FiniteArguments::kAllFinite);
  EXPECT_EQ(FirstNonFinite(std::vector<int32_t>(3, -1)), FiniteArguments::kAllFinite);
}

}  // namespace
}  // namespace weft::cuda
