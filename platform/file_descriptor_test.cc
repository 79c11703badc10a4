#include "platform/file_descriptor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr size_t kPage = 4096;

// Bytes from the begin of a page on, none of which repeats soon.
class PagesOfNumbers {
 public:
  explicit PagesOfNumbers(size_t bytes)
      : bytes_(bytes), memory_(std::aligned_alloc(kPage, (bytes / kPage + 2) * kPage), &std::free) {
    uint64_t state = 12345;
    for (size_t i = 0; i < bytes + kPage; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      begin()[i] = static_cast<std::byte>(state >> 56);
    }
  }
  std::byte* begin() const { return static_cast<std::byte*>(memory_.get()); }
  std::span<const std::byte> All(size_t shift = 0) const { return {begin() + shift, bytes_}; }

 private:
  const size_t bytes_;
  const std::unique_ptr<void, decltype(&std::free)> memory_;
};

class WriteWholeFileTest : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-file-descriptor-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ + "/file"; }
  FileDescriptor Create() const {
    return FileDescriptor(open(Path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  }
  // By the library of C++, which knows nothing of how it was written.
  std::string Read() const {
    std::ifstream file(Path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static std::string Text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string folder_;
};

TEST_P(WriteWholeFileTest, HoldsTheBytes) {
  const PagesOfNumbers numbers(GetParam());
  for (const size_t shift : {size_t{0}, size_t{64}}) {
    const FileDescriptor file = Create();
    ASSERT_TRUE(file.valid());
    ASSERT_EQ(WriteWholeFile(file, numbers.All(shift)), 0);
    EXPECT_EQ(fsync(file.get()), 0);
    EXPECT_TRUE(Read() == Text(numbers.All(shift))) << "from byte " << shift << " of a page";
    // Who writes more does so through the cache.
    EXPECT_EQ(fcntl(file.get(), F_GETFL) & O_DIRECT, 0);
    std::filesystem::remove(Path());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, WriteWholeFileTest,
                         ::testing::Values(0, 1, kPage, kDirectWriteBytes - 1, kDirectWriteBytes,
                                           kDirectWriteBytes + 1, 2 * kDirectWriteBytes + 5 * kPage,
                                           2 * kDirectWriteBytes + 3 * kPage + 17));

// Where the disk has no more room, in the middle of a file, it says so whichever way it is written.
class WriteLargeFileTest : public WriteWholeFileTest {};

TEST_P(WriteLargeFileTest, AFileThatMayNotBecomeSoLongIsAnError) {
  const PagesOfNumbers numbers(GetParam());
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto earlier = std::signal(SIGXFSZ, SIG_IGN);
  for (const size_t limit : {size_t{100}, size_t{5} << 20, (size_t{6} << 20) + 1}) {
    for (const size_t shift : {size_t{0}, size_t{64}}) {
      const FileDescriptor file = Create();
      struct rlimit less = before;
      less.rlim_cur = limit;
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &less), 0);
      const int error = WriteWholeFile(file, numbers.All(shift));
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
      EXPECT_EQ(error, EFBIG) << limit << " bytes";
      std::filesystem::remove(Path());
    }
  }
  std::signal(SIGXFSZ, earlier);
}

// A file system in memory may know no O_DIRECT.
TEST_P(WriteWholeFileTest, WritesToMemoryToo) {
  const PagesOfNumbers numbers(GetParam());
  const FileDescriptor file(memfd_create("weft", MFD_CLOEXEC));
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(WriteWholeFile(file, numbers.All()), 0);
  std::string text(GetParam() + 1, '\0');
  ASSERT_EQ(pread(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(GetParam()));
  text.pop_back();
  EXPECT_TRUE(text == Text(numbers.All()));
}

TEST_P(WriteLargeFileTest, WhatCannotBeWrittenIsAnError) {
  const PagesOfNumbers numbers(GetParam());
  const FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(WriteWholeFile(full, numbers.All()), ENOSPC);
  Create();
  const FileDescriptor readable(open(Path().c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(WriteWholeFile(readable, numbers.All()), EBADF);
  EXPECT_EQ(WriteWholeFile(readable, numbers.All(64)), EBADF);
}

INSTANTIATE_TEST_SUITE_P(Sizes, WriteLargeFileTest,
                         ::testing::Values(kDirectWriteBytes,
                                           2 * kDirectWriteBytes + 3 * kPage + 17));

}  // namespace
}  // namespace weft
