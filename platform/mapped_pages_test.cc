#include "platform/mapped_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

constexpr size_t kPages = 64;

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// How many of the pages are in this process's memory (present, not merely in the system's cache).
size_t PresentPages(std::span<const std::byte> bytes) {
  size_t present = 0;
  const int file = open("/proc/self/pagemap", O_RDONLY);
  for (size_t i = 0; i < bytes.size(); i += PageBytes()) {
    uint64_t entry = 0;
    const uintptr_t page = reinterpret_cast<uintptr_t>(bytes.data() + i) / PageBytes();
    if (pread(file, &entry, sizeof(entry), static_cast<off_t>(page * sizeof(entry))) == 8) {
      present += entry >> 63;
    }
  }
  close(file);
  return present;
}

int64_t Sum(std::span<const std::byte> bytes) {
  int64_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<int64_t>(byte);
  return sum;
}

// The system ends a process that reads there, and it did.
TEST(MappedPages, AFileThatBecomesShorterReadsAsZerosAndIsNamed) {
  const std::string path = testing::TempDir() + "/shorter";
  const std::string whole(kPages * PageBytes(), '\3');
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, whole).ok());
  ASSERT_TRUE(CheckMappedFiles().ok());
  auto file = RealFileSystem().MapFile(path).value();
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(PageBytes())), 0);
  EXPECT_TRUE(CheckMappedFiles().ok());  // nobody has read it
  EXPECT_EQ(Sum(file->bytes()), static_cast<int64_t>(3 * PageBytes()));
  const absl::Status lost = CheckMappedFiles();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(lost.message().find("file '" + path + "' became shorter"), std::string::npos) << lost;
  EXPECT_TRUE(CheckMappedFiles().ok());  // it has been said
  file.reset();
  // What is unmapped before anybody asks is told, too; and the next mapping is whole.
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, whole).ok());
  file = RealFileSystem().MapFile(path).value();
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_EQ(Sum(file->bytes()), 0);
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, whole).ok());
  file = RealFileSystem().MapFile(path).value();
  EXPECT_EQ(CheckMappedFiles().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Sum(file->bytes()), static_cast<int64_t>(3 * whole.size()));
  EXPECT_TRUE(CheckMappedFiles().ok());
}

TEST(MappedPagesDeathTest, ABusErrorOfAnythingElseGoesItsOldWay) {
  EXPECT_EXIT(
      {
        const std::string path = testing::TempDir() + "/foreign";
        RealFileSystem().WriteFileAtomically(path, "x").IgnoreError();
        const auto file = RealFileSystem().MapFile(path);  // the handler is there
        const int other = open(path.c_str(), O_RDWR);
        volatile const char* const bytes = static_cast<const char*>(
            mmap(nullptr, 4 * PageBytes(), PROT_READ, MAP_SHARED, other, 0));
        std::exit(bytes[2 * PageBytes()]);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedPages, ReleasedPagesLeaveTheProcessAndComeBackFromTheFile) {
  const std::string path = testing::TempDir() + "/pages";
  ASSERT_TRUE(
      RealFileSystem().WriteFileAtomically(path, std::string(kPages * PageBytes(), '\3')).ok());
  const auto file = RealFileSystem().MapFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::span<const std::byte> bytes((*file)->data(), (*file)->size());
  EXPECT_EQ(Sum(bytes), static_cast<int64_t>(3 * kPages * PageBytes()));
  EXPECT_EQ(PresentPages(bytes), kPages);
  EXPECT_TRUE(ReleaseMappedPages(bytes.subspan(1, bytes.size() / 2)));
  // What is around the released bytes goes with them, up to a unit of 16 pages on each side.
  EXPECT_LT(PresentPages(bytes), kPages / 2);
  EXPECT_GE(PresentPages(bytes), kPages / 2 - 16);
  EXPECT_EQ(Sum(bytes), static_cast<int64_t>(3 * kPages * PageBytes()));
  EXPECT_TRUE(ReleaseMappedPages(bytes));
  EXPECT_EQ(PresentPages(bytes), 0u);
}

// Parts that begin and end within a page, one after the other: a read of the next brings back the
// end of the one before, which must not stay.
TEST(MappedPages, WindowsAreNotInMemoryBesideEachOther) {
  const std::string path = testing::TempDir() + "/windows";
  constexpr size_t kBytes = 8 * kMappedWindow + 5000;
  // The system may map as many together, at either end of a window.
  constexpr size_t kHugePage = size_t{2} << 20;
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, std::string(kBytes, '\3')).ok());
  const auto file = RealFileSystem().MapFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::span<const std::byte> whole((*file)->data(), (*file)->size());
  const std::span<const std::byte> bytes = whole.subspan(77);
  int64_t sum = 0;
  size_t max_pages = 0;
  int parts = 0;
  ForEachMappedWindow(bytes, [&](std::span<const std::byte> part) {
    sum += Sum(part);
    max_pages = std::max(max_pages, PresentPages(whole));
    ++parts;
  });
  EXPECT_EQ(parts, 9);
  EXPECT_EQ(sum, static_cast<int64_t>(3 * bytes.size()));
  EXPECT_LE(max_pages, (kMappedWindow + 2 * kHugePage) / PageBytes());
  EXPECT_EQ(PresentPages(whole), 0u);
}

TEST(MappedPages, OtherMemoryIsLeftAlone) {
  std::vector<std::byte> bytes(kPages * PageBytes(), std::byte{5});
  EXPECT_FALSE(ReleaseMappedPages(bytes));
  EXPECT_EQ(Sum(bytes), static_cast<int64_t>(5 * bytes.size()));
}

}  // namespace
}  // namespace weft
