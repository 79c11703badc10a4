#include "tensor/cuda/driver_version.h"

#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

constexpr char kDriverFile[] = "/proc/driver/nvidia/version";

TEST(NvidiaDriverVersionTest, IsTheModulesOwn) {
  testing::FakeFileSystem files;
  EXPECT_EQ(NvidiaDriverVersion(files), "");
  ASSERT_TRUE(files.CreateDirectories("/proc/driver/nvidia").ok());
  ASSERT_TRUE(files
                  .WriteFileAtomically(kDriverFile,
                                       "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                                       "580.159.04  Release Build\nGCC version:  gcc version 12.2")
                  .ok());
  EXPECT_EQ(NvidiaDriverVersion(files), "580.159.04");
  ASSERT_TRUE(files.WriteFileAtomically(kDriverFile, "NVRM version: unknown\n").ok());
  EXPECT_EQ(NvidiaDriverVersion(files), "");
}

}  // namespace
}  // namespace weft
