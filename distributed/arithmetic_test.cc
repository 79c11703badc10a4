#include "distributed/arithmetic.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"
#include "tensor/testing/test_device.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ArithmeticTest, SaysProcessorThreadsAndCard) {
  testing::FakeFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/proc").ok());
  ASSERT_TRUE(files
                  .WriteFileAtomically("/proc/cpuinfo",
                                       "processor\t: 0\nmodel name\t: A Processor @ 3 GHz\n"
                                       "processor\t: 1\nmodel name\t: Another\n")
                  .ok());
  const auto device = testing::NewTestDevice(testing::kOnCpu);
  const std::string two = ArithmeticOf(*device, {}, 2, files);
  EXPECT_THAT(
      two, AllOf(StartsWith("cpu "), HasSubstr(", 2 threads,"), EndsWith(", A Processor @ 3 GHz")));
  EXPECT_EQ(ArithmeticOf(*device, {}, 2, files), two);
  EXPECT_NE(ArithmeticOf(*device, {}, 1, files), two);
  WorkerCard card;
  card.text = "NVIDIA L4, compute capability 8.9";
  card.driver = "580.65.06";
  EXPECT_THAT(ArithmeticOf(*device, card, 2, files),
              HasSubstr("NVIDIA L4, compute capability 8.9, driver 580.65.06, "));
  testing::FakeFileSystem silent;
  EXPECT_THAT(ArithmeticOf(*device, {}, 2, silent), EndsWith(", 2 threads, "));
}

}  // namespace
}  // namespace weft
